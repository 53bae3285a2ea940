"""The one training loop."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

import torch
from pydantic import Field

from graftseg.checkpoint import State, load_latest, save_checkpoint
from graftseg.clock import StepClock
from graftseg.data.batches import Batches
from graftseg.errors import UserError
from graftseg.methods import Method
from graftseg.optimizers import Adam, OptimizerSettings, Sgd, build_optimizer, carry_over, learning_rate, update
from graftseg.recorder import NonFiniteLossError, Recorder
from graftseg.runs import RunFolder
from graftseg.settings import Settings
from graftseg.snapshots import snapshot, snapshot_steps
from graftseg.types import Objective, Progress

Validate = Callable[[Method], dict[str, float]]


class StageSettings(Settings):
    """One stage of a training: a method, for so many steps.

    ``settings`` are the method's own. ``optimizers`` are for sub-modules that the method moves besides the student.
    ``carry_optimizer`` goes on with the momenta of the stage before.
    """

    method: str
    steps: int = Field(ge=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    optimizer: OptimizerSettings = Sgd()
    optimizers: dict[str, OptimizerSettings] = Field(default_factory=dict)
    carry_optimizer: bool = False

    def optimizer_of(self, name: str) -> Sgd | Adam:
        """Settings of the optimiser of a sub-module."""
        return self.optimizers.get(name, self.optimizer)


class LoopSettings(Settings):
    """How the loop runs and what it leaves behind; nothing here but ``precision`` changes the result.

    ``bf16`` takes effect where the device has it. A checkpoint is written every ``checkpoint_every`` steps and
    whenever ``checkpoint_seconds`` have passed.
    """

    precision: Literal["float32", "bf16"] = "float32"
    log_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(1000, ge=1)
    checkpoint_seconds: float = Field(60, gt=0)
    validate_every: int | None = Field(None, ge=1)
    snapshots: int = Field(3, ge=0)
    tensorboard: bool = True


@dataclass(frozen=True)
class Stage:
    """A stage's settings and how to build its method, on its device."""

    settings: StageSettings
    build: Callable[[], Method]


@dataclass
class Position:
    """Where a run stands: ``step`` steps of stage ``stage`` are done, ``done`` in all."""

    stage: int
    step: int
    done: int
    method: Method
    optimizers: dict[str, torch.optim.Optimizer]
    device: torch.device
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
    validate: Validate | None = None,
) -> Outcome:
    """Train all stages, one after the other; a stopped run goes on where it was with ``resume``."""
    at = _begin(stages, device, load_latest(run.checkpoints, device) if resume else None)
    total = sum(stage.settings.steps for stage in stages)
    clock, watched = StepClock(device), batches.watched(3)
    recorder = Recorder(run, total, at.done, every=loop.log_every, tensorboard=loop.tensorboard)
    with recorder, _stop_signals() as stop:
        for index in range(at.stage, len(stages)):
            if index > at.stage:
                _enter(at, index, stages[index])
            stage = stages[index].settings
            pictured = snapshot_steps(stage.steps, loop.snapshots)
            while at.step < stage.steps and not stop:
                objectives = _train_step(at, stage, batches, loop, device, clock)
                _record(recorder, at, stage, objectives, clock, batches)
                if at.step in pictured:
                    run.save_snapshot(at.done, snapshot(at.method, objectives, watched))
                if validate is not None and loop.validate_every and at.done % loop.validate_every == 0:
                    _flush(recorder, at, batches)
                    recorder.validation(_place(at, stage), _validated(at.method, validate))
                if at.done % loop.checkpoint_every == 0 or monotonic() - at.saved_at > loop.checkpoint_seconds:
                    _save(run, at, recorder, batches)
            _save(run, at, recorder, batches)
            if stop:
                break
    return Outcome(at.method, at.done, stop[0] if stop else None, at.seconds, clock.split())


def _train_step(
    at: Position,
    stage: StageSettings,
    batches: Batches,
    loop: LoopSettings,
    device: torch.device,
    clock: StepClock,
) -> list[Objective]:
    """One step of every objective of the method; returns the objectives, for the record."""
    with clock.phase("batch"):
        batch = batches.at(at.stage, at.step, unlabeled=at.method.uses_unlabeled)
    now = Progress(torch.tensor(at.step, device=device), stage.steps)
    pending = at.method.objectives(batch, now)
    objectives = []
    while True:
        with clock.phase("forward"), _autocast(loop, device):
            objective = next(pending, None)
        if objective is None:
            break
        optimizer = at.optimizers[objective.updates]
        with clock.phase("backward"):
            optimizer.zero_grad(set_to_none=True)
            objective.total.backward()  # type: ignore[no-untyped-call]
        with clock.phase("update"):
            update(optimizer, stage.optimizer_of(objective.updates), at.step, stage.steps)
        objectives.append(objective)
    with clock.phase("update"):
        at.method.after_step(now)
    clock.tick()
    at.step, at.done = at.step + 1, at.done + 1
    return objectives


