"""Measure what ``train --live`` costs: the step rate with and without the page, and the CPU time of the page.

The same training runs in turn with and without the page, in alternating order. The page only reads the files of the
run, once per second, so the cost is below the noise of a busy machine: close other programs. The step rate contains the
start of the page. The CPU time of the page is measured between the first and the last event that a client receives, as
a browser does. The start of the process is a separate number, because it does not grow with the training. Needs the
built front end (``make web``).
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from http.cookiejar import CookieJar
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from time import monotonic, sleep
from typing import Any

import torch
from scipy.stats import t as student

from graftseg.core.devices import hardware_name
from graftseg.core.files import write_json
from graftseg.core.software import versions
from graftseg.data.phantom import write_phantoms

RECIPE = "demo-2d/bcp"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Train in turn with and without the page, print all numbers, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shorter", type=int, default=1, help="divisor of the steps of the recipe")
    parser.add_argument("--threads", type=int, default=1, help="threads of the training")
    parser.add_argument("--rounds", type=int, default=10, help="trainings with and without the page; at least 2")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
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
        rounds = [measured_round(folder, arguments, number) for number in range(arguments.rounds)]
    result = summary(rounds) | {"recipe": RECIPE, "shorter": arguments.shorter, "threads": arguments.threads}
    print(f"ratio {result['ratio']:.4f}, 95 % interval {result['interval'][0]:.4f} to {result['interval'][1]:.4f}")
    if arguments.out is not None:
        about = {"hardware": hardware_name(torch.device("cpu")), "cores": os.cpu_count(), "versions": versions()}
        write_json(arguments.out, result | about | {"rounds": rounds})


def graftseg(verb: str) -> list[str]:
    """Return the beginning of a command."""
    return [sys.executable, "-m", "graftseg", verb]


def measured_round(folder: Path, arguments: argparse.Namespace, number: int) -> dict[str, float]:
    """Train once with and once without the page. The order alternates, because the speed of a machine may drift."""
    rates = {}
    page: dict[str, float] = {}
    for live in (True, False) if number % 2 else (False, True):
        run = folder / f"run-{number}-{'live' if live else 'plain'}"
        command = [*graftseg("train"), RECIPE, "--data", str(folder / "store"), "--out", str(run)]
        command += ["--shorter", str(arguments.shorter)]
        environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads), "BROWSER": "true"}
        if live:
            page = train_with_page(command, environment)
        else:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        rates[live] = 1 / sum(json.loads((run / "run.json").read_text())["seconds_per_step"].values())
    print(f"round {number + 1}: {rates[False]:.2f} steps/s without the page, {rates[True]:.2f} with it; page: {page}")
    return {"steps_per_second": rates[False], "steps_per_second_live": rates[True], **page}


def train_with_page(command: Sequence[str], environment: dict[str, str]) -> dict[str, float]:
    """Train with the page and a client that loads everything. Return the CPU time of the training and of the page."""
    training = subprocess.Popen(
        [*command, "--live"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert training.stdout is not None
    address = re.search(r"http://\S+", training.stdout.readline())
    assert address is not None
    page = int(Path(f"/proc/{training.pid}/task/{training.pid}/children").read_text().split()[0])
    samples = [(step, cpu_seconds(training.pid), cpu_seconds(page), monotonic()) for step in steps(address.group())]
    (first, *before), (last, *after) = samples[0], samples[-1]
    trained, served, seconds = (late - early for early, late in zip(before, after, strict=True))
    training.communicate()
    stop(page)
    return {
        "training_cpu_ms_per_step": round(1e3 * trained / (last - first), 3),
        "page_cpu_ms_per_second": round(1e3 * served / seconds, 2),
        "page_start_cpu_seconds": round(before[1], 1),
    }


def stop(page: int) -> None:
    """End the page, which otherwise waits some seconds for browsers and so disturbs the next training."""
    os.kill(page, signal.SIGINT)
    while Path(f"/proc/{page}").exists():
        sleep(0.1)


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the geometric mean over rounds of the step rate with the page divided by the rate without it.

    The interval is Student's interval of the logarithm of the ratio.
    """
    logs = [log(each["steps_per_second_live"] / each["steps_per_second"]) for each in rounds]
    center = fmean(logs)
    reach = float(student.ppf(0.975, len(logs) - 1)) * stdev(logs) / sqrt(len(logs))
    page = ("training_cpu_ms_per_step", "page_cpu_ms_per_second", "page_start_cpu_seconds")
    means = {name: round(fmean(each[name] for each in rounds), 3) for name in page}
    return {"ratio": exp(center), "interval": [exp(center - reach), exp(center + reach)], **means}


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
