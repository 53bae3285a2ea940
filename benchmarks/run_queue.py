"""Train, test and record the queued recipes that fit into a time budget, one after the other.

Each run is a ``graftseg sweep`` of one recipe, which trains, tests and records it. Recorded runs are skipped. If a run
does not end in time, SIGTERM makes it save a checkpoint, and the next call resumes it.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

QUEUE = Path(__file__).with_name("queue.yaml")
STOP_SECONDS = 20
"""Time for a stopped run to save its checkpoint."""


def main() -> None:
    """Run the queue until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="time budget")
    parser.add_argument("--data", action="append", required=True, help="prepared store by name, as in acdc=STORE")
    parser.add_argument("--out", default="runs", help="folder of the runs")
    parser.add_argument("--results", default="results", help="folder of the records")
    parser.add_argument("--queue", type=Path, default=QUEUE)
    arguments = parser.parse_args()
    queue = yaml.safe_load(arguments.queue.read_text())
    stores = {pair.partition("=")[0] for pair in arguments.data}
    end = time.monotonic() + arguments.seconds
    for run in queue["runs"]:
        recipe, left = run["recipe"], end - time.monotonic()
        if recipe.partition("-")[0] not in stores or run["seconds"] > left - STOP_SECONDS:
            print(f"{recipe}: skipped, {left:.0f} s left", flush=True)
            continue
        status = run_one(sweep_command(run, queue, arguments), left - STOP_SECONDS)
        print(f"{recipe}: exit code {status}, {end - time.monotonic():.0f} s left", flush=True)


def sweep_command(run: Mapping[str, Any], queue: Mapping[str, Any], arguments: argparse.Namespace) -> list[str]:
    """Return the command of one run. The settings of the run are added to the settings of the queue."""
    options = [("--only", run["recipe"]), ("--out", arguments.out), ("--results", arguments.results)]
    options += [("--data", pair) for pair in arguments.data]
    options += [("--set", setting) for setting in (*queue["set"], *run.get("set", ()))]
    options.append(("--variant", run.get("variant", queue["variant"])))
    options.append(("--shorter", str(run.get("shorter", queue.get("shorter", 1)))))
    return [sys.executable, "-m", "graftseg", "sweep", "all", *(word for option in options for word in option)]


def run_one(command: list[str], seconds: float) -> int:
    """Run a command; stop it with SIGTERM after ``seconds`` and wait until it has saved its state."""
    process = subprocess.Popen(command)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        return process.wait()


if __name__ == "__main__":
    main()
