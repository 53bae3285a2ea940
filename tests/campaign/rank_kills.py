"""Kills of random ranks of a training on two devices, at random times."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import tiny
from part import Part

from graftseg.core.run_folder import RunFolder, read_log
from graftseg.recipes.recipe import parse_recipe

STEPS = (100, 200)
KILLS = 3
"""Number of kills of one training, which is the number of restarts."""


def kill_ranks(work: Path, seed: int, count: int) -> Part:
    """Kill ranks ``count`` times; compare the weights with a training on two devices that was not disturbed."""
    part = Part("kills of a rank", "the ranks restart by themselves and end with the same weights, bit for bit")
    command = command_for(work)
    began = time.monotonic()
    subprocess.run([*command, "--out", str(work / "reference")], check=True, capture_output=True)
    seconds, weights = time.monotonic() - began, RunFolder(work / "reference").weights_file.read_bytes()
    rng = random.Random(seed)
    for number in range(sys.maxsize):
        if part.tried >= count:
            return part
        run = work / f"run-{number}"
        process = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        kills = [_kill(rng, process, seconds) for _ in range(KILLS)]
        errors = process.communicate()[1].decode()
        weights_file = RunFolder(run).weights_file
        same = process.returncode == 0 and weights_file.read_bytes() == weights and _has_whole_log(run)
        for kill in filter(None, kills):
            part.expect(same, f"seed {seed}, training {number}, {kill}: status {process.returncode}, {errors[-500:]}")
        shutil.rmtree(run, ignore_errors=True)
    return part


def command_for(work: Path) -> list[str]:
    """Write scans and a recipe; return a command that trains on two devices, without its option ``--out``."""
    scans, tree = tiny.write_scans(work / "scans"), tiny.recipe_tree()
    tree["batches"] |= {"labeled": 4, "unlabeled": 4}
    tree["stages"] = [stage | {"steps": steps} for stage, steps in zip(tree["stages"], STEPS, strict=True)]
    tree["loop"]["checkpoint_every"] = 20
    parse_recipe(tree, "tiny").save(work / "tiny.yaml")
    words = ["train", str(work / "tiny.yaml"), "--data", str(scans), "--device", "cpu", "--devices", "2"]
    return [sys.executable, "-m", "graftseg", *words]


def _kill(rng: random.Random, process: "subprocess.Popen[bytes]", seconds: float) -> str | None:
    """Kill a random rank after a random time. Return None if the training ended earlier."""
    delay, rank = rng.uniform(0, seconds), rng.randrange(2)
    deadline = time.monotonic() + delay
    while time.monotonic() < deadline or len(ranks_of(process.pid)) < 2:
        if process.poll() is not None:
            return None
        time.sleep(0.05)
    pid = ranks_of(process.pid)[rank]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return f"kill of rank {rank} after {delay:.1f} s"


def ranks_of(launcher: int) -> list[int]:
    """Return the processes that a launcher started, rank 0 first. A process that ended is left out."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError, StopIteration):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == launcher and fields[0] != "Z":
                variables = (folder / "environ").read_bytes().split(b"\0")
                rank = next(one for one in variables if one.startswith(b"RANK="))
                found[int(rank.removeprefix(b"RANK="))] = int(folder.name)
    return [pid for _, pid in sorted(found.items())]


def _has_whole_log(run: Path) -> bool:
    steps = [line["global_step"] for line in read_log(RunFolder(run).log_file)]
    return steps == list(range(1, sum(STEPS) + 1))
