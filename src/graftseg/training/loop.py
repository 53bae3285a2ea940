"""The training loop, shared by all methods."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import torch

from graftseg.core import ranks
from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import TeacherCheck
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
from graftseg.training.adapted_stages import adapted_stages
from graftseg.training.checkpoint import Checkpoint, State, copy_latest, load_latest_of_run, save_checkpoint
from graftseg.training.clock import StageWork, StepClock, work_of
from graftseg.training.recorder import ONLY_RUN, NonFiniteLossError, ProgressLabel, Recorder
from graftseg.training.selection import Selector, TrainingDice, copied_state
from graftseg.training.snapshots import snapshot, snapshot_steps
from graftseg.training.step import StepMode, Stepper, autocast, uncompiled
from graftseg.training.stopping import Stop, collecting_stop_signals
from graftseg.training.teacher_check import INTERVALS
from graftseg.training.unlabeled_predictions import UnlabeledPredictions


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
    good: State | None = None  # networks at the last check without a drift, see ``_find_drift``
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
            **({} if self.good is None else {"good": self.good}),
        }


@dataclass(frozen=True)
class Outcome:
    """The result of training; ``stopped_by`` is the signal that stopped it early, if any.

    ``warnings`` are sentences about classes that were not learned.
    """

    method: Method = field(repr=False)
    steps: int
    stopped_by: signal.Signals | None
    seconds: float
    seconds_per_step: dict[str, float]
    warnings: tuple[str, ...] = ()


def fit(
    stages: Sequence[Stage],
    batches: Batches,
    run: RunFolder,
    loop: LoopSettings,
    *,
    device: torch.device,
    resume: bool = False,
    selector: Selector | None = None,
    predictions: UnlabeledPredictions | None = None,
    training_dice: TrainingDice | None = None,
    identity: str | None = None,
    label: ProgressLabel = ONLY_RUN,
    keep_first_stage: bool = False,
) -> Outcome:
    """Train all stages in order; ``resume`` continues from the last checkpoint.

    A ``selector`` scores the student at intervals. If the protocol selects checkpoints, each stage ends with the best
    student instead of the last one. ``predictions`` predicts the unlabeled scans between two stages and may change the
    stages that follow. ``training_dice`` scores the training scans for the log. Only a run with the same ``identity``
    can load a checkpoint. ``keep_first_stage`` keeps a copy of the checkpoint at the end of the first stage.
    """
    at, stages = _position(list(stages), run, device, identity, selector, predictions, resume=resume)

    def work(stages: Sequence[Stage]) -> list[StageWork]:
        if predictions is None:
            return [work_of(stage.settings, batches.settings) for stage in stages]
        return [predictions.work(stage.settings, index) for index, stage in enumerate(stages)]

    if label.final_check and predictions is not None:
        label = replace(label, later=(*label.later, predictions.final_work()))
    recorder = Recorder(run, work(stages), at.done, every=loop.log_every, tensorboard=loop.tensorboard, label=label)
    with recorder, collecting_stop_signals() as received:
        clock, stop = StepClock(device), Stop(received)
        parts = _Parts(batches, run, loop, selector, recorder, clock, stop, predictions, training_dice)
        while True:
            if (drift := _train_stage(at, stages[at.stage].settings, parts)) is not None:
                stages = adapted(stages, drift)
                recorder.replan(work(stages))
            if stop.stopped_by is not None:
                break
            at.method.finish()
            if selector is not None:
                selector.rewind(at.method, at.optimizers, at.stage)
            if at.stage + 1 == len(stages):
                break
            if at.stage == 0 and keep_first_stage and ranks.is_main():
                copy_latest(run.checkpoints, run.first_stage_file)
            stages = _start_next_stage(at, stages, selector, predictions)
            recorder.replan(work(stages))
    stop.raise_late_signal()
    return Outcome(at.method, at.done, stop.stopped_by, at.seconds, clock.split())


@dataclass(frozen=True)
class _Parts:
    """Everything that a stage uses besides its position."""

    batches: Batches
    run: RunFolder
    loop: LoopSettings
    selector: Selector | None
    recorder: Recorder
    clock: StepClock
    stop: Stop
    predictions: UnlabeledPredictions | None
    training_dice: TrainingDice | None


def _position(
    stages: list[Stage],
    run: RunFolder,
    device: torch.device,
    identity: str | None,
    selector: Selector | None,
    predictions: UnlabeledPredictions | None,
    *,
    resume: bool,
) -> tuple[Position, list[Stage]]:
    """Return the position at the first step or at the last checkpoint, and the stages, as changed by earlier checks."""
    saved = load_latest_of_run(run.checkpoints, device, identity) if resume else None
    index = saved.state["stage"] if saved else 0
    for check in predictions.load_checks(index, saved.state["step"]) if saved and predictions else ():
        stages = adapted(stages, check)
    method = stages[index].build().train()
    at = Position(index, 0, 0, method, build_optimizers(method, stages[index].settings), device, identity)
    if saved is not None:
        _restore(at, saved, selector)
        if predictions is not None:
            predictions.restore(stages[index].settings, index)
    return at, stages


def _train_stage(at: Position, stage: StageSettings, parts: _Parts) -> TeacherCheck | None:
    """Train a stage to its end, or until a signal; log, score and save checkpoints on the way.

    If the volume of a class changes too much in unlabeled scans, restore the last good network and return the check.
    """
    batches, loop, recorder, clock = parts.batches, parts.loop, parts.recorder, parts.clock
    mode = StepMode.chosen(loop.precision, at.device, stage.steps, compiled=loop.compiled, captured=loop.captured)
    mode = replace(mode, local_statistics=loop.batch_statistics == "local")
    stepper = Stepper(at.method, at.optimizers, stage, batches, mode, clock, index=at.stage)
    pictured, watched = snapshot_steps(stage.steps, loop.snapshots), batches.center_patches(3)
    while at.step < stage.steps and not parts.stop.agree_to_stop():
        result = stepper(at.step)
        at.step, at.done = at.step + 1, at.done + 1
        rate = learning_rate(stage.optimizer, at.step - 1, stage.steps)
        recorder.add({**_log_fields(at, stage), "lr": rate}, result.names, result.values)
        if recorder.is_full:
            _write(recorder.send, at, batches)
            recorder.show(clock.split())
        if at.step in pictured:
            with uncompiled():
                pictures = snapshot(at.method, result.shows, watched)
            if ranks.is_main():
                parts.run.save_snapshot(at.done, pictures)
        _score(at, stage, parts, stepper)
        if (drift := _find_drift(at, stage, parts)) is not None:
            _save(at, parts)
            return drift
        if at.done % loop.checkpoint_every == 0 or monotonic() - at.saved_at > loop.checkpoint_seconds:
            _save(at, parts)
    _save(at, parts)
    recorder.show(clock.split())
    return None


def _score(at: Position, stage: StageSettings, parts: _Parts, stepper: Stepper) -> None:
    """Log the scores of the student that are due."""
    selector, training_dice, recorder = parts.selector, parts.training_dice, parts.recorder
    is_selecting = selector is not None and selector.is_due(at.done)
    is_watching = training_dice is not None and training_dice.is_due(at.done, ends_stage=at.step == stage.steps)
    if not is_selecting and not is_watching:
        return
    _write(recorder.flush, at, parts.batches)
    recorder.busy("scoring")
    fields = _log_fields(at, stage)
    with uncompiled(), autocast(stepper.precision, at.device):
        if selector is not None and is_selecting:
            scores = selector.score(at.method, at.optimizers, stage=at.stage, step=at.done)
            recorder.scores({**fields, "validation": scores})
        if training_dice is not None and is_watching:
            recorder.scores({**fields, "training_dice": training_dice.score(at.method)})


def _find_drift(at: Position, stage: StageSettings, parts: _Parts) -> TeacherCheck | None:
    """Check at intervals whether the volume of a class drifts in the unlabeled scans.

    After a drift, restore the networks of the last good check. The remaining steps train without unlabeled scans, so
    the last step needs no check.
    """
    is_due = at.step in {stage.steps * part // INTERVALS for part in range(1, INTERVALS)}
    if parts.predictions is None or not stage.check_teacher or not is_due:
        return None
    began = monotonic()
    drift = parts.predictions.drift(at.method, stage, at.stage, at.step)
    parts.recorder.leave_out(monotonic() - began)
    if drift is not None and at.good is not None:
        at.method.load_state_dict(at.good)
    at.good = copied_state(at.method)
    return drift


def _restore(at: Position, saved: Checkpoint, selector: Selector | None) -> None:
    """Continue at a checkpoint: load networks, optimizers, random state and the selector."""
    state = saved.state
    with saved.loading():
        at.step, at.done, at.seconds_before = state["step"], state["done"], state["seconds"]
        at.method.load_state_dict(state["method"])
        for name, optimizer in at.optimizers.items():
            load_optimizer_state(optimizer, state["optimizers"][name])
        torch.set_rng_state(state["random"].cpu())
        if at.device.type == "cuda" and state.get("random_cuda") is not None:
            torch.cuda.set_rng_state(state["random_cuda"].cpu(), at.device)
        at.good = state.get("good")
        if selector is not None:
            selector.load_state(state.get("selection") or {})


def adapted(stages: Sequence[Stage], check: TeacherCheck) -> list[Stage]:
    """Return all stages, changed as a check of the teacher decided."""
    changed = adapted_stages([stage.settings for stage in stages], check)
    return [Stage(settings, stages[index].build) for settings, index in changed]


def _start_next_stage(
    at: Position, stages: list[Stage], selector: Selector | None, predictions: UnlabeledPredictions | None
) -> list[Stage]:
    """Start the next stage from the student of the previous one; return the stages, which a check may change."""
    index = at.stage + 1
    if selector is not None:
        selector.reset()
    if predictions is not None:
        current, following, *later = (stage.settings for stage in stages[at.stage :])
        check = predictions.find(at.method, current, following, index, later)
        stages = stages if check is None else adapted(stages, check)
    stage = stages[index]
    method = stage.build().train()
    method.start_from(at.method)
    optimizers = build_optimizers(method, stage.settings)
    if stage.settings.carry_optimizer:
        for name in optimizers.keys() & at.optimizers.keys():
            before = TrainedModule(at.method.get_submodule(name), at.optimizers[name])
            carry_over_momentum(before, TrainedModule(method.get_submodule(name), optimizers[name]))
    at.stage, at.step, at.method, at.optimizers = index, 0, method, optimizers
    at.good = copied_state(method) if stage.settings.check_teacher else None
    return stages


def build_optimizers(method: Method, stage: StageSettings) -> dict[str, torch.optim.Optimizer]:
    """Return an optimizer for each trained module of a method."""
    return {
        name: build_optimizer(method.get_submodule(name), stage.optimizer_of(name)) for name in method.trained_modules
    }


def _log_fields(at: Position, stage: StageSettings) -> dict[str, Any]:
    return {"stage": at.stage, "method": stage.method, "step": at.step, "global_step": at.done}


def _save(at: Position, parts: _Parts) -> None:
    """Write the log, then a checkpoint; raise a UserError and save nothing if a loss or a weight is not finite."""
    _write(parts.recorder.flush, at, parts.batches)
    floats = [tensor for tensor in at.method.state_dict().values() if tensor.is_floating_point()]
    if not torch.stack([torch.isfinite(tensor).all() for tensor in floats]).all():
        finding = "the update produced weights that are not finite"
        remedy = "start a new run with a lower learning rate or with optimizer.clip_gradient"
        raise UserError(Code.LOSS_NOT_FINITE, f"stage {at.stage + 1}, step {at.step}", finding, remedy)
    selection = None if parts.selector is None else parts.selector.state()
    if ranks.is_main():
        save_checkpoint(parts.run.checkpoints, at.done, at.state() | {"selection": selection})
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