def _begin(stages: Sequence[Stage], device: torch.device, saved: State | None) -> Position:
    """The start of a run, or the place where its checkpoint left it."""
    index = saved["stage"] if saved else 0
    method = stages[index].build().train()
    at = Position(index, 0, 0, method, _build_optimizers(method, stages[index].settings), device)
    if saved:
        at.step, at.done, at.seconds_before = saved["step"], saved["done"], saved["seconds"]
        method.load_state_dict(saved["method"])
        for name, optimizer in at.optimizers.items():
            optimizer.load_state_dict(saved["optimizers"][name])
        torch.set_rng_state(saved["random"].cpu())
        if device.type == "cuda" and saved["random_cuda"] is not None:
            torch.cuda.set_rng_state(saved["random_cuda"].cpu(), device)
    return at


def _enter(at: Position, index: int, stage: Stage) -> None:
    """Go on to the next stage, with the student of the one before."""
    method = stage.build().train()
    method.start_from(at.method)
    optimizers = _build_optimizers(method, stage.settings)
    if stage.settings.carry_optimizer:
        for name in optimizers.keys() & at.optimizers.keys():
            carry_over(at.optimizers[name], optimizers[name])
    at.stage, at.step, at.method, at.optimizers = index, 0, method, optimizers


def _build_optimizers(method: Method, stage: StageSettings) -> dict[str, torch.optim.Optimizer]:
    return {name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.moves}


def _place(at: Position, stage: StageSettings) -> dict[str, Any]:
    return {"stage": at.stage, "method": stage.method, "step": at.step, "global_step": at.done}


def _record(
    recorder: Recorder,
    at: Position,
    stage: StageSettings,
    objectives: Sequence[Objective],
    clock: StepClock,
    batches: Batches,
) -> None:
    named = [(name, term.detach()) for objective in objectives for name, term in objective.terms.items()]
    terms = dict(named)
    if len(terms) < len(named):
        raise ValueError(f"method {stage.method} has two terms of the same name among {[name for name, _ in named]}")
    total = torch.stack([objective.total.detach() for objective in objectives]).sum()
    rate = learning_rate(stage.optimizer, at.step - 1, stage.steps)
    recorder.add({**_place(at, stage), "lr": rate}, terms, total)
    if recorder.is_full:
        _flush(recorder, at, batches)
        recorder.show(clock.split())


def _save(run: RunFolder, at: Position, recorder: Recorder, batches: Batches) -> None:
    """Write the log, then a checkpoint: in this order, a checkpoint never holds weights of a broken loss."""
    _flush(recorder, at, batches)
    moved = [p for name in at.method.moves for p in at.method.get_submodule(name).parameters()]
    if not all(bool(torch.isfinite(parameter).all()) for parameter in moved):
        raise UserError(
            f"stage {at.stage + 1}, step {at.step}",
            "the update has made weights that are not finite",
            "begin a new run with a lower learning rate or with optimizer.clip_gradient",
        )
    save_checkpoint(run.checkpoints, at.done, at.state())
    at.saved_at = monotonic()


def _validated(method: Method, validate: Validate) -> dict[str, float]:
    method.eval()
    with torch.inference_mode():
        scores = validate(method)
    method.train()
    return scores


def _autocast(loop: LoopSettings, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=loop.precision == "bf16" and has_bf16(device))


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 by itself, rather than by emulation."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and native is not None and bool(native())


def _flush(recorder: Recorder, at: Position, batches: Batches) -> None:
    """Write what waits; a loss that is not finite becomes a sentence that names step, term and cases."""
    try:
        recorder.flush()
    except NonFiniteLossError as error:
        names = ", ".join(batches.names_at(at.stage, error.step - 1, unlabeled=at.method.uses_unlabeled))
        raise UserError(
            f"stage {at.stage + 1}, step {error.step}",
            f"the term {error.term} of the loss is {error.value} for a batch of the cases {names}",
            "look at these scans, or begin a new run with a lower learning rate",
        ) from None


@contextmanager
def _stop_signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C and SIGTERM, so that the step in hand can end; a second Ctrl-C interrupts at once."""
    received: list[signal.Signals] = []

    def note(number: int, frame: object) -> None:
        received.append(signal.Signals(number))
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
