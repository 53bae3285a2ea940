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
class Inputs:
    """Scans, a store and runs."""

    scans: Path
    gaps: Path
    recipe: Path
    store: Path
    run: Path
    other: Path
    unlabeled: Path


@pytest.fixture(scope="module")
def inputs(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    place = tmp_path_factory.mktemp("inputs")
    gaps = Path(shutil.copytree(scans, place / "gaps"))
    (gaps / "dataset.json").unlink()
    for path in gaps.glob("labels*/*"):
        label = read_label(path)
        write_label(path, np.where(label.array == 2, 9, label.array), label.geometry)
    recipe = place / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    inputs = Inputs(scans, gaps, recipe, place / "store", place / "run", place / "other", place / "unlabeled")
    api.prepare(scans, inputs.store, recipe=recipe)
    for seed, run in enumerate((inputs.run, inputs.other)):
        api.train(recipe, inputs.store, run, overrides=[f"seed={seed}"])
        api.predict(run, scans / "imagesTs")
        api.evaluate(run / "predictions", scans / "labelsTs")
    api.predict(inputs.run, scans / "imagesUn", inputs.unlabeled)
    return inputs


def commands(inputs: Inputs, out: Path) -> dict[str, Words]:
    """Return a command for every verb that writes files."""
    maps = ("--reference", inputs.scans / "labelsTs")
    labeled = ("--data", inputs.scans, "--predictions", inputs.unlabeled)
    return {
        "check": ("check", inputs.scans, "--out", out / "check.html"),
        "fix": ("check", inputs.gaps, "--fix", out / "fixed"),
        "plan": ("plan", inputs.scans, "--out", out / "plan.yaml", "--minutes", "0.01"),
        "prepare": ("prepare", inputs.scans, "--out", out / "store", "--recipe", inputs.recipe),
        "train": ("train", inputs.recipe, "--data", inputs.store, "--out", out / "run"),
        "train scans": ("train", inputs.recipe, "--data", inputs.scans, "--out", out / "run", "--baseline"),
        "folds": ("train", inputs.recipe, "--data", inputs.store, "--out", out / "run", "--folds", "2", "--baseline"),
        "predict": ("predict", inputs.run, inputs.scans / "imagesTs", "--out", out / "maps", "--probabilities"),
        "evaluate": ("evaluate", inputs.run / "predictions", *maps, "--out", out / "scores.csv"),
        "report": ("report", inputs.run, "--out", out / "report.html"),
        "rank": ("rank", inputs.run, "--out", out / "rank.csv"),
        "onnx": ("export", "onnx", inputs.run, "--out", out / "onnx"),
        "weights": ("export", "weights", inputs.run, "--out", out / "x.safetensors"),
        "monai": ("export", "monai", inputs.run, "--out", out / "monai"),
        "nnunet": ("export", "nnunet", inputs.run, "--out", out / "Dataset501_X", *labeled),
        "compare": ("compare", inputs.run, inputs.other, "--out", out / "compared"),
        "record": ("record", inputs.run, "--results", out / "results"),
        "table": ("table", "acdc", "--results", inputs.scans, "--markdown", out / "table.md"),
    }


NAMES = [*commands(Inputs(*[Path()] * 7), Path())]
FILE_STRIDES = {"train": 7, "train scans": 17, "folds": 37}
"""These verbs write many files. After the first two, only every n-th file is tested."""


def check_no_claim_of_completeness(out: Path) -> None:
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
    assert not {"fixed", "onnx", "monai", "Dataset501_X", "plan.yaml", "x.safetensors"} & entries(out)


def continuing(words: Words, out: Path) -> Words:
    """Return the command that continues; a started training is resumed."""
    begun = (out / "run" / "recipe.yaml").is_file() or (out / "run" / "folds.json").is_file()
    return (*words, "--resume") if words[0] == "train" and begun else words


@contextmanager
def failing_write(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[Callable[[], bool]]:
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
    cli: CommandLine, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If any file cannot be written, the command prints one error, and works or resumes later."""
    for number in (0, 1, *range(2, 200, FILE_STRIDES.get(name, 1))):
        out = tmp_path / str(number)
        words = commands(inputs, out)[name]
        with failing_write(monkeypatch, number) as has_failed:
            code, _, error = cli(*words)
        if not has_failed():
            assert code == 0 and number > 0
            return
        assert code == 2 and error.count("\n") == 1 and "Traceback" not in error
        assert "No space left on device" in error and error.endswith("[write-failed]\n")
        assert str(out) in error
        check_no_claim_of_completeness(out)
        cli.works(*continuing(words, out))
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
@pytest.mark.parametrize("name", [name for name in NAMES if name not in FILE_STRIDES])
@pytest.mark.slow
def test_a_disk_that_fills_up_within_a_file(
    cli: CommandLine, inputs: Inputs, tmp_path: Path, name: str, size: int
) -> None:
    words = commands(inputs, tmp_path)[name]
    with small_disk(size):
        code, _, error = cli(*words)
    if code:
        assert code == 2 and error.count("\n") == 1 and "Traceback" not in error
        assert "File too large" in error and error.endswith("[write-failed]\n")
        check_no_claim_of_completeness(tmp_path)
    assert size > 0 or code == 2
    if code and size:
        cli.works(*words)


def test_scores_never_get_an_older_description(
    cli: CommandLine, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = commands(inputs, tmp_path)["evaluate"]
    cli.works(*words)
    before = contents(tmp_path)
    with failing_write(monkeypatch, 1):
        assert "scores.json: " in cli.fails(*words, "--protocol", "paper", code=Code.WRITE_FAILED)
    assert entries(tmp_path) == {"scores.csv", "scores.json"} and contents(tmp_path) == before


@pytest.mark.parametrize("name", ["compare", "record"])
def test_files_that_belong_together_are_written_together(
    cli: CommandLine, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If one of the files cannot be written, none is, and older versions are kept."""
    words = commands(inputs, tmp_path)[name]
    for number in range(3 if name == "compare" else 2):
        with failing_write(monkeypatch, number):
            cli.fails(*words)
        assert contents(tmp_path) == {} and not list(tmp_path.rglob("seed-*"))
    cli.works(*words)
    complete = contents(tmp_path)
    older = {path: b"older" if path.endswith(".svg") else content for path, content in complete.items()}
    for path, content in older.items():
        (tmp_path / path).write_bytes(content)
    for number in range(len(complete)):
        with failing_write(monkeypatch, number):
            cli.fails(*words)
        assert contents(tmp_path) == older
    cli.works(*words)
    assert contents(tmp_path) == complete


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
    cli: CommandLine, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    out = tmp_path / "disk" / "out"
    (out if is_there else out.parent).mkdir(parents=True)
    before = entries(tmp_path)
    with read_only(monkeypatch, tmp_path / "disk"):
        sentence = cli.fails(*commands(inputs, out)[name])
    assert "Read-only file system" in sentence and str(out) in sentence
    assert entries(tmp_path) == before
    if is_there:
        cli.works(*commands(inputs, out)[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_in_place_of_the_output_folder(cli: CommandLine, inputs: Inputs, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    assert str(tmp_path / "file") in cli.fails(*commands(inputs, tmp_path / "file")[name])
    assert contents(tmp_path) == {"file": b"precious"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_inputs_are_only_read(
    cli: CommandLine, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Scans, a store and a run on a read-only disk work if the output is on another disk."""
    with read_only(monkeypatch, inputs.run.parent, inputs.scans):
        cli.works(*commands(inputs, tmp_path / "out")[name])


def test_read_only_run(cli: CommandLine, inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that are written into the run by default."""
    before = contents(inputs.run)
    with read_only(monkeypatch, inputs.run):
        for words in (
            ("predict", inputs.run, inputs.scans / "imagesTs"),
            ("evaluate", inputs.run / "predictions", "--reference", inputs.scans / "labelsTs"),
            ("report", inputs.run),
        ):
            assert "Read-only file system" in cli.fails(*words)
    assert contents(inputs.run) == before
