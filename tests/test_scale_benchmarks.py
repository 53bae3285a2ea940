"""Benchmarks of ranks and archives with minimal sizes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graftseg.core.files import read_json

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.slow


def run(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """Run a benchmark and return what it writes."""
    out = folder / "out.json"
    command = [sys.executable, str(BENCHMARKS / name), *options, "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    facts: dict[str, Any] = read_json(out)
    return facts


def test_two_ranks(tmp_path: Path) -> None:
    facts = run("two_ranks.py", tmp_path, "--steps", "1", "--rounds", "1", "--side", "32", "--width", "2")
    (times,) = facts["seconds per step"]
    assert times.keys() == {"one process", "two ranks, sync", "two ranks, local"}
    assert min(times.values()) > 0


def test_archive(tmp_path: Path) -> None:
    first, second = run("archive.py", tmp_path, "--scans", "20")["passes"]
    assert (first["skipped"], second["skipped"]) == (0, 20)
    assert len(first["MiB after each tenth"]) == 10


def test_prediction_speed(tmp_path: Path) -> None:
    pytest.importorskip("monai")
    sizes = "--shape 48 48 48 --patch 32 32 32 --width 2 --steps 1 --rounds 1"
    facts = run("prediction_speed.py", tmp_path, *sizes.split())
    assert facts["rounds"].keys() >= {"graftseg", "MONAI"} and facts["graftseg against"]["MONAI"]
