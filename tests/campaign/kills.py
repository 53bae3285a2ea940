"""Kills of trainings, saves, predictions and preparations: at random times, and before every change of a file."""

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tiny
from isolated import isolated
from part import Part

from graftseg import api
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.training.checkpoint import load_latest, save_checkpoint

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
"""Audit events of calls that change files. ``open`` counts only if the file is opened for writing."""
CALLS = ("write", "fsync")
"""Functions of ``os`` that have no audit event. They count, too."""
MAX_KILLS = 3
"""Maximum number of kills of one training."""


def kill_trainings(work: Path, seed: int, count: int) -> Part:
    """Kill trainings ``count`` times and resume them; compare the weights with a training that was not disturbed."""
    part = Part("kills of a training", "the resumed training has the same weights, bit for bit, and a complete log")
    train = _tiny_training(work)
    ending = isolated(partial(_counted, partial(train, work / "reference"), work))
    weights, calls = RunFolder(work / "reference").weights_file.read_bytes(), int(ending.detail)
    rng = random.Random(seed)
    for number in range(sys.maxsize):
        if part.tried >= count:
            return part
        run = work / f"run-{number}"
        kills = [_kill(rng, partial(train, run), work, calls, ending.seconds) for _ in range(rng.randint(1, MAX_KILLS))]
        last = isolated(partial(train, run))
        same = last.kind == "ok" and RunFolder(run).weights_file.read_bytes() == weights and _has_whole_log(run)
        for kill in filter(None, kills):
            part.expect(same, f"seed {seed}, training {number}, kill {kill}: {last.kind} {last.detail}")
        shutil.rmtree(run, ignore_errors=True)
    return part


def _kill(rng: random.Random, call: Callable[[], Any], folder: Path, calls: int, seconds: float) -> str | None:
    """Kill a call before a random change of a file, or after a random time. Return None if the call ended earlier."""
    if rng.random() < 0.5:
        number = rng.randint(1, calls)
        ending = isolated(partial(_die_at, number, call, folder))
        return f"at change {number}" if ending.kind == "killed" else None
    delay = rng.uniform(0, seconds)
    ending = isolated(call, seconds=delay)
    return f"after {delay:.3f} s" if ending.kind == "too slow" else None


def _has_whole_log(run: Path) -> bool:
    steps = [line["global_step"] for line in read_log(RunFolder(run).log_file)]
    return steps == list(range(1, len(steps) + 1)) and len(steps) == sum(
        stage["steps"] for stage in tiny.recipe_tree()["stages"]
    )


def _tiny_training(work: Path) -> Callable[[Path], None]:
    """Return a function that trains the tiny recipe into a folder, or resumes its training."""
    scans = tiny.write_scans(work / "scans")
    recipe = tiny.tiny_recipe()
    store = prepare(read_layout(scans), work / "store", recipe.data)

    def train(run: Path) -> None:
        api.train(recipe, store.path, run, resume=RunFolder(run).exists, device="cpu")

    return train


def kill_saves(work: Path, seed: int, count: int) -> Part:
    """Kill the saves of three checkpoints before every change of a file."""
    part = Part("kills of a save before every change of a file", "the newest or the previous checkpoint can be loaded")
    states: list[dict[str, Any]] = [{"step": step, "weights": list(range(50))} for step in (2, 4, 6)]

    def save(folder: Path) -> None:
        for state in states:
            save_checkpoint(folder, state["step"], state)

    def is_intact(folder: Path) -> bool:
        before = load_latest(folder)
        save(folder)
        after = load_latest(folder)
        return (before is None or before.state in states) and after is not None and after.state == states[-1]

    return kill_everywhere(part, work, save, is_intact)


def kill_predictions(work: Path, seed: int, count: int) -> Part:
    """Kill a prediction before every change of a file."""
    part = Part(
        "kills of a prediction before every change of a file", "the same command then writes the same label maps"
    )
    train = _tiny_training(work)
    isolated(partial(train, work / "run"))

    def predict(folder: Path) -> None:
        api.predict(work / "run", work / "scans" / "imagesTs", folder, device="cpu")

    return kill_everywhere(part, work, predict, _same_after(predict, work, ".nii.gz"))


def kill_preparations(work: Path, seed: int, count: int) -> Part:
    """Kill a preparation before every change of a file."""
    part = Part("kills of a preparation before every change of a file", "the same command then writes the same store")
    scans = tiny.write_scans(work / "scans", labeled=2, unlabeled=2, test=1)

    def write_store(folder: Path) -> None:
        prepare(read_layout(scans), folder, tiny.tiny_recipe().data)

    return kill_everywhere(part, work, write_store, _same_after(write_store, work))


def _same_after(call: Callable[[Path], None], work: Path, suffix: str = "") -> Callable[[Path], bool]:
    """Return a function that repeats a call and compares its files with the files of a call that was not disturbed.

    Only files with this suffix are compared by content.
    """
    isolated(partial(call, work / "undisturbed"))
    expected = _contents(work / "undisturbed", suffix)

    def is_same(folder: Path) -> bool:
        call(folder)
        return _contents(folder, suffix) == expected

    return is_same


def _contents(folder: Path, suffix: str) -> dict[str, bytes]:
    """Return the files below a folder, without hidden files, and the content of files with this suffix."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    visible = {name: path for name, path in files.items() if not any(part.startswith(".") for part in name.parts)}
    return {str(name): path.read_bytes() if name.name.endswith(suffix) else b"" for name, path in visible.items()}


def kill_everywhere(
    part: Part,
    work: Path,
    call: Callable[[Path], None],
    is_intact: Callable[[Path], bool],
    make_folder: Callable[[Path], object] = lambda folder: None,
) -> Part:
    """Kill a call before its first change of a file, then before the second, until it ends undisturbed."""
    for number in range(1, sys.maxsize):
        folder = work / f"killed-{number}"
        make_folder(folder)
        ending = isolated(partial(_die_at, number, partial(call, folder), folder))
        if ending.kind != "killed":
            part.expect(ending.kind == "ok", f"without a kill: {ending.detail}")
            return part
        after = isolated(partial(is_intact, folder))
        part.expect(after.kind == "ok" and after.detail is True, f"at change {number}: {after.kind} {after.detail}")
        shutil.rmtree(folder, ignore_errors=True)
    return part


def _die_at(number: int, call: Callable[[], Any], folder: Path) -> None:
    """Call in this process, and kill it right before change number ``number`` of a file below a folder."""
    _watch(folder, lambda count: os.kill(os.getpid(), signal.SIGKILL) if count == number else None)
    call()


def _counted(call: Callable[[], Any], folder: Path) -> int:
    """Call, and return the number of changes of files below a folder."""
    seen = [0]
    _watch(folder, lambda count: seen.__setitem__(0, count))
    call()
    return seen[0]


def _watch(folder: Path, notify: Callable[[int], Any]) -> None:
    """Call ``notify`` with 1, 2, ... before every change of a file below a folder, as long as this process lives."""
    count, prefix = [0], str(folder)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in CHANGES and str(values[0]).startswith(prefix) and (event != "open" or _is_write(values)):
            count[0] += 1
            notify(count[0])

    def counted(original: Callable[..., Any], handle: int, *values: Any) -> Any:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(prefix):
            count[0] += 1
            notify(count[0])
        return original(handle, *values)

    sys.addaudithook(hook)
    for name in CALLS:
        setattr(os, name, partial(counted, getattr(os, name)))


def _is_write(values: tuple[Any, ...]) -> bool:
    return bool(values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
