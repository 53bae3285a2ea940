"""Plans: complete recipes chosen from facts about the scans and the device, with the reason for every value."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from graftseg.core.devices import busy_cores, choose_device, contested_cores
from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted, duration
from graftseg.core.planned_methods import DEFAULT_METHOD
from graftseg.core.teacher_checks import MIN_SCANS
from graftseg.data.benchmarks import BENCHMARKS
from graftseg.data.dataset import Dataset
from graftseg.data.prepare import PrepareSettings, identity_settings
from graftseg.evaluation.verdicts import MIN_CASES
from graftseg.methods.costs import SELF_TRAINING
from graftseg.planning.choices import Choices, format_size
from graftseg.planning.cost import GIB, SPEEDS, Target, target_of
from graftseg.planning.draft import IGNORED, Draft, StepTimer, recipe_of
from graftseg.planning.facts import Facts, facts_of
from graftseg.planning.frame import Frame
from graftseg.planning.intensities import intensity_lines
from graftseg.planning.length import (
    MIN_FOLD_STEPS,
    MIN_STEPS,
    MIN_UNLABELED_STEPS,
    MIN_USEFUL_STEPS,
    TrainingLength,
    check_minutes,
    requested_time,
)
from graftseg.planning.pace import Pace
from graftseg.planning.patches import StepShape
from graftseg.planning.plan_file import plan_text
from graftseg.planning.probe import seconds_per_step
from graftseg.planning.resolution import minutes_for
from graftseg.recipes.recipe import Recipe, changed, load_recipe
from graftseg.training.folds import MIN_FOLDS, suggested_folds

MAX_CHECK_FRACTION = 0.5
"""If the predictions of unlabeled scans take a larger fraction of the time, a plan has a note."""
ONE_LABELED_SCAN = (
    "Warning: one labeled scan is very little. Training works, but no scan can be held out to score the network, and "
    "the network learns the labels of one patient only. Label a few more scans."
)
MEASURED = "measured here on a few steps"
MAX_BUSY_CORES = 0.4
"""If other programs use more of the training's cores, a plan has a warning."""
TRAIN_LINE = "Train this plan with `graftseg train THIS_FILE --data DATA --out RUN`."


@dataclass(frozen=True)
class Plan:
    """A recipe with reasons.

    recipe: the planned recipe
    choices: the values that were chosen, with their reasons
    head: the summary, in paragraphs
    minutes: expected time of all networks together
    """

    recipe: Recipe
    choices: Choices
    head: tuple[str, ...]
    minutes: float

    @property
    def text(self) -> str:
        """Return the plan as a recipe file with comments."""
        return plan_text(self.recipe, self.choices, self.head)


def make_plan(
    dataset: Dataset,
    *,
    device: str = "auto",
    minutes: float | None = None,
    timed: bool = True,
    method: str = DEFAULT_METHOD,
) -> Plan:
    """Read the training scans and make a plan for a device.

    If ``timed`` is true and the device is in this machine, time a few steps.
    """
    check_minutes(minutes)
    target, facts = target_of(device), facts_of(dataset)
    if not (timed and target.present):
        return choose(facts, target, minutes=minutes, method=method)
    cores = busy_cores() if target.kind == "cpu" else None
    busy = None if cores is None else contested_cores(cores, torch.get_num_threads())
    timer = partial(seconds_per_step, channels=facts.channels, classes=len(facts.classes), device=choose_device(device))
    return choose(facts, target, minutes=minutes, timer=timer, busy=busy, method=method)


