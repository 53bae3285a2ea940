"""Long training and many predictions in one process: memory does not grow, and no file stays open."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from part import Part
from torch.optim.optimizer import register_optimizer_step_post_hook

from graftseg import api

PROMISE = "after a warm-up, memory grows by at most 1 MiB in 1,000 steps, and the number of open files is constant"
MIB = 2**20
MAX_GROWTH = 1.0  # MiB in 1,000 steps, and in 50 predictions, which are counted as 1,000 steps
STEPS_PER_PREDICTION = 20
INTERVAL = 100
WARM_UP = 0.25
"""Share of the samples, from the start, that is not measured."""


def soak(work: Path, seed: int, count: int) -> Part:
    """Train for ``count`` steps with validation, then make one prediction for every 20 steps."""
    part = Part("soak", PROMISE)
    scans = tiny.write_scans(work / "scans")
    with _samples_in_training() as samples:
        api.train(_recipe(seed, count), scans, work / "run", device="cpu")
    _judge(part, f"{count} steps", "1,000 steps", samples)
    predictions: list[tuple[int, float, int]] = []
    for number in range(count // STEPS_PER_PREDICTION):
        api.predict(work / "run", scans / "imagesTs", work / "maps", device="cpu")
        if (number + 1) * STEPS_PER_PREDICTION % INTERVAL == 0:
            predictions.append(_sample((number + 1) * STEPS_PER_PREDICTION))
    _judge(
        part, f"{count // STEPS_PER_PREDICTION} predictions", f"{1000 // STEPS_PER_PREDICTION} predictions", predictions
    )
    return part


def _recipe(seed: int, steps: int) -> Any:
    tree = tiny.recipe_tree()
    tree["stages"][0]["steps"], tree["stages"][1]["steps"] = steps // 5, steps - steps // 5
    tree["batches"]["validation_cases"] = 1
    selection = {"protocol": "val", "every": INTERVAL}
    loop = {"log_every": 20, "checkpoint_every": 500, "snapshots": 1, "tensorboard": False}
    return tiny.tiny_recipe(
        **{key: tree[key] for key in ("stages", "batches")}, selection=selection, loop=loop, seed=seed
    )


@contextmanager
def _samples_in_training() -> Iterator[list[tuple[int, float, int]]]:
    """Yield a list that gets the memory and the open files after every ``INTERVAL`` steps of an optimizer."""
    samples: list[tuple[int, float, int]] = []
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps % INTERVAL == 0:
            samples.append(_sample(steps))

    hook = register_optimizer_step_post_hook(count)
    try:
        yield samples
    finally:
        hook.remove()


def _sample(step: int) -> tuple[int, float, int]:
    """Return the step, the resident memory in MiB and the number of open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return step, pages * resource.getpagesize() / MIB, len(list(Path("/proc/self/fd").iterdir()))


def _judge(part: Part, what: str, unit: str, samples: list[tuple[int, float, int]]) -> None:
    """Compare memory and files after the warm-up. Each sample of the open files is an attempt."""
    measured = samples[int(len(samples) * WARM_UP) :]
    if len(measured) < 3:
        part.expect(False, f"{what}: too few to measure a growth")
        return
    growth = growth_per_1000([step for step, _, _ in measured], [memory for _, memory, _ in measured])
    part.expect(growth <= MAX_GROWTH, f"{what}: memory grows by {growth:.2f} MiB per {unit}")
    files = measured[0][2]
    for step, _, now in measured[1:]:
        part.expect(now == files, f"{what}: {now} instead of {files} open files after step {step}")
    part.notes[what] = f"{growth:+.2f} MiB per {unit}, {measured[-1][1]:.0f} MiB, {files} open files"


def growth_per_1000(steps: list[int], memory: list[float]) -> float:
    """Return the slope of the line through the medians of the first and the last third of the samples."""
    third = max(1, len(steps) // 3)
    (first, last), (low, high) = (
        (float(np.median(values[:third])), float(np.median(values[-third:]))) for values in (steps, memory)
    )
    return (high - low) / (last - first) * 1000
