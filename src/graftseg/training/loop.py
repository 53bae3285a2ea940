"""The one training loop."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.methods import Method
from graftseg.ops.optimizers import Moved, build_optimizer, carry_over, learning_rate, load_state
from graftseg.recipes.settings import LoopSettings, StageSettings
from graftseg.training.checkpoint import Saved, State, save_checkpoint, saved_in
from graftseg.training.clock import StepClock
from graftseg.training.recorder import ALONE, Leg, NonFiniteLossError, Recorder
from graftseg.training.selection import Selector
from graftseg.training.snapshots import snapshot, snapshot_steps
from graftseg.training.step import Stepped, Stepper, Way, autocast, uncompiled

SAME_SIGNAL = 1.0
"""Seconds within which a signal that comes again is taken for the same one."""


@dataclass(frozen=True)
class Stage:
    """A stage's settings and how to build its method, on its device."""

    settings: StageSettings
    build: Callable[[], Method]


class Scout(Protocol):
    """Tell the batches of a stage what the network of the previous stage finds; see ``unlabeled_foreground``."""

    def look(self, method: Method, stage: int) -> None:
        """Find it, before the stage begins."""

    def recall(self, stage: int) -> None:
        """Find it again for a stage that has begun."""


@dataclass
class Position:
    """Where a run stands: ``step`` steps of stage ``stage`` are done, ``done`` in all."""

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
        """How long the run has trained, up to its last checkpoint and since."""
        return self.seconds_before + monotonic() - self.began_at

    def state(self) -> State:
        """Everything that is needed to go on as if nothing had happened."""
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
    """How a training ended; ``stopped_by`` is the signal that asked it to stop, if one did."""

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
    scout: Scout | None = None,
    identity: str | None = None,
    leg: Leg = ALONE,
) -> Outcome:
    """Train all stages, one after the other; a stopped run goes on where it was with ``resume``.

    A ``selector`` scores the student now and then. Where its protocol asks for it, the next stage begins with the best
    student of the stage before, and the method of the outcome holds the best one of the last stage. A ``scout`` looks
    at the unlabeled scans between two stages. Checkpoints carry the ``identity`` of the run and are refused elsewhere.
    The ``leg`` is named where progress is told.
    """
    steps = [stage.settings.steps for stage in stages]
    saved = saved_in(run.checkpoints, device, steps, identity) if resume else None
    at = _begin(stages, device, saved, identity)
    if saved is not None:
        _recall(at, saved, selector, scout)
    del saved
    total = sum(steps)
    clock, watched = StepClock(device), batches.watched(3)
    recorder = Recorder(run, total, at.done, every=loop.log_every, tensorboard=loop.tensorboard, leg=leg)
    with recorder, _stop_signals() as stop:
        for index in range(at.stage, len(stages)):
            if index > at.stage:
                _enter(at, index, stages[index], selector, scout)
            stage = stages[index].settings
            way = Way.chosen(loop.precision, device, stage.steps, compiled=loop.compiled, captured=loop.captured)
            stepper = Stepper(at.method, at.optimizers, stage, batches, way, clock, index=index)
            pictured = snapshot_steps(stage.steps, loop.snapshots)
            while at.step < stage.steps and not stop:
                stepped = stepper(at.step)
                at.step, at.done = at.step + 1, at.done + 1
                _record(recorder, at, stage, stepped, clock, batches)
                if at.step in pictured:
                    with uncompiled():
                        run.save_snapshot(at.done, snapshot(at.method, stepped.shows, watched))
                if selector is not None and selector.is_due(at.done):
                    _flush(recorder, at, batches)
                    recorder.busy("scoring")
                    with uncompiled(), autocast(stepper.precision, device):
                        scores = selector.look(at.method, at.optimizers, stage=at.stage, step=at.done)
                    recorder.validation(_place(at, stage), scores)
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


def _begin(stages: Sequence[Stage], device: torch.device, saved: Saved | None, identity: str | None) -> Position:
    """The start of a run, or the place where its checkpoint left it."""
    index = saved.state["stage"] if saved else 0
    method = stages[index].build().train()
    at = Position(index, 0, 0, method, _build_optimizers(method, stages[index].settings), device, identity)
    if saved:
        with saved.loading():
            _go_on(at, saved.state)
    return at