def choose(
    facts: Facts,
    target: Target,
    *,
    minutes: float | None = None,
    timer: StepTimer | None = None,
    busy: float | None = None,
    method: str = DEFAULT_METHOD,
) -> Plan:
    """Plan a run.

    ``timer`` measures the seconds per step. Without it, they come from a table. ``busy`` is the number of the
    training's cores that other programs use, or None if it is unknown.
    """
    check_minutes(minutes)
    if method not in SELF_TRAINING:
        finding = "not a method that can be planned"
        raise UserError(Code.OPTION_INVALID, f"--method {method}", finding, f"choose one of {', '.join(SELF_TRAINING)}")
    draft = Draft.of(Pace(facts, target, method), minutes)
    if timer is not None:
        draft = draft.measured(timer)
    length = draft.length
    supervised = not draft.uses_unlabeled or length.fitting < MIN_UNLABELED_STEPS
    if supervised:
        length = draft.length_for(None)
    choices = draft.fixed_choices(None if supervised else method) | length.choices
    head = (
        *_data_lines(facts, draft.frame),
        *_unused_lines(draft, length),
        *_ignored_lines(choices),
        *intensity_lines(facts, choices),
        _memory_line(draft.shape, target),
        *_time_lines(draft, length),
        *_busy_lines(busy),
        *_score_lines(draft, length),
        "",
        TRAIN_LINE,
    )
    return Plan(recipe_of(choices), choices, head, length.total_seconds / 60)


def _unused_lines(draft: Draft, length: TrainingLength) -> list[str]:
    """Warn if the time is too short to learn from the unlabeled scans."""
    if length.first or not draft.uses_unlabeled:
        return []
    requested = draft.length.times
    return [
        "Warning: the time is too short to learn from the unlabeled scans, so this is a supervised recipe. With them, "
        f"{MIN_UNLABELED_STEPS} steps and their baseline take {duration(sum(requested.seconds(MIN_UNLABELED_STEPS)))}, "
        f"and the predictions of the unlabeled scans {duration(requested.check_seconds(None))}. Give --minutes "
        f"{draft.minutes_for(MIN_UNLABELED_STEPS)} or more to use them."
    ]


def _data_lines(facts: Facts, frame: Frame) -> list[str]:
    kind = "2-D scan" if len(frame.size) == 2 else "volume"
    names = ", ".join(facts.classes[1:4]) + (", ..." if len(facts.classes) > 4 else "")
    spacing = " x ".join(f"{step:g}" for step in frame.spacing)
    lines = [
        "A plan by graftseg with the reason for every value. You may change any value.",
        "",
        f"Scans: {counted(facts.labeled_count, kind)} with labels and {facts.unlabeled_count} without; "
        f"{counted(len(facts.classes) - 1, 'class', 'classes')} ({names}), {counted(facts.channels, 'channel')}. "
        f"A typical scan is prepared to {format_size(frame.size)} voxels of {spacing} mm.",
    ]
    if facts.labeled_count == 1:
        lines.append(ONE_LABELED_SCAN)
    if facts.unlabeled_count < MIN_SCANS:
        few = "is only one unlabeled scan" if facts.unlabeled_count else "are no unlabeled scans"
        folder = "Put unlabeled scans into imagesUn" if facts.has_layout else "Pass a folder of scans with --unlabeled"
        lines.append(f"Warning: there {few}, so this is a supervised recipe. {folder} and plan again.")
    return lines


def _ignored_lines(choices: Choices) -> list[str]:
    """Say which pseudo-labels are ignored."""
    return [f"Note: some pseudo-labels are ignored: {choices[IGNORED].reason}."] if IGNORED in choices else []


def _memory_line(shape: StepShape, target: Target) -> str:
    where = "in the device's memory" if shape.is_resident else "read from files, because they exceed the memory"
    return (
        f"Device: {target.name}, {target.memory / GIB:.1f} GiB of memory. A step takes about {_gib(shape.step_bytes)} "
        f"GiB. The prepared scans take {_gib(shape.store_bytes)} GiB, {where}."
    )


def _gib(size: int) -> str:
    """Return bytes in GiB with two significant digits, never in scientific notation."""
    if size >= 99.5 * GIB:
        return f"{size / GIB:.0f}"
    return f"{size / GIB:.2g}" if size >= GIB // 1000 else "less than 0.001"


