"""The training loop, shared by all methods."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.methods import Method
from graftseg.ops.optimizers import (
    TrainedModule,
    build_optimizer,
    carry_over_momentum,
    learning_rate,
    load_optimizer_state,
)
from graftseg.recipes.settings import LoopSettings, StageSettings
from graftseg.training.checkpoint import Checkpoint, State, load_latest_of_run, save_checkpoint
from graftseg.training.clock import StepClock
from graftseg.training.recorder import ONLY_RUN, NonFiniteLossError, ProgressLabel, Recorder
from graftseg.training.selection import Selector
from graftseg.training.snapshots import snapshot, snapshot_steps
from graftseg.training.step import StepMode, Stepper, StepResult, autocast, uncompiled
from graftseg.training.unlabeled_foreground import UnlabeledForeground

SAME_SIGNAL_SECONDS = 1.0
"""Time within which a repeated signal counts as the same signal."""


@dataclass(frozen=True)
class Stage:
    """The settings of a stage and a function that builds its method on the device."""

    settings: StageSettings
    build: Callable[[], Method]


@dataclass
class Position:
    """The state of a run after ``step`` steps of stage ``stage`` and ``done`` steps of all stages."""

    stage: int
    step: int
    done: int
    method: Method
    optimizers: dict[str, torch.optim.Optimizer]
    device: torch.device
    identity: str | None = None
    seconds_before: float = 0.0
    began_at: float = field(default_factory=monotonic)
    saved_at: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """Training time in seconds, including time before the last resume."""
        return self.seconds_before + monotonic() - self.began_at

    def state(self) -> State:
        """Return everything an exact resume needs."""
        return {
            "run": self.identity,
            "stage": self.stage,
            "step": self.step,
            "done": self.done,
            "method": self.method.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Outcome:
    """The result of training; ``stopped_by`` is the signal that stopped it early, if any."""

    method: Method = field(repr=False)
    steps: int
    stopped_by: signal.Signals | None
    seconds: float
    seconds_per_step: dict[str, float]


def fit(
    stages: Sequence[Stage],
    batches: Batches,
    run: RunFolder,
    loop: LoopSettings,
    *,
    device: torch.device,
    resume: bool = False,
    selector: Selector | None = None,
    finder: UnlabeledForeground | None = None,
    identity: str | None = None,
    label: ProgressLabel = ONLY_RUN,
) -> Outcome:
    """Train all stages in order; ``resume`` continues from the last checkpoint.

    A ``selector`` scores the student at intervals. If ``selection.protocol`` selects checkpoints, each stage ends with
    the best student, not the last student. A ``finder`` predicts the unlabeled scans between two stages. Checkpoints
    contain the ``identity`` of the run and cannot be loaded by another run. Progress messages start with ``label``.
    """
    saved = load_latest_of_run(run.checkpoints, device, identity) if resume else None
    index = saved.state["stage"] if saved else 0
    method = stages[index].build().train()
    at = Position(index, 0, 0, method, _build_optimizers(method, stages[index].settings), device, identity)
    if saved is not None:
        _restore(at, saved, selector, finder)
    del saved
    total = sum(stage.settings.steps for stage in stages)
    clock, watched = StepClock(device), batches.center_patches(3)
    recorder = Recorder(run, total, at.done, every=loop.log_every, tensorboard=loop.tensorboard, label=label)
    with recorder, _stop_signals() as stop:
        for index in range(at.stage, len(stages)):
            if index > at.stage:
                _start_stage(at, index, stages[index], selector, finder)
            stage = stages[index].settings
            mode = StepMode.chosen(loop.precision, device, stage.steps, compiled=loop.compiled, captured=loop.captured)
            stepper = Stepper(at.method, at.optimizers, stage, batches, mode, clock, index=index)
            pictured = snapshot_steps(stage.steps, loop.snapshots)
            while at.step < stage.steps and not stop:
                result = stepper(at.step)
                at.step, at.done = at.step + 1, at.done + 1
                _record(recorder, at, stage, result, clock, batches)
                if at.step in pictured:
                    with uncompiled():
                        run.save_snapshot(at.done, snapshot(at.method, result.shows, watched))
                if selector is not None and selector.is_due(at.done):
                    _write(recorder.flush, at, batches)
                    recorder.busy("scoring")
                    with uncompiled(), autocast(stepper.precision, device):
                        scores = selector.score(at.method, at.optimizers, stage=at.stage, step=at.done)
                    recorder.validation(_log_fields(at, stage), scores)
                if at.done % loop.checkpoint_every == 0 or monotonic() - at.saved_at > loop.checkpoint_seconds:
                    _save(run, at, recorder, batches, selector)
            _save(run, at, recorder, batches, selector)
            recorder.show(clock.split())
            if stop:
                break
        else:
            if selector is not None:
                selector.rewind(at.method, at.optimizers, at.stage)
    return Outcome(at.method, at.done, stop[0] if stop else None, at.seconds, clock.split())


def _restore(at: Position, saved: Checkpoint, selector: Selector | None, finder: UnlabeledForeground | None) -> None:
    """Continue at a checkpoint: load networks, optimizers, random state, the selector and the finder."""
    state = saved.state
    with saved.loading():
        at.step, at.done, at.seconds_before = state["step"], state["done"], state["seconds"]
        at.method.load_state_dict(state["method"])
        for name, optimizer in at.optimizers.items():
            load_optimizer_state(optimizer, state["optimizers"][name])
        torch.set_rng_state(state["random"].cpu())
        if at.device.type == "cuda" and state.get("random_cuda") is not None:
            torch.cuda.set_rng_state(state["random_cuda"].cpu(), at.device)
        if selector is not None:
            selector.load_state(state.get("selection") or {})
    if finder is not None:
        finder.restore(at.stage)


def _start_stage(
    at: Position, index: int, stage: Stage, selector: Selector | None, finder: UnlabeledForeground | None
) -> None:
    """Start the next stage from the selected student of the previous stage, by default the last student."""
    if selector is not None:
        selector.rewind(at.method, at.optimizers, at.stage)
        selector.reset()
    if finder is not None:
        finder.find(at.method, index)
    method = stage.build().train()
    method.start_from(at.method)
    optimizers = _build_optimizers(method, stage.settings)
    if stage.settings.carry_optimizer:
        for name in optimizers.keys() & at.optimizers.keys():
            before = TrainedModule(at.method.get_submodule(name), at.optimizers[name])
            carry_over_momentum(before, TrainedModule(method.get_submodule(name), optimizers[name]))
    at.stage, at.step, at.method, at.optimizers = index, 0, method, optimizers


def _build_optimizers(method: Method, stage: StageSettings) -> dict[str, torch.optim.Optimizer]:
    return {
        name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.trained_modules
    }


def _log_fields(at: Position, stage: StageSettings) -> dict[str, Any]:
    return {"stage": at.stage, "method": stage.method, "step": at.step, "global_step": at.done}


def _record(
    recorder: Recorder, at: Position, stage: StageSettings, result: StepResult, clock: StepClock, batches: Batches
) -> None:
    rate = learning_rate(stage.optimizer, at.step - 1, stage.steps)
    recorder.add({**_log_fields(at, stage), "lr": rate}, result.names, result.values)
    if recorder.is_full:
        _write(recorder.send, at, batches)
        recorder.show(clock.split())


def _save(run: RunFolder, at: Position, recorder: Recorder, batches: Batches, selector: Selector | None) -> None:
    """Write the log, then a checkpoint; raise a UserError and save nothing if a loss or a weight is not finite."""
    _write(recorder.flush, at, batches)
    floats = [tensor for tensor in at.method.state_dict().values() if tensor.is_floating_point()]
    if not torch.stack([torch.isfinite(tensor).all() for tensor in floats]).all():
        finding = "the update produced weights that are not finite"
        remedy = "start a new run with a lower learning rate or with optimizer.clip_gradient"
        raise UserError(Code.LOSS_NOT_FINITE, f"stage {at.stage + 1}, step {at.step}", finding, remedy)
    selection = None if selector is None else selector.state()
    save_checkpoint(run.checkpoints, at.done, at.state() | {"selection": selection})
    at.saved_at = monotonic()


def _write(write: Callable[[], None], at: Position, batches: Batches) -> None:
    """Call a method of the recorder. If a loss is not finite, raise a UserError that names step, term and cases."""
    try:
        write()
    except NonFiniteLossError as error:
        names = ", ".join(batches.names_at(at.stage, error.step - 1, unlabeled=at.method.uses_unlabeled))
        finding = f"the loss term {error.term} is {error.value} for a batch of the cases {names}"
        remedy = "check these scans, or start a new run with a lower learning rate"
        raise UserError(Code.LOSS_NOT_FINITE, f"stage {at.stage + 1}, step {error.step}", finding, remedy) from None


@contextmanager
def _stop_signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C and SIGTERM, so that the current step can finish; a second signal stops at once.

    A signal may also kill a process that the step waits for, such as a compiler. The step then never finishes, and only
    a second signal stops it. A second signal within ``SAME_SIGNAL_SECONDS`` is ignored, because a single Ctrl-C may
    arrive twice: once for the process and once for its process group.
    """
    received: list[signal.Signals] = []
    received_at: list[float] = []

    def note(number: int, frame: object) -> None:
        if not received:
            received.append(signal.Signals(number))
            received_at.append(monotonic())
        elif monotonic() - received_at[0] > SAME_SIGNAL_SECONDS:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
