"""Measure what ``train --live`` costs: the CPU time of the process that serves the page.

The training itself does the same work with and without the page, because the page only reads the files of the run, once
per second. So the cost is the CPU time of the page per second of training. It is measured between the first and the
last event that a client receives, as a browser does. The start of the process is a separate number, because it does not
grow with the training. CPU times depend little on other programs. Needs the built front end (``make web``).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from time import monotonic

from graftseg.data.phantom import write_phantoms

RECIPE = "demo-2d/bcp"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the CPU time of the page per second of training, and the CPU time of a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shorter", type=int, default=1, help="divisor of the steps of the recipe")
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
        measure(folder, arguments)


def graftseg(verb: str) -> list[str]:
    """Return the beginning of a command."""
    return [sys.executable, "-m", "graftseg", verb]


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Train once with the page and print all numbers."""
    command = [*graftseg("train"), RECIPE, "--data", str(folder / "store"), "--out", str(folder / "run")]
    command += ["--shorter", str(arguments.shorter), "--live"]
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads), "BROWSER": "true"}
    training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert training.stdout is not None
    address = re.search(r"http://\S+", training.stdout.readline())
    assert address is not None
    page = int(Path(f"/proc/{training.pid}/task/{training.pid}/children").read_text().split()[0])
    samples = [(step, cpu_seconds(training.pid), cpu_seconds(page), monotonic()) for step in steps(address.group())]
    (first, *before), (last, *after) = samples[0], samples[-1]
    trained, served, seconds = (late - early for early, late in zip(before, after, strict=True))
    training.communicate()
    count = last - first
    print(f"{count} steps in {seconds:.0f} s, {len(samples)} events")
    print(f"training: {1e3 * trained / count:.3f} ms of CPU time per step")
    print(f"page:     {1e3 * served / seconds:.2f} ms of CPU time per second, {served / seconds:.2%} of a core")
    print(f"start of the page: {before[1]:.1f} s of CPU time, once")


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def steps(address: str) -> Iterator[int]:
    """Yield the step in each event about a run that is still training, and load all pictures, as a browser does."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address).read()
    origin = address.split("/?")[0]
    with opener.open(f"{origin}/api/live") as events:
        for line in events:
            content = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            for name in content.get("pictures", ()):
                opener.open(f"{origin}/api/snapshots/{content['step']}/{name}.png").read()
            if content.get("status") == "running" and content["step"]:
                yield content["step"]


if __name__ == "__main__":
    main()
