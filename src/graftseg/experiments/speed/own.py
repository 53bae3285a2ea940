"""This package's step: whole, as a training runs it, and its phases one by one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graftseg.core.errors import StoppedError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.experiments.speed.stopwatch import Mark, Split, Stopwatch
from graftseg.experiments.speed.subject import Subject
from graftseg.methods import Method
from graftseg.methods.teachers import SelfTraining
from graftseg.ops import components, pseudo_labels
from graftseg.ops.optimizers import build_optimizer
from graftseg.recipes.settings import LoopSettings
from graftseg.training import loop as engine
from graftseg.training.clock import StepClock
from graftseg.training.loop import Stage
from graftseg.training.recorder import Recorder
from graftseg.training.step import Stepper

NEVER = 10**9


def read_batches(subject: Subject) -> Batches:
    """The subject's scans, in the memory of the device."""
    return Batches(subject.store, subject.recipe.batches, seed=subject.recipe.seed, device=subject.device)


def time_whole(
    subject: Subject, batches: Batches, folder: Path, warm_up: int, steps: int, every: int
) -> tuple[float, Method]:
    """Seconds a step of a training into a new folder, and its method.

    It reads its losses every so many steps. The host of a GPU runs ahead, by more or by fewer steps, so that the time
    is taken between the ends of two steps on the device itself.
    """
    stage = subject.stage.model_copy(update={"steps": warm_up + steps})
    ends: list[Mark] = []

    class Noting(Recorder):
        """Marks where the timed steps begin and end."""

        def add(self, place: dict[str, Any], *args: Any) -> None:
            """Set a mark, then go on as always."""
            if place["step"] in (warm_up, warm_up + steps):
                ends.append(Mark(subject.device))
            super().add(place, *args)

    if subject.way.compiled:
        # compiled code is kept by function, and only so many versions of it
        torch.compiler.reset()
    with _replaced(engine, "Recorder", Noting):
        loop = _quiet(subject, every)
        outcome = engine.fit([Stage(stage, subject.build)], batches, RunFolder(folder), loop, device=subject.device)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps, is_saved=False)
    begin, end = ends
    return end.seconds_since(begin) / steps, outcome.method


def time_phases(subject: Subject, batches: Batches, method: Method, warm_up: int, steps: int) -> Split:
    """Seconds a step by phase, each ended before the next begins; the method is one that a training has left.

    Its networks stay compiled if they are, and nothing is captured, since a graph has no phases.
    """
    watch, stage = Stopwatch(subject.device), subject.stage
    optimizers = {
        name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.trained_modules
    }
    way = replace(subject.way, compiled=False, captured=False)
    stepper = Stepper(method, optimizers, stage, batches, way, _PhaseClock(subject.device, watch), index=0)
    labelling = watch.timed("teacher", vars(SelfTraining)["_pseudo_label"])
    cleaning = watch.timed("components", components.largest_components)
    with (
        _replaced(SelfTraining, "_pseudo_label", labelling),
        _replaced(pseudo_labels, "largest_components", cleaning),
    ):
        for step in range(warm_up + steps):
            if step == warm_up:
                watch.reset()
            stepper(step)
    return watch.per_step(steps)


class _PhaseClock(StepClock):
    """Times every step by a stopwatch."""

    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        super().__init__(device)
        self._watch = watch

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """A phase of the step under its name here."""
        return self._watch.phase("student forward" if name == "forward" else name)


def _quiet(subject: Subject, every: int) -> LoopSettings:
    """The recipe's loop, without pictures and checkpoints on the way, and run as a long training is."""
    quiet = {"checkpoint_every": NEVER, "checkpoint_seconds": float(NEVER), "snapshots": 0, "tensorboard": False}
    way = {"compiled": subject.way.compiled, "captured": subject.way.captured}
    return subject.recipe.loop.model_copy(update={**quiet, **way, "log_every": every})


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value under a name of a module or class, for as long as the block lasts."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
