"""Time a complete step of this package, as in a training run, and each phase of the step."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from graftseg.core.errors import StoppedError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.experiments.speed.instruments import Mark, PhaseSeconds, Stopwatch
from graftseg.experiments.speed.subject import Subject
from graftseg.methods import Method
from graftseg.methods.teachers import SelfTraining
from graftseg.ops import components, pseudo_labels
from graftseg.training import loop as engine
from graftseg.training.clock import StepClock
from graftseg.training.loop import Stage
from graftseg.training.recorder import Recorder
from graftseg.training.step import Stepper

NEVER = 10**9  # an interval in steps or seconds, longer than any measurement


def time_whole(
    subject: Subject, batches: Batches, folder: Path, warm_up: int, steps: int, every: int
) -> tuple[float, Method]:
    """Train into a new folder, and return the seconds per step and the trained method.

    The loss is read every ``every`` steps. The host runs ahead of a GPU by a varying number of steps, so the time is
    measured on the device, between the ends of two steps.
    """
    stage = subject.stage.model_copy(update={"steps": warm_up + steps})
    ends: list[Mark] = []

    class TimedRecorder(Recorder):
        """A recorder that marks the beginning and the end of the timed steps."""

        def add(self, place: dict[str, Any], *args: Any) -> None:
            """Record a finished step. Set a mark after the last warm-up step and after the last timed step."""
            if place["step"] in (warm_up, warm_up + steps):
                ends.append(Mark(subject.device))
            super().add(place, *args)

    if subject.mode.compiled:
        # discard earlier compilations, because torch limits the number of compiled versions of a function
        torch.compiler.reset()
    # write no pictures and no checkpoints; use the modes of the full training run, because a short run chooses others
    changes = {"checkpoint_every": NEVER, "checkpoint_seconds": float(NEVER), "snapshots": 0, "tensorboard": False}
    changes |= {"compiled": subject.mode.compiled, "captured": subject.mode.captured, "log_every": every}
    loop = subject.recipe.loop.model_copy(update=changes)
    with patch.object(engine, "Recorder", TimedRecorder):
        outcome = engine.fit([Stage(stage, subject.build)], batches, RunFolder(folder), loop, device=subject.device)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps, is_saved=False)
    begin, end = ends
    return end.seconds_since(begin) / steps, outcome.method


def time_phases(subject: Subject, batches: Batches, method: Method, warm_up: int, steps: int) -> PhaseSeconds:
    """Return the seconds per step of each phase of a trained method, with a synchronization after each phase.

    Networks that are already compiled stay compiled. CUDA graphs are off, because phases in a graph cannot be timed.
    """
    watch, stage = Stopwatch(subject.device), subject.stage
    optimizers = engine.build_optimizers(method, stage)
    mode = replace(subject.mode, compiled=False, captured=False)
    stepper = Stepper(method, optimizers, stage, batches, mode, _PhaseClock(subject.device, watch), index=0)
    labeling = watch.phase("teacher")(vars(SelfTraining)["_pseudo_label"])
    cleaning = watch.phase("components")(components.largest_components)
    with (
        patch.object(SelfTraining, "_pseudo_label", labeling),
        patch.object(pseudo_labels, "largest_components", cleaning),
    ):
        for step in range(warm_up + steps):
            if step == warm_up:
                watch.reset()
            stepper(step)
    return watch.per_step(steps)


class _PhaseClock(StepClock):
    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        super().__init__(device)
        self._watch = watch

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Return a context that times a phase of the step."""
        return self._watch.phase("student forward" if name == "forward" else name)
