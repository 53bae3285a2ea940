"""Permission errors: one sentence from the command line, and checks before long work."""

import os
from pathlib import Path

import pytest
from command_line import CommandLine

from graftseg.core.errors import Code
from graftseg.core.files import check_target_file, check_writable
from user_errors import user_error


@pytest.mark.parametrize("words", [("info",), ("check",), ("prepare", "--out", "store")], ids=" ".join)
def test_permission_denied_is_one_sentence(
    cli: CommandLine, scans: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Root may read every folder, so that the error is simulated."""
    stat = os.stat

    def denied(path: object, *arguments: object, **options: object) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and str(path).startswith(str(scans)):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", denied)
    assert str(scans) in cli.fails(words[0], scans, *words[1:], code=Code.PERMISSION_DENIED)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_unreadable_folder(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o000)
    try:
        assert str(tmp_path / "a") in cli.fails("info", tmp_path / "a", code=Code.PERMISSION_DENIED)
    finally:
        (tmp_path / "a").chmod(0o700)


def test_unwritable_folder_is_found_before_it_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    check_writable(tmp_path.parent)
    for folder in (tmp_path, tmp_path / "new" / "newer"):
        with user_error(Code.PERMISSION_DENIED, tmp_path, "not writable"):
            check_writable(folder)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "new"):
        with user_error(Code.NOT_A_FOLDER, tmp_path / "file"):
            check_writable(folder)
    with user_error(Code.NOT_A_FOLDER, tmp_path / "file"):
        check_target_file(tmp_path / "file" / "figures.json")


def test_target_file(tmp_path: Path) -> None:
    check_target_file(tmp_path / "figures.json")
    with user_error(Code.UNSAFE_TARGET, tmp_path, "regular file"):
        check_target_file(tmp_path)
