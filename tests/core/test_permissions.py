"""Folders that must not be looked into: the sentence names the folder, whatever was looked for in it."""

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from command_line import CommandLine, contents

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import check_target_file, check_writable, denied, refuse_closed
from graftseg.data.scans import is_scan

FINDING = "the folder must not be looked into (Permission denied); give yourself the right to read it"
MODES = pytest.mark.parametrize("mode", [0o000, 0o400, 0o100], ids=["closed", "listed", "entered"])


@contextmanager
def closed(monkeypatch: pytest.MonkeyPatch, folder: Path, mode: int) -> Iterator[None]:
    """A folder that may be listed or entered or neither, for root too, which has every right."""
    place = str(folder)

    def refuse(path: Any, *, is_listed: bool) -> None:
        # a path is taken as it is written: what ends in two dots lies in the folder all the same
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        inside = text.startswith(f"{place}{os.sep}")
        if (inside and not mode & 0o100) or (is_listed and text == place and not mode & 0o400):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), text)

    def guarded(function: Callable[..., Any], *, is_listed: bool = False) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            refuse(path, is_listed=is_listed)
            return function(path, *arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for name in ("listdir", "scandir"):
            patched.setattr(os, name, guarded(getattr(os, name), is_listed=True))
        for name in ("stat", "lstat", "open", "mkdir", "unlink"):
            patched.setattr(os, name, guarded(getattr(os, name)))
        patched.setattr(io, "open", guarded(io.open))
        yield


@pytest.fixture(scope="module")
def world(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("world")
    shutil.copytree(scans, place / "data")
    (place / "tiny.yaml").write_text(yaml.safe_dump(tiny.recipe_tree()))
    api.prepare(place / "data", place / "store", recipe=place / "tiny.yaml")
    api.train(place / "tiny.yaml", place / "store", place / "run")
    api.predict(place / "run", place / "data" / "imagesTs")
    return place


def calls(world: Path, out: Path) -> dict[str, list[Callable[[], object]]]:
    """What is asked of a folder, by its name, through Python: the command line looks at arguments by itself."""
    data, store, run, recipe = (world / name for name in ("data", "store", "run", "tiny.yaml"))
    return {
        "data": [
            lambda: api.check(data),
            lambda: api.plan(data, out / "plan.yaml"),
            lambda: api.prepare(data, out / "store", recipe=recipe),
            lambda: api.train(recipe, data, out / "run"),
            lambda: api.info(data),
        ],
        "data/imagesTr": [lambda: api.check(data), lambda: api.predict(run, data / "imagesTr", out / "maps")],
        "store": [
            lambda: api.info(store),
            lambda: api.train(recipe, store, out / "run"),
            lambda: api.prepare(data, store, recipe=recipe),
            lambda: api.predict(run, store, out / "maps"),
            lambda: api.evaluate(run / "predictions", store, out / "scores.csv"),
        ],
        "store/cases": [lambda: api.info(store), lambda: api.prepare(data, store, recipe=recipe)],
        "run": [
            lambda: api.info(run),
            lambda: api.predict(run, data / "imagesTs", out / "maps"),
            lambda: api.report(run, out / "report.html"),
            lambda: api.rank(run),
            lambda: api.export("weights", run, out / "x.safetensors"),
            lambda: api.train(recipe, store, run, resume=True),
            lambda: api.train_folds(recipe, store, run, folds=2),
        ],
    }


@MODES
@pytest.mark.parametrize("name", [*calls(Path(), Path())])
def test_the_folder_itself_is_named(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    before = contents(world)
    for call in calls(world, tmp_path)[name]:
        with closed(monkeypatch, world / name, mode), pytest.raises(UserError) as caught:
            call()
        assert str(caught.value).startswith(f"{world / name}: {FINDING}")
    assert contents(world) == before and contents(tmp_path) == {}


@pytest.mark.parametrize("words", [("info", "run"), ("info", "data"), ("check", "data")], ids=" ".join)
def test_the_command_line_says_one_sentence(
    cli: CommandLine, world: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    with closed(monkeypatch, world / words[1], 0o400):
        assert f"graftseg: {world / words[1]}: {FINDING}" in cli.fails(words[0], world / words[1])


def test_a_folder_above(cli: CommandLine, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to a folder may be barred by another one."""
    with closed(monkeypatch, world, 0o000):
        assert f"graftseg: {world}: {FINDING}" in cli.fails("info", world / "data" / "imagesTs")


def test_a_file_that_must_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))
    assert str(denied(error)) == f"{tmp_path / 'a'}: Permission denied; check disk and permissions."
    assert str(denied(PermissionError("no"))) == "a file: no; check disk and permissions."


def test_what_is_open_or_not_there_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        refuse_closed(path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"file"}


def test_slices_that_cannot_be_listed_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in the place of a scan would otherwise pass for one without slices."""
    folder = tmp_path / "case"
    folder.mkdir()
    with closed(monkeypatch, folder, 0o000), pytest.raises(UserError, match="must not be looked into") as caught:
        is_scan(folder)
    assert caught.value.where == str(folder)


@MODES
@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_rights_of_the_system(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    try:
        with pytest.raises(UserError) as caught:
            refuse_closed(tmp_path / "a")
    finally:
        (tmp_path / "a").chmod(0o700)
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: {FINDING}")


def test_a_folder_that_cannot_be_written_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    check_writable(tmp_path.parent)
    for folder in (tmp_path, tmp_path / "new" / "newer"):
        with pytest.raises(UserError, match=f"{tmp_path}: the folder cannot be written into"):
            check_writable(folder)


def test_no_right_helps_in_a_file_system_that_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*mounted[:8], os.ST_RDONLY, mounted[9])))
    with pytest.raises(UserError) as caught:
        check_writable(tmp_path / "new")
    finding = "the folder cannot be written into (Read-only file system)"
    assert str(caught.value) == f"{tmp_path}: {finding}; name a folder on another file system."


def test_a_file_is_no_folder_to_write_into(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(UserError, match="file: a file, not a folder that could be written into; name another"):
            check_writable(folder)
    with pytest.raises(UserError, match="file: a file, not a folder"):
        check_target_file(tmp_path / "file" / "figures.json")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    check_target_file(tmp_path / "figures.json")
    with pytest.raises(UserError, match="exists and is not a plain file; name another file"):
        check_target_file(tmp_path)
