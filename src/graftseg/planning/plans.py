"""Plans: complete recipes chosen from facts about the scans and the device, with the reason for every value."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
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
from graftseg.methods import METHODS
from graftseg.methods.costs import SELF_TRAINING, SUPERVISED, step_cost
from graftseg.planning.augmentation import augmentation_choices
from graftseg.planning.choices import Choice, Choices, format_size, tree_of
from graftseg.planning.components import component_choices
from graftseg.planning.cost import GIB, SPEEDS, Target, target_of
from graftseg.planning.facts import Facts, facts_of
from graftseg.planning.frame import Frame
from graftseg.planning.intensities import intensity_choices, intensity_lines
from graftseg.planning.length import (
    MIN_FOLD_STEPS,
    MIN_STEPS,
    MIN_UNLABELED_STEPS,
    MIN_USEFUL_STEPS,
    StepTimes,
    TrainingLength,
    check_minutes,
    choose_length,
    estimated_times,
    plausible_times,
    requested_time,
)
from graftseg.planning.patches import StepShape
from graftseg.planning.plan_file import plan_text
from graftseg.planning.probe import seconds_per_step
from graftseg.planning.resolution import choose_resolution
from graftseg.recipes.recipe import PLANNED, Recipe, changed, load_recipe, parse_recipe
from graftseg.training.folds import MIN_FOLDS, suggested_folds

StepTimer = Callable[[Sequence[Recipe]], list[float]]
"""Function that measures the seconds per step of the last stage of each recipe."""

MAX_CHECK_FRACTION = 0.5
"""If the predictions of unlabeled scans take a larger fraction of the time, a plan has a note."""
ONE_LABELED_SCAN = (
    "Warning: one labeled scan is very little. Training works, but no scan can be held out to score the network, and "
    "the network learns the labels of one patient only. Label a few more scans."
)
MEASURED = "measured here on a few steps"
GRAFT = {
    "alpha": Choice(1.0, "voxels with pseudo-labels finally count as much as labeled voxels"),
    "dice": Choice("over-batch", "the same Dice loss as in the first stage"),
    "ema_scope": Choice("state", "the teacher also averages batch-norm statistics"),
    "labeled_weight": Choice(1.0, "unmixed labeled images, as in the first stage"),
    "rise": Choice(0.3, "fraction of the stage in which the weight of pseudo-labels rises"),
    "confidence": Choice(True, "uncertain pseudo-labels count less"),
    "average": Choice(False, "off, because the learning rate decays to zero"),
}
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
    frame, shape = choose_resolution(facts, target, minutes, method)
    # the method of the plan, or None for a supervised recipe
    planned = method if facts.unlabeled_count >= MIN_SCANS else None
    fixed = {name: _fixed_choices(facts, frame, shape, target, name) for name in (planned, None)}
    times = estimated_times(facts, shape, target, method)

    def length_for(name: str | None) -> TrainingLength:
        prediction = scan_seconds(frame, shape, times.supervised, fixed[planned]["inference.overlap"].value)
        uses = replace(times, uses_unlabeled=name is not None, prediction=prediction, unlabeled=facts.unlabeled_count)
        return choose_length(facts, frame, uses, minutes, method, target.kind)

    if timer is not None:
        recipes = [_recipe(choices | length_for(name).choices) for name, choices in fixed.items()]
        seconds = dict(zip(fixed, timer(recipes), strict=True))
        step_times = seconds[planned], seconds[None]
        if planned is not None and target.kind == "cpu":
            stage = recipes[0].stages[-1]
            expected_ratio = step_cost(stage.method, stage.settings, uses_unlabeled=True) / SUPERVISED
            step_times = plausible_times(*step_times, expected_ratio)
        times = StepTimes(*step_times, planned is not None)
    length = length_for(planned)
    requested = length.times  # warnings recommend minutes for the requested method, also if the plan is supervised
    if planned is not None and length.fitting < MIN_UNLABELED_STEPS:
        planned, length = None, length_for(None)
    choices = fixed[planned] | length.choices
    head = (
        *_data_lines(facts, frame),
        *_unused_lines(facts, length, requested),
        *intensity_lines(facts, choices),
        _memory_line(shape, target),
        *_time_lines(length, requested, SPEEDS[target.kind].source if timer is None else MEASURED, minutes),
        *_busy_lines(busy),
        *_score_lines(facts, length, requested),
        "",
        TRAIN_LINE,
    )
    return Plan(_recipe(choices), choices, head, length.total_seconds / 60)


def _fixed_choices(facts: Facts, frame: Frame, shape: StepShape, target: Target, method: str | None) -> Choices:
    """Choose the settings that do not depend on the time. ``method`` is None for a supervised recipe."""
    settings = {} if method is None else METHODS[method].Config.model_fields
    components = component_choices(facts, frame, pseudo_labels="largest_component" in settings)
    general = frame.choices | intensity_choices(facts) | shape.choices | _other_choices(target)
    return general | method_choices(frame.dimensions, method) | augmentation_choices(facts, frame) | components


def _unused_lines(facts: Facts, length: TrainingLength, requested: StepTimes) -> list[str]:
    """Warn if the time is too short to learn from the unlabeled scans."""
    if length.first or facts.unlabeled_count < MIN_SCANS:
        return []
    return [
        "Warning: the time is too short to learn from the unlabeled scans, so this is a supervised recipe. With them, "
        f"{MIN_UNLABELED_STEPS} steps and their baseline take {duration(sum(requested.seconds(MIN_UNLABELED_STEPS)))}, "
        f"and the predictions of the unlabeled scans {duration(requested.check_seconds(None))}. Give --minutes "
        f"{requested.minutes_for(MIN_UNLABELED_STEPS)} or more to use them."
    ]


def scan_seconds(frame: Frame, shape: StepShape, supervised: float, overlap: float) -> float:
    """Estimate the seconds to predict a typical scan, from the seconds of a supervised step."""
    strides = [max(1, round(n * (1 - overlap))) for n in shape.patch]
    axes = zip(frame.image_size, shape.patch, strides, strict=True)
    windows = prod(ceil(max(size - n, 0) / stride) + 1 for size, n, stride in axes)
    slices = prod(frame.size[frame.dimensions :])
    return windows * slices * supervised / (SUPERVISED * shape.batch)


def _recipe(choices: Choices) -> Recipe:
    return parse_recipe(tree_of(choices), "plan")


def _other_choices(target: Target) -> Choices:
    """Choose the settings that depend only on the kind of device."""
    is_cpu = target.kind == "cpu"
    overlap = "a quarter of a window; half a window would take several times as long" if is_cpu else "half of a window"
    fast = "faster: bf16 if the device supports it (loop.precision), and one pass for both mixtures (joint)"
    return {
        "name": Choice(PLANNED, "name in reports"),
        "about": Choice("made by graftseg plan", "description of the recipe"),
        "fast": Choice(True, fast),
        "inference.overlap": Choice(0.25 if is_cpu else 0.5, overlap),
        "inference.windows_per_forward": Choice(1 if is_cpu else 4, "number of windows or slices in one forward pass"),
    }


def method_choices(dimensions: int, method: str | None) -> Choices:
    """Choose the settings of the methods of both stages. ``method`` is None for a supervised recipe."""
    choices = {"stages.0.settings.dice": Choice("classes", "Dice over the batch, for all classes and the background")}
    if method is None:
        choices["batches.unlabeled"] = Choice(0, "a supervised recipe uses no unlabeled scans")
    elif method == "graft":
        choices |= {f"stages.1.settings.{name}": choice for name, choice in GRAFT.items()}
    elif method in ("bcp", "fg-cutmix") and dimensions == 2:
        published = "as published for slices"
        choices["stages.1.settings.dice"] = Choice("over-batch", published)
        choices["stages.1.settings.ema_scope"] = Choice("state", published)
    return choices


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


def _time_lines(length: TrainingLength, requested: StepTimes, source: str, minutes: float | None) -> list[str]:
    steps, total, check = length.steps, length.total_seconds, length.times.check_seconds(length.folds)
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
            f"--minutes {length.times.minutes_for(steps)} or more."
        )
    if (length.folds or 1) * check > MAX_CHECK_FRACTION * total:
        lines.append(
            "Note: the predictions of the unlabeled scans, which check the training, take most of the time. "
            "Additional --minutes are used for steps only."
        )
    if steps < MIN_USEFUL_STEPS:
        lines.append(
            f"Warning: {steps} steps suffice to test that everything works, but not for a good network. Give --minutes "
            f"{requested.minutes_for(MIN_USEFUL_STEPS)} or more."
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


def _score_lines(facts: Facts, length: TrainingLength, requested: StepTimes) -> list[str]:
    """Warn if the run cannot be scored, or note that there are too few test scans."""
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
        f"{requested.minutes_for(MIN_FOLD_STEPS, folds)} or more for {folds} folds of at least {MIN_FOLD_STEPS} "
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
