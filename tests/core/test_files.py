"""Atomic files and folders, JSON, checksums and locks."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from graftseg.core import files
from graftseg.core.errors import Code, UserError
from graftseg.core.files import (
    atomic_folder,
    atomic_path,
    read_json,
    read_object,
    write_bytes,
    write_group,
    write_json,
    write_text,
)
from user_errors import user_error


def test_the_target_appears_when_the_block_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "scan.nii.gz"
    with atomic_path(target) as partial:
        assert partial.parent == target.parent
        assert partial.name.endswith(".nii.gz")
        partial.write_text("content")
        assert not target.exists()
    assert target.read_text() == "content"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [None, "former content"])
def test_a_failure_changes_nothing(tmp_path: Path, error: type[BaseException], before: str | None) -> None:
    target = tmp_path / "file.txt"
    if before is not None:
        target.write_text(before)

    def fail() -> None:
        with atomic_path(target) as partial:
            partial.write_text("half of the con")
            raise error

    with pytest.raises(error):
        fail()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ({"file.txt": before} if before else {})


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "a long former content")
    with target.open() as reader:
        write_text(target, "new")
        assert reader.read() == "a long former content"
    assert target.read_text() == "new"


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_decides_who_may_read(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "file.bin"
    program = "import sys, pathlib, graftseg.core.files as f; f.write_bytes(pathlib.Path(sys.argv[1]), b'content')"
    subprocess.run([sys.executable, "-c", program, str(target)], umask=umask, check=True)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_permissions_are_those_of_other_files(tmp_path: Path) -> None:
    write_bytes(tmp_path / "ours", b"content")
    (tmp_path / "other").write_bytes(b"content")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_text_is_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "Σ mε²")
    assert (tmp_path / "text").read_bytes() == "Σ mε²".encode()


def test_json_comes_back(tmp_path: Path) -> None:
    content = {"name": "Größe", "sizes": [1, 2.5, None], "nested": {"yes": True}}
    write_json(tmp_path / "file.json", content)
    assert read_json(tmp_path / "file.json") == content
    assert (tmp_path / "file.json").read_text().count("\n") > 5


def test_content_that_is_not_json_leaves_the_file_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_json(target, [1])
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(target, {"path": tmp_path})
    assert json.loads(target.read_text()) == [1]
    assert list(tmp_path.iterdir()) == [target]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with user_error(Code.FILE_MISSING, path) as caught:
        read_json(path)
    assert caught.value.__suppress_context__


DEEP = b"[" * 101 + b"]" * 101


@pytest.mark.parametrize(
    "content", [b"", b"{'a': 1}", b'{"a": 1', b"\xff\xfe\x00", b"[1e309]", b"[NaN]", DEEP, b"[" * 9999]
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with user_error(Code.DAMAGED_FILE, path, "not valid JSON") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def test_large_integers_and_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b"9" * 300 + b"]")
    assert read_json(path) == [10**300 - 1]
    path.write_bytes(b"[" + b"9" * 301 + b"]")
    with user_error(Code.DAMAGED_FILE, path, "too many digits"):
        read_json(path)
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 300)
    with user_error(Code.DAMAGED_FILE, path, "300 bytes"):
        read_json(path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with user_error(Code.WRITE_FAILED, tmp_path / "file" / "x.txt", "disk space"):
        write_text(tmp_path / "file" / "x.txt", "never")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with user_error(Code.UNSAFE_TARGET, tmp_path / "pipe"):
        write_text(tmp_path / "pipe", "never")
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 1


def test_a_name_that_is_not_utf8_is_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "page.html", os.fsdecode(b"scan\xff.nii"))
    assert (tmp_path / "page.html").read_bytes() == rb"scan\udcff.nii"


@pytest.mark.parametrize("content", ["[]", "null", "7"])
def test_read_object_rejects_other_values(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with user_error(Code.DAMAGED_FILE, tmp_path / "a.json", "object"):
        read_object(tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_object(tmp_path / "a.json") == {"a": 1}


NEW: dict[str, str | bytes] = {"metrics.csv": "new", "metrics.json": b"of new", "picture.svg": "of new \udcff"}
WRITTEN = {"metrics.csv": "new", "metrics.json": "of new", "picture.svg": "of new \\udcff"}
OLD = {"metrics.csv": "old", "metrics.json": "of old", "picture.svg": "of old", "best.csv": "of old"}


def write_over_old_files(folder: Path) -> None:
    write_group({folder / name: content for name, content in NEW.items()}, [folder / "best.csv", folder / "gone"])


def old_files(folder: Path) -> Path:
    for name, content in OLD.items():
        (folder / name).write_text(content)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("cut", range(7))
def test_new_and_old_files_are_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    old_files(tmp_path)
    calls: list[str] = []

    def cutting(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            calls.append(name)
            if len(calls) > cut:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(files, "_flush_to_disk", cutting("flush", files._flush_to_disk))
        patched.setattr(Path, "replace", cutting("replace", Path.replace))
        with pytest.raises(KeyboardInterrupt) if cut < 6 else nullcontext():
            write_over_old_files(tmp_path)
    new = [dict(list(WRITTEN.items())[:count]) for count in range(4)]
    assert texts(tmp_path) == [OLD, OLD, OLD, {"metrics.csv": "old"}, *new[1:]][cut]


@pytest.mark.parametrize("name", NEW)
def test_a_full_disk_leaves_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    old_files(tmp_path)
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name.endswith(name):
            raise OSError(28, "No space left on device")
        return write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with user_error(Code.WRITE_FAILED, f"/{name}", "No space left on device"):
            write_over_old_files(tmp_path)
    assert texts(tmp_path) == OLD
    write_over_old_files(tmp_path)
    assert texts(tmp_path) == WRITTEN


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, None])
def test_a_full_disk_names_file_needed_and_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError("2048 requested and 17 written") if number is None else OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: {tmp_path: SimpleNamespace(free=1234567)}[folder])
    with user_error(Code.WRITE_FAILED, tmp_path / "x.bin") as caught:
        write_bytes(tmp_path / "x.bin", bytes(2048))
    assert "2,048 bytes" in caught.value.finding and "1,234,567 bytes" in caught.value.finding


def test_a_folder_in_place_of_a_file_keeps_all_files(tmp_path: Path) -> None:
    old_files(tmp_path)
    (tmp_path / "picture.svg").unlink()
    (tmp_path / "picture.svg").mkdir()
    with user_error(Code.UNSAFE_TARGET, "picture.svg"):
        write_over_old_files(tmp_path)
    (tmp_path / "picture.svg").rmdir()
    assert texts(tmp_path) == {name: content for name, content in OLD.items() if name != "picture.svg"}


def fill_folder(target: Path) -> None:
    with atomic_folder(target) as partial:
        (partial / "inner").mkdir()
        (partial / "inner" / "data").write_text("content")
        (partial / "link").symlink_to("gone")


WRITERS: dict[str, Callable[[Path], None]] = {
    "file": lambda folder: write_bytes(folder / "a", b"content"),
    "folder": lambda folder: fill_folder(folder / "a"),
    "group": lambda folder: write_group({folder / "a": "1", folder / "b": "2"}),
}


def names_at_flushes(monkeypatch: pytest.MonkeyPatch, number: int | None = None) -> list[tuple[Path, set[str]]]:
    """Return a list that receives each flushed folder and its names. ``number`` is the error of each flush, if any."""
    flushed: list[tuple[Path, set[str]]] = []
    flush = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            folder = Path(f"/proc/self/fd/{handle}").readlink()
            flushed.append((folder, {path.name for path in folder.iterdir()}))
            if number is not None:
                raise OSError(number, os.strerror(number))
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return flushed


@pytest.mark.parametrize("kind", WRITERS)
def test_the_folder_is_flushed_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    flushed = names_at_flushes(monkeypatch)
    WRITERS[kind](tmp_path)
    assert flushed[-1] == (tmp_path, {path.name for path in tmp_path.iterdir()})
    assert {folder.name for folder, _ in flushed[:-1]} >= ({"inner"} if kind == "folder" else set())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_system_that_cannot_flush_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for number in files.NO_FOLDER_SYNC:
        names_at_flushes(monkeypatch, number)
        WRITERS[kind](tmp_path / str(number))
        assert (tmp_path / str(number) / "a").exists()
    names_at_flushes(monkeypatch, errno.EIO)
    with user_error(Code.WRITE_FAILED, tmp_path, os.strerror(errno.EIO)):
        WRITERS[kind](tmp_path)


def test_every_flipped_bit_of_a_checked_file_is_found_or_harmless(tmp_path: Path) -> None:
    path, content = tmp_path / "run.json", {"classes": ["background", "liver"], "steps": {3: 1.5, 20: 2}, "é": None}
    files.write_checked(path, content)
    expected, intact = json.loads(json.dumps(content)), path.read_bytes()
    assert files.read_json(path) == expected and b'"content_sha256": "' in intact
    for place in range(8 * len(intact)):
        damaged = bytearray(intact)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert files.read_json(path).items() >= expected.items()
        except UserError as error:
            assert error.code == Code.DAMAGED_FILE
    # files of earlier versions have no checksum
    path.write_text(json.dumps(content | {"steps": 4}))
    assert files.read_json(path)["steps"] == 4
    path.write_bytes(intact.replace(b"liver", b"lives"))
    with user_error(Code.DAMAGED_FILE, path, "checksum"):
        files.read_json(path)


def test_a_pipe_is_not_json(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("pipe.json")
    for path in (tmp_path / "pipe.json", tmp_path / "link.json", Path("/dev/zero")):
        with user_error(Code.DAMAGED_FILE, path):
            read_json(path)


def test_a_pipe_is_not_waited_for_as_lock_or_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not files.is_locked(tmp_path / "pipe")
    monkeypatch.setattr(os, "link", lambda source, target: Path("missing").stat())
    with pytest.raises(OSError, match="not a regular file"):
        files.link_or_copy(tmp_path / "pipe", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "file").chmod(0o640)
    for _ in range(2):
        with nullcontext() if not (tmp_path / "copy").exists() else pytest.raises(FileExistsError):
            files.link_or_copy(tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"content" and (tmp_path / "copy").stat().st_mode & 0o777 == 0o640


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    for name in ("x" * 248 + ".nii.gz", "\u00e9" * 120 + ".nii.gz"):
        with atomic_path(tmp_path / name) as partial:
            assert partial.name.endswith(".nii.gz")
            partial.write_bytes(b"1")
        assert (tmp_path / name).read_bytes() == b"1"


def test_errors_of_a_locked_block_are_not_errors_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), files.locked(tmp_path / "lock", "in use"):
        raise BlockingIOError
