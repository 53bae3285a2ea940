"""Pipes, devices and links to /proc in place of every file that a command reads: no command may wait for them."""

import os
import shutil
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import tiny
from command import command
from isolated import Ending, isolated
from part import Part

from graftseg import api
from graftseg.core.run_folder import RunFolder
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare

PROMISE = "every command ends, with a result or an error message, and the other scans are predicted"
SECONDS, MIB = 60.0, 1024.0
"""Limits of one command. It takes less than a second, but the machine may be busy."""
KINDS = ("pipe", "link to a pipe", "/dev/zero", "/proc/kmsg")
"""What replaces a file. The last two are links. /proc/kmsg is a regular file of size 0 whose end is never reached."""
RUN, STOPPED, STORE, SCANS, MAPS = "run", "stopped", "store", "scans", "maps"
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "predict": (("predict", RUN, f"{SCANS}/imagesTs", "--out", "new"), (RUN, SCANS)),
    "predict again": (("predict", RUN, f"{SCANS}/imagesTs", "--out", MAPS), (RUN, SCANS, MAPS)),
    "train --resume": (("train", "tiny.yaml", "--data", STORE, "--out", STOPPED, "--resume"), (STOPPED, STORE)),
    "report": (("report", RUN), (RUN, STORE)),
    "test": (("test", RUN, SCANS), (RUN, STORE, SCANS)),
    "rank": (("rank", RUN, "--data", SCANS), (RUN, STORE, SCANS)),
}
"""The words of each command, without its device, and the folders that it reads."""


def special_files(work: Path, seed: int, count: int) -> Part:
    """Replace a file and run a command, ``count`` times, or less often if there are fewer combinations."""
    part, intact = Part("special files", PROMISE), work / "intact"
    _write_folders(intact)
    attempts = [
        (file, kind, name)
        for name, (_, folders) in COMMANDS.items()
        for folder in folders
        for file in sorted(path.relative_to(intact) for path in (intact / folder).rglob("*") if path.is_file())
        for kind in KINDS
    ]
    endings = Counter[str]()
    for file, kind, name in Random(seed).sample(attempts, min(count, len(attempts))):
        folder = work / "folder"
        shutil.copytree(intact, folder)
        replace(folder / file, kind)
        ending = isolated(partial(_run, folder, name), seconds=SECONDS, mib=MIB)
        failure = _failure(folder, file, name, ending)
        part.expect(failure is None, f"{kind} in place of {file}, {name}: {failure}")
        endings["result" if ending.kind == "ok" and ending.detail[0] == 0 else "error"] += 1
        shutil.rmtree(folder)
    part.notes = {"combinations": f"{len(attempts)}", "commands with a result": f"{endings['result']}"}
    return part


def replace(path: Path, kind: str) -> None:
    """Put a pipe, a device or a link in place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe":
        pipe = path.parent / f".pipe-{path.name}"
        os.mkfifo(pipe)
        path.symlink_to(pipe.name)
    else:
        path.symlink_to(kind)


def _write_folders(folder: Path) -> None:
    """Write scans, a store, a finished run with predictions and scores, and a run that was killed at its end."""
    scans = tiny.write_scans(folder / SCANS, labeled=2, unlabeled=2, test=2)
    recipe = tiny.tiny_recipe()
    recipe.save(folder / "tiny.yaml")
    store = prepare(read_layout(scans), folder / STORE, recipe.data)
    isolated(partial(_train_until, RunFolder(folder / STOPPED).weights_file.name, recipe, store.path, folder / STOPPED))
    # in this process, so that the commands, in forked processes, need not import the packages again
    api.train(recipe, store.path, folder / RUN, device="cpu")
    api.test(folder / RUN, device="cpu")
    api.rank(folder / RUN, scans, device="cpu")
    api.predict(folder / RUN, folder / SCANS / "imagesTs", folder / MAPS, device="cpu")


def _train_until(name: str, recipe: Any, store: Path, run: Path) -> None:
    """Train, and kill this process before it writes the file ``name``."""

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event == "os.rename" and Path(os.fsdecode(values[1])).name == name:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    api.train(recipe, store, run, device="cpu")


def _run(folder: Path, name: str) -> tuple[int, str]:
    """Run a command in a folder. Return its exit code and the end of what it printed on stderr."""
    os.chdir(folder)
    words, _ = COMMANDS[name]
    printed = command(*words, *(() if name == "report" else ("--device", "cpu")))
    return printed.code, printed.error.strip()[-500:]


def _failure(folder: Path, file: Path, name: str, ending: Ending) -> str | None:
    """Return why an attempt failed, or None if the promise was kept."""
    if ending.kind != "ok":
        return f"{ending.kind} {ending.detail}"
    code, error = ending.detail
    if code not in (0, 2) or "OUT_OF_MEMORY" in error:
        return f"exit code {code}, {error}"
    out = folder / ("new" if name == "predict" else MAPS)
    if name.startswith("predict") and file.parts[0] == SCANS:
        images = {path.name for path in (folder / SCANS / "imagesTs").iterdir() if not path.name.startswith(".")}
        others = {image.replace("_0000", "") for image in images - {file.name}}
        if missing := sorted(others - {path.name for path in out.iterdir()}):
            return f"{missing[0]} was not predicted: {error}"
    return None
