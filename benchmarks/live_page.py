"""Measure what the live page costs: train the same steps with and without ``--live`` in turn, and compare the times.

A client reads the events of the page during the training, as a browser does. Needs the built front end (``make web``).
Close other programs before you measure.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import median

from graftseg.data.phantom import write_phantoms

RECIPE = "demo-2d/bcp"


def main() -> None:
    """Print the time of a step without and with the page, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shorter", type=int, default=2, help="divisor of the steps of the recipe")
    parser.add_argument("--threads", type=int, default=1, help="threads of the training")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_phantoms(
            folder / "scans", shape=(64, 64), counts={"labeled": 4, "unlabeled": 40, "test": 0}, seed=0, shift=0.5
        )
        subprocess.run(
            [*graftseg("prepare"), str(folder / "scans"), "--out", str(folder / "store"), "--recipe", RECIPE],
            check=True,
        )
        times: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * arguments.rounds):
            is_live = number % 2 == 1
            times[is_live].append(train(folder, number, arguments, is_live=is_live))
    plain, live = median(times[False]), median(times[True])
    print(f"{1000 * plain:.2f} ms without, {1000 * live:.2f} ms with the page, ratio {live / plain:.4f}")
    print(f"all: {[round(1000 * one, 2) for one in times[False]]} and {[round(1000 * one, 2) for one in times[True]]}")


def graftseg(verb: str) -> list[str]:
    """Return the beginning of a command."""
    return [sys.executable, "-m", "graftseg", verb]


def train(folder: Path, number: int, arguments: argparse.Namespace, *, is_live: bool) -> float:
    """Train once and return the seconds per step of the last stage."""
    run = folder / f"run-{number}"
    command = [*graftseg("train"), RECIPE, "--data", str(folder / "store"), "--out", str(run)]
    command += ["--shorter", str(arguments.shorter), *(["--live"] if is_live else [])]
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads), "BROWSER": "true"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    if is_live:
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        threading.Thread(target=follow, args=(address.group(),), daemon=True).start()
    process.stdout.read()
    process.wait()
    facts = json.loads((run / "run.json").read_text())
    return float(facts["wall_seconds"]) / int(facts["steps"])


def follow(address: str) -> None:
    """Read the events of a page until they end."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address).read()
    with opener.open(f"{address.split('/?')[0]}/api/live") as events:
        while events.readline():
            pass


if __name__ == "__main__":
    main()
