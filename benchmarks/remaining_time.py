"""Measure the error of the remaining time that training prints: planned runs on phantoms, with their baselines.

Every line of progress states the remaining time of the run and of its baseline. The script notes these seconds before
they are rounded to minutes, and compares them with the time until the end of the training. Plans are shortened, and
lines are more frequent than usual, so that a short run has enough of them. With ``--clock cpu``, all times are CPU
seconds of this process, which other programs hardly change. Use it with ``OMP_NUM_THREADS=1``.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, process_time
from typing import Any, ClassVar

import graftseg
from graftseg.core.devices import busy_cores, choose_device, hardware_name
from graftseg.core.types import Split
from graftseg.data.phantom import write_phantoms
from graftseg.recipes.recipe import load_recipe
from graftseg.training import loop, recorder
from graftseg.training.clock import RemainingTime

SHAPES = {"2d": (96, 96), "3d": (40, 40, 32)}
COUNTS: dict[Split, int] = {"labeled": 5, "unlabeled": 40, "test": 0}
FIRST, LAST = 0.1, 0.9
"""The summary uses the lines between these shares of the training time. After the last, only seconds remain."""


class NotedTime(RemainingTime):
    """A remaining time that notes every prediction with the time at which it was made."""

    noted: ClassVar[list[tuple[float, float]]] = []

    def left(self, done: int, now: float, batch_share: float = 0.0) -> tuple[float, float] | None:
        """Return the remaining seconds, and note those of all runs."""
        found = super().left(done, now, batch_share)
        if found is not None:
            self.noted.append((now, found[1]))
        return found


def errors(noted: Sequence[tuple[float, float]], began: float, ended: float) -> list[dict[str, float]]:
    """Return a line per prediction. An error of 0.1 means that the predicted time is 10 % too long."""
    return [
        {
            "done": round((now - began) / (ended - began), 3),
            "predicted": round(predicted, 1),
            "actual": round(ended - now, 1),
            "error": round(predicted / (ended - now) - 1, 3),
        }
        for now, predicted in noted
    ]


def measure(kind: str, arguments: argparse.Namespace, clock: Callable[[], float]) -> dict[str, Any]:
    """Plan and train phantoms of this kind, and return the errors of all lines."""
    NotedTime.noted.clear()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_phantoms(folder / "scans", shape=SHAPES[kind], counts=COUNTS, seed=0, shift=0.5)
        device = arguments.device
        plan = graftseg.plan(folder / "scans", folder / "plan.yaml", device=device, minutes=arguments.minutes)
        busy, began, wall = busy_cores(), clock(), monotonic()
        graftseg.train(plan, folder / "scans", folder / "run", shorter=arguments.shorter, device=device)
        ended, wall = clock(), monotonic() - wall
        steps = [stage.steps for stage in load_recipe(folder / "run" / "recipe.yaml").stages]
    lines = errors(NotedTime.noted, began, ended)
    judged = [abs(line["error"]) for line in lines if FIRST <= line["done"] <= LAST]
    summary = {"largest_error": max(judged, default=None), "lines": len(judged)}
    about = {
        "steps": steps,
        "seconds": round(ended - began, 1),
        "wall_seconds": round(wall, 1),
        "other_busy_cores": busy,
    }
    return about | {"between_10_and_90_percent": summary, "all_lines": lines}


def main() -> None:
    """Measure runs on slices and on volumes, and write all lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of each plan")
    parser.add_argument("--shorter", type=int, default=10, help="divisor of the planned steps")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two lines")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="file for the result")
    arguments = parser.parse_args()
    clock = process_time if arguments.clock == "cpu" else monotonic
    replaced: list[tuple[Any, str, Any]] = [
        (recorder, "RemainingTime", NotedTime),
        (recorder, "REPORT_SECONDS", arguments.every),
        (recorder, "monotonic", clock),
        (loop, "monotonic", clock),
    ]
    for module, name, value in replaced:
        setattr(module, name, value)
    result: dict[str, Any] = {"hardware": hardware_name(choose_device(arguments.device)), "clock": arguments.clock}
    for kind in arguments.kinds:
        result[kind] = measure(kind, arguments, clock)
        print(kind, {key: value for key, value in result[kind].items() if key != "all_lines"}, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
