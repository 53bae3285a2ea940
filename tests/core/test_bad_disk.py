"""Full and read-only disks: one error, no partial file, and the next attempt works."""

import errno
import io
import json
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import yaml
from command_line import CommandLine, contents, entries

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.predictions import read_manifest
from graftseg.data.scans import read_label, write_label
from graftseg.data.store import is_store

Words = tuple[object, ...]


@dataclass(frozen=True)
class World:
    """Scans, a store and runs."""

    scans: Path
    gaps: Path
    recipe: Path
    store: Path
    run: Path
    other: Path
    unlabeled: Path


@pytest.fixture(scope="module")
def world(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("world")
    gaps = Path(shutil.copytree(scans, place / "gaps"))
    (gaps / "dataset.json").unlink()
    for path in gaps.glob("labels*/*"):
        label = read_label(path)
        write_label(path, np.where(label.array == 2, 9, label.array), label.geometry)
    recipe = place / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    made = World(scans, gaps, recipe, place / "store", place / "run", place / "other", place / "unlabeled")
    api.prepare(scans, made.store, recipe=recipe)
    for seed, run in enumerate((made.run, made.other)):
        api.train(recipe, made.store, run, overrides=[f"seed={seed}"])
        api.predict(run, scans / "imagesTs")
        api.evaluate(run / "predictions", scans / "labelsTs")
    api.predict(made.run, scans / "imagesUn", made.unlabeled)
    return made


def commands(world: World, out: Path) -> dict[str, Words]:
    """Return a command for every verb that writes files."""
    maps = ("--reference", world.scans / "labelsTs")
    labeled = ("--data", world.scans, "--predictions", world.unlabeled)
    return {
        "check": ("check", world.scans, "--out", out / "check.html"),
        "fix": ("check", world.gaps, "--fix", out / "mended"),
        "plan": ("plan", world.scans, "--out", out / "plan.yaml", "--minutes", "0.01"),
        "prepare": ("prepare", world.scans, "--out", out / "store", "--recipe", world.recipe),
        "train": ("train", world.recipe, "--data", world.store, "--out", out / "run"),
        "train scans": ("train", world.recipe, "--data", world.scans, "--out", out / "run", "--baseline"),
        "folds": ("train", world.recipe, "--data", world.store, "--out", out / "run", "--folds", "2", "--baseline"),
        "predict": ("predict", world.run, world.scans / "imagesTs", "--out", out / "maps", "--probabilities"),
        "evaluate": ("evaluate", world.run / "predictions", *maps, "--out", out / "scores.csv"),
        "report": ("report", world.run, "--out", out / "report.html"),
        "rank": ("rank", world.run, "--out", out / "rank.csv"),
        "onnx": ("export", "onnx", world.run, "--out", out / "onnx"),
        "weights": ("export", "weights", world.run, "--out", out / "x.safetensors"),
        "monai": ("export", "monai", world.run, "--out", out / "monai"),
        "nnunet": ("export", "nnunet", world.run, "--out", out / "Dataset501_X", *labeled),
        "compare": ("compare", world.run, world.other, "--out", out / "compared"),
        "record": ("record", world.run, "--results", out / "results"),
        "table": ("table", "acdc", "--results", world.scans, "--markdown", out / "table.md"),
    }


NAMES = [*commands(World(*[Path()] * 7), Path())]
LONG = {"train": 7, "train scans": 17, "folds": 37}
"""These verbs write many files; only every n-th file is tested."""


def nothing_claims_to_be_whole(out: Path) -> None:
    """Check that no file of a failed command claims to be complete."""
    for name in entries(out):
        path = out / name
        if path.name == "run.json" and json.loads(path.read_text()).get("status") == "finished":
            assert (path.parent / "model.safetensors").is_file() and (path.parent / "recipe.yaml").is_file()
        if path.name == "manifest.json" and path.parent.name == "maps":
            manifest = read_manifest(path.parent, "")
            assert manifest is not None and not manifest.is_complete
        if path.name == "manifest.json" and is_store(path.parent):
            api.info(path.parent)
    assert not {"mended", "onnx", "monai", "Dataset501_X", "plan.yaml", "x.safetensors"} & entries(out)


def again(words: Words, out: Path) -> Words:
    """Return the command that continues; a started training is resumed."""
    begun = (out / "run" / "recipe.yaml").is_file() or (out / "run" / "folds.json").is_file()
    return (*words, "--resume") if words[0] == "train" and begun else words


@contextmanager
def lost_write(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[Callable[[], bool]]:
    """Make writing the n-th file fail; yield a function that returns whether it failed."""
    flushed = os.fsync
    seen: list[int] = []

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return
        seen.append(handle)
        if len(seen) == number + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flushed(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        yield lambda: len(seen) > number


@pytest.mark.parametrize("name", [name for name in NAMES if name != "onnx"])
@pytest.mark.slow
def test_a_full_disk_at_every_file(
    cli: CommandLine, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If any file cannot be written, the command prints one error, and works or resumes later."""
    for number in (0, 1, *range(2, 200, LONG.get(name, 1))):
        out = tmp_path / str(number)
        words = commands(world, out)[name]
        with lost_write(monkeypatch, number) as happened:
            code, _, error = cli(*words)
        if not happened():
            assert code == 0 and number > 0
            return
        assert code == 2 and error.count("\n") == 1 and "Traceback" not in error
        assert "No space left on device" in error and error.endswith("[write-failed]\n")
        assert str(out) in error
        nothing_claims_to_be_whole(out)
        cli.works(*again(words, out))
    pytest.fail("the command writes more files than expected")


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Limit the size of all files, also for writers outside Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 6000])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
@pytest.mark.slow
def test_a_disk_that_fills_up_within_a_file(
    cli: CommandLine, world: World, tmp_path: Path, name: str, size: int
) -> None:
    words = commands(world, tmp_path)[name]
    with small_disk(size):
        code, _, error = cli(*words)
    if code:
        assert code == 2 and error.count("\n") == 1 and "Traceback" not in error
        assert "File too large" in error and error.endswith("[write-failed]\n")
        nothing_claims_to_be_whole(tmp_path)
    assert size > 0 or code == 2
    if code and size:
        cli.works(*words)


def test_scores_never_get_an_older_description(
    cli: CommandLine, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = commands(world, tmp_path)["evaluate"]
    cli.works(*words)
    before = contents(tmp_path)
    with lost_write(monkeypatch, 1):
        assert "scores.json: " in cli.fails(*words, "--protocol", "paper", code=Code.WRITE_FAILED)
    assert entries(tmp_path) == {"scores.csv", "scores.json"} and contents(tmp_path) == before


@pytest.mark.parametrize("name", ["compare", "record"])
def test_files_that_belong_together_are_written_together(
    cli: CommandLine, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If one of the files cannot be written, none is, and older versions are kept."""
    words = commands(world, tmp_path)[name]
    for number in range(3 if name == "compare" else 2):
        with lost_write(monkeypatch, number):
            cli.fails(*words)
        assert contents(tmp_path) == {} and not list(tmp_path.rglob("seed-*"))
    cli.works(*words)
    whole = contents(tmp_path)
    older = {path: b"older" if path.endswith(".svg") else content for path, content in whole.items()}
    for path, content in older.items():
        (tmp_path / path).write_bytes(content)
    for number in range(len(whole)):
        with lost_write(monkeypatch, number):
            cli.fails(*words)
        assert contents(tmp_path) == older
    cli.works(*words)
    assert contents(tmp_path) == whole


@contextmanager
def read_only(monkeypatch: pytest.MonkeyPatch, *roots: Path) -> Iterator[None]:
    """Simulate a read-only disk, also for root."""

    def guarded(function: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            place = Path(path).resolve() if isinstance(path, str | os.PathLike) else None
            if place and any(place.is_relative_to(root) for root in roots) and writes(*arguments, **options):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return function(path, *arguments, **options)

        return call

    def always(*_: Any, **__: Any) -> bool:
        return True

    def by_flags(flags: int, *_: Any, **__: Any) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def by_mode(mode: str = "r", *_: Any, **__: Any) -> bool:
        return bool(set(mode) & set("wax+"))

    with monkeypatch.context() as patched:
        for name in ("mkdir", "unlink", "rename", "replace", "chmod", "rmdir"):
            patched.setattr(os, name, guarded(getattr(os, name), always))
        patched.setattr(os, "open", guarded(os.open, by_flags))
        patched.setattr(io, "open", guarded(io.open, by_mode))
        yield


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "absent"])
@pytest.mark.slow
def test_read_only_output(
    cli: CommandLine, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    out = tmp_path / "disk" / "out"
    (out if is_there else out.parent).mkdir(parents=True)
    before = entries(tmp_path)
    with read_only(monkeypatch, tmp_path / "disk"):
        sentence = cli.fails(*commands(world, out)[name])
    assert "Read-only file system" in sentence and str(out) in sentence
    assert entries(tmp_path) == before
    if is_there:
        cli.works(*commands(world, out)[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_in_place_of_the_output_folder(cli: CommandLine, world: World, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / "file") in cli.fails(*commands(world, tmp_path / "file")[name])
    assert contents(tmp_path) == {"file": b"precious"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_inputs_are_only_read(
    cli: CommandLine, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Scans, a store and a run on a read-only disk work if the output is on another disk."""
    with read_only(monkeypatch, world.run.parent, world.scans):
        cli.works(*commands(world, tmp_path / "out")[name])


def test_read_only_run(cli: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that are written into the run by default."""
    before = contents(world.run)
    with read_only(monkeypatch, world.run):
        for words in (
            ("predict", world.run, world.scans / "imagesTs"),
            ("evaluate", world.run / "predictions", "--reference", world.scans / "labelsTs"),
            ("report", world.run),
        ):
            assert "Read-only file system" in cli.fails(*words)
    assert contents(world.run) == before