def _go_on(at: Position, state: State) -> None:
    at.step, at.done, at.seconds_before = state["step"], state["done"], state["seconds"]
    at.method.load_state_dict(state["method"])
    for name, optimizer in at.optimizers.items():
        load_state(optimizer, state["optimizers"][name])
    torch.set_rng_state(state["random"].cpu())
    if at.device.type == "cuda" and state.get("random_cuda") is not None:
        torch.cuda.set_rng_state(state["random_cuda"].cpu(), at.device)


def _recall(at: Position, saved: Saved, selector: Selector | None, scout: Scout | None) -> None:
    """What the parts beside the method knew when the checkpoint was written."""
    if selector is not None:
        with saved.loading():
            selector.load_state(saved.state.get("selection") or {})
    if scout is not None:
        scout.recall(at.stage)


def _enter(at: Position, index: int, stage: Stage, selector: Selector | None, scout: Scout | None) -> None:
    """Go on to the next stage, with the student of the one before: the last, or the best."""
    if selector is not None:
        selector.rewind(at.method, at.optimizers, at.stage)
        selector.forget()
    if scout is not None:
        scout.look(at.method, index)
    method = stage.build().train()
    method.start_from(at.method)
    optimizers = _build_optimizers(method, stage.settings)
    if stage.settings.carry_optimizer:
        for name in optimizers.keys() & at.optimizers.keys():
            before = Moved(at.method.get_submodule(name), at.optimizers[name])
            carry_over(before, Moved(method.get_submodule(name), optimizers[name]))
    at.stage, at.step, at.method, at.optimizers = index, 0, method, optimizers


def _build_optimizers(method: Method, stage: StageSettings) -> dict[str, torch.optim.Optimizer]:
    return {name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.moves}


def _place(at: Position, stage: StageSettings) -> dict[str, Any]:
    return {"stage": at.stage, "method": stage.method, "step": at.step, "global_step": at.done}


def _record(
    recorder: Recorder, at: Position, stage: StageSettings, stepped: Stepped, clock: StepClock, batches: Batches
) -> None:
    rate = learning_rate(stage.optimizer, at.step - 1, stage.steps)
    recorder.add({**_place(at, stage), "lr": rate}, stepped.names, stepped.values)
    if recorder.is_full:
        with _told(at, batches):
            recorder.forward()
        recorder.show(clock.split())


def _save(run: RunFolder, at: Position, recorder: Recorder, batches: Batches, selector: Selector | None) -> None:
    """Write the log, then a checkpoint: in this order, a checkpoint never holds weights of a broken loss."""
    _flush(recorder, at, batches)
    if not _is_finite(at.method):
        raise UserError(
            Code.LOSS_NOT_FINITE,
            f"stage {at.stage + 1}, step {at.step}",
            "the update has made weights that are not finite",
            "begin a new run with a lower learning rate or with optimizer.clip_gradient",
        )
    selection = None if selector is None else selector.state()
    save_checkpoint(run.checkpoints, at.done, at.state() | {"selection": selection})
    at.saved_at = monotonic()


def _is_finite(method: Method) -> bool:
    """Whether all that lasts of a method is: networks that learn, those that follow them, and running statistics."""
    floats = [tensor for tensor in method.state_dict().values() if tensor.is_floating_point()]
    return bool(torch.stack([torch.isfinite(tensor).all() for tensor in floats]).all())


def _flush(recorder: Recorder, at: Position, batches: Batches) -> None:
    with _told(at, batches):
        recorder.flush()


@contextmanager
def _told(at: Position, batches: Batches) -> Iterator[None]:
    """A loss that is not finite becomes a sentence that names step, term and cases."""
    try:
        yield
    except NonFiniteLossError as error:
        names = ", ".join(batches.names_at(at.stage, error.step - 1, unlabeled=at.method.uses_unlabeled))
        raise UserError(
            Code.LOSS_NOT_FINITE,
            f"stage {at.stage + 1}, step {error.step}",
            f"the term {error.term} of the loss is {error.value} for a batch of the cases {names}",
            "look at these scans, or begin a new run with a lower learning rate",
        ) from None


@contextmanager
def _stop_signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C and SIGTERM, so that the step in hand can end; another one a while later ends it at once.

    A step that waits for a process which was ended too, such as a compiler's, never ends by itself. One within a moment
    is the same one again, as where both a group of processes and its leader are told.
    """
    received: list[signal.Signals] = []
    told_at: list[float] = []

    def note(number: int, frame: object) -> None:
        if not received:
            received.append(signal.Signals(number))
            told_at.append(monotonic())
        elif monotonic() - told_at[0] > SAME_SIGNAL:
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