def _time_lines(draft: Draft, length: TrainingLength) -> list[str]:
    source = MEASURED if draft.pace.measurement else SPEEDS[draft.pace.target.kind].source
    minutes, steps, total = draft.minutes, length.steps, length.total_seconds
    check = length.times.check_seconds(length.folds)
    run, baseline = length.times.seconds(steps)
    parts = f"{duration(run)} for {steps} steps"
    if length.first:
        baseline_part = f"{duration(baseline)} for the supervised baseline"
        parts += f", {duration(check)} to predict the unlabeled scans and {baseline_part}"
    folds = f", for each of {length.folds} folds" if length.folds else ""
    longest = duration(total + length.times.second_check_seconds(length.folds))
    limit = "" if longest == duration(total) else f" (up to {longest} if the check of the teacher is repeated)"
    lines = [
        f"Time: about {duration(total)} in total{limit}: {parts}{folds}. Seconds per step are {source}. Reading, "
        "preparing and scoring take additional time."
    ]
    if minutes is not None and total > 60 * minutes:
        lines.append(
            f"Warning: this is more than the {requested_time(minutes)}. A plan has at least {MIN_STEPS} steps. Give "
            f"--minutes {minutes_for(draft.pace, steps, uses_unlabeled=length.times.uses_unlabeled)} or more."
        )
    if (length.folds or 1) * check > MAX_CHECK_FRACTION * total:
        lines.append(
            "Note: the predictions of the unlabeled scans, which check the training, take most of the time. "
            "Additional --minutes are used for steps only."
        )
    if steps < MIN_USEFUL_STEPS:
        lines.append(
            f"Warning: {steps} steps suffice to test that everything works, but not for a good network. Give --minutes "
            f"{draft.minutes_for(MIN_USEFUL_STEPS)} or more."
        )
    return lines


def _busy_lines(busy: float | None) -> list[str]:
    """Warn if other programs used the cores during the measurement. Recommend as many threads as cores are free."""
    if busy is None or busy < MAX_BUSY_CORES:
        return []
    threads = torch.get_num_threads()
    free = f"plan and train with OMP_NUM_THREADS={max(1, int(threads - busy))}"
    fewer = "" if threads == 1 else f", or {free}, because threads on shared cores wait for one another"
    return [
        f"Warning: during the measurement, other programs used about {busy:.1f} of the cores for training, so the plan "
        f"may have too few steps. Plan again when they have finished{fewer}."
    ]


def _score_lines(draft: Draft, length: TrainingLength) -> list[str]:
    """Warn if the run cannot be scored, or note that there are too few test scans."""
    facts = draft.pace.facts
    if facts.unlabeled_count and 0 < facts.test_count < MIN_CASES:
        return [
            f"Note: {counted(facts.test_count, 'test scan')} with labels can be scored. `graftseg test` needs at least "
            f"{MIN_CASES} to distinguish a real difference from chance."
        ]
    folds = suggested_folds(facts.labeled_count, has_test=facts.has_test)
    if folds is None or length.folds:
        return []
    alternatives = "" if folds == MIN_FOLDS else f" (any number from {MIN_FOLDS} to {folds})"
    add_test_scans = "pass test scans with --test-images and their labels with --test-labels"
    if facts.has_layout:
        add_test_scans = "put test scans into imagesTs and their labels into labelsTs"
    return [
        "Warning: this run cannot be scored, because there are no labeled test scans and no time for folds. Either "
        f"train this plan with --folds {folds}{alternatives}, which takes about "
        f"{duration(length.times.total_seconds(length.steps, folds))}; or plan with --minutes "
        f"{draft.minutes_for(MIN_FOLD_STEPS, folds)} or more for {folds} folds of at least {MIN_FOLD_STEPS} "
        f"steps each; or {add_test_scans}."
    ]


def choose_data_settings(dataset: Dataset, recipe: str | Path | None, overrides: Iterable[str]) -> PrepareSettings:
    """Return the settings of a recipe. Without a recipe, keep benchmark scans unchanged and plan for other scans."""
    if recipe is not None:
        return load_recipe(recipe, overrides).data
    if dataset.layout not in BENCHMARKS:
        return changed(make_plan(dataset, device="cuda", timed=False).recipe, overrides).data
    if list(overrides):
        finding = f"the benchmark {dataset.layout} is stored unchanged"
        raise UserError(Code.OPTION_INVALID, "--set", finding, "pass a --recipe")
    return identity_settings(BENCHMARKS[dataset.layout].dimensions)
