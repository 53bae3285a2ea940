"""The time of the phases of a step, and the remaining time of a run.

The remaining time is estimated from the pace of the current stage and the costs of the later work.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from graftseg.data.batches import BatchSettings
from graftseg.methods import METHODS
from graftseg.methods.costs import step_cost
from graftseg.recipes.baseline import baseline_stages
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings

KEPT = 0.7
"""Weight of the earlier mean in the moving average of the pace; the latest interval has the rest."""


class StepClock:
    """Seconds per phase, summed over steps.

    On a GPU, only every ``every``-th step is timed, because timing makes the host wait for the device. The warm-up in
    the first few steps is therefore not timed.
    """

    def __init__(self, device: torch.device, every: int = 50) -> None:
        self._device = device
        self._every = every if device.type == "cuda" else 1
        self._step = 0
        self._timed = 0
        self._inside = False
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as part of a phase; a nested phase counts toward the outer phase.

        A nested phase is not timed, because it may run during a CUDA graph capture, which forbids synchronization.
        """
        if not self._times_this_step or self._inside:
            yield
            return
        self._inside, begin = True, self._now()
        try:
            yield
        finally:
            self._inside = False
        self._seconds[name] += self._now() - begin

    def tick(self) -> None:
        """Count a finished step."""
        self._timed += self._times_this_step
        self._step += 1

    def split(self) -> dict[str, float]:
        """Return mean seconds per step, by phase."""
        return {name: seconds / max(self._timed, 1) for name, seconds in self._seconds.items()}

    @property
    def _times_this_step(self) -> bool:
        return (self._step + 1) % self._every == 0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()


@dataclass(frozen=True)
class StageWork:
    """The work of a stage. All costs are in forward passes over the labeled images of a batch.

    A step costs ``cost``, and its batch has ``images`` images. Predictions before the stage cost ``before``.
    Predictions interrupt the stage ``pauses`` times, at equal intervals but not at its end, and cost ``pause`` each
    time.
    """

    steps: int
    cost: float = 1.0
    images: int = 1
    before: float = 0.0
    pause: float = 0.0
    pauses: int = 0

    def pauses_after(self, step: int) -> int:
        """Return how many interruptions follow step ``step``, including one directly after this step."""
        interval = max(1, self.steps // (self.pauses + 1))
        return max(0, self.pauses - max(0, step - 1) // interval)


@dataclass(frozen=True)
class Pace:
    """Seconds per step of the current stage. A ``batch_share`` of each step is spent on gathering the batch."""

    seconds: float
    batch_share: float = 0.0

    def step_seconds(self, now: StageWork, other: StageWork) -> float:
        """Return the expected seconds of a step of another stage. A batch takes longer if it has more images."""
        network = (1 - self.batch_share) * other.cost / now.cost
        return self.seconds * (network + self.batch_share * other.images / now.images)

    def forward_seconds(self, now: StageWork) -> float:
        """Return the expected seconds of a forward pass over the labeled images of a batch."""
        return self.seconds * (1 - self.batch_share) / now.cost


def remaining_seconds(stages: Sequence[StageWork], done: int, pace: Pace) -> float:
    """Return the expected seconds after ``done`` steps of all stages."""
    index, step = position(stages, done)
    now, later = stages[index], stages[index + 1 :]
    left = now.steps - step
    predictions = now.pauses_after(step) * now.pause + sum(one.before + one.pauses * one.pause for one in later)
    steps = left * pace.seconds + sum(one.steps * pace.step_seconds(now, one) for one in later)
    return steps + predictions * pace.forward_seconds(now)


def position(stages: Sequence[StageWork], done: int) -> tuple[int, int]:
    """Return the index of the stage that contains step ``done`` of the run, and the number of the step in the stage."""
    step = done
    for index, stage in enumerate(stages[:-1]):
        if step <= stage.steps:
            return index, step
        step -= stage.steps
    return len(stages) - 1, step


def work_of(stage: StageSettings, batches: BatchSettings) -> StageWork:
    """Return the work of the steps of a stage, without predictions."""
    uses_unlabeled = METHODS[stage.method].uses_unlabeled
    images = batches.labeled + batches.unlabeled if uses_unlabeled else batches.labeled
    return StageWork(stage.steps, step_cost(stage.method, stage.settings, uses_unlabeled=uses_unlabeled), images)


def run_work(recipe: Recipe) -> list[StageWork]:
    """Return the work of all stages of a recipe, without predictions."""
    return [work_of(stage, recipe.batches) for stage in recipe.stages]


def baseline_work(recipe: Recipe) -> list[StageWork]:
    """Return the work of the baseline of a recipe, which starts after the first stage if both share it."""
    return [work_of(stage, recipe.batches) for stage in baseline_stages(recipe)]


class RemainingTime:
    """Measure the pace of a run, and estimate the remaining seconds of the run and of the runs that follow it.

    The first steps of a stage are not counted, because they may include a compilation. The pace is a moving average of
    the intervals between calls of ``restart``, because other programs may slow down a single interval.
    """

    def __init__(self, stages: Sequence[StageWork], later: Sequence[StageWork] = ()) -> None:
        self.stages, self._later = list(stages), list(later)
        self._stage = self._from_step = -1
        self._from_time = 0.0
        self._mean: float | None = None

    def begin(self, stage: int, done: int, now: float) -> None:
        """Start to measure at the first known step of a stage."""
        if stage != self._stage:
            self._stage, self._mean = stage, None
            self._from_step, self._from_time = done, now

    def restart(self, done: int, now: float) -> None:
        """End an interval at this step and time, and begin the next one."""
        if done > self._from_step:
            self._mean = self._seconds_per_step(done, now)
        self._from_step, self._from_time = done, now

    def _seconds_per_step(self, done: int, now: float) -> float:
        """Return the moving average with the current interval."""
        latest = (now - self._from_time) / (done - self._from_step)
        return latest if self._mean is None else KEPT * self._mean + (1 - KEPT) * latest

    def leave_out(self, seconds: float) -> None:
        """Do not count an interruption of the steps."""
        self._from_time += seconds

    def left(self, done: int, now: float, batch_share: float = 0.0) -> tuple[float, float] | None:
        """Return the seconds until the end of the run and of all later runs, or None if the pace is unknown."""
        if not self._from_step < done < sum(stage.steps for stage in self.stages):
            return None
        pace = Pace(self._seconds_per_step(done, now), batch_share)
        own, current = remaining_seconds(self.stages, done, pace), self.stages[position(self.stages, done)[0]]
        later = sum(
            one.steps * pace.step_seconds(current, one) + one.before * pace.forward_seconds(current)
            for one in self._later
        )
        return own, own + later
