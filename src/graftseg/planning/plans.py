"""Facts about scans and a device -> a whole recipe, with the reason for every value."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod

from graftseg.evaluation.verdicts import MIN_CASES
from graftseg.planning.choices import Choice, Choices, counted, times, tree_of
from graftseg.planning.components import component_choices
from graftseg.planning.cost import SELF_TRAINING, SUPERVISED, Speed, network_load, tabulated_speed
from graftseg.planning.durations import refuse_minutes, requested_minutes, spoken
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame, choose_frame
from graftseg.planning.intensities import intensity_choices, intensity_lines
from graftseg.planning.length import LEAST_FOLD_STEPS, TrainingLength, choose_length
from graftseg.planning.patches import StepShape, choose_step_shape
from graftseg.planning.plan_file import written
from graftseg.planning.target import GIB, Target
from graftseg.recipes.recipe import PLANNED, Recipe, parse_recipe
from graftseg.training.folds import LEAST, suggested_folds

StepTimer = Callable[[Recipe], float]
"""From a recipe to the seconds that a step of its last stage takes on the device."""

TOLERANCE = 1.1
"""Times the minutes that were asked for, above which a plan says so."""
FEWEST_USEFUL = 1500
"""Steps below which a network is not worth much."""
TRAIN_LINE = "Train it with `graftseg train THIS_FILE --data DATA --out RUN`."


@dataclass(frozen=True)
class Plan:
    """A recipe, the reasons for its values, and what to know before it is trained."""

    recipe: Recipe
    choices: Choices
    head: tuple[str, ...]
    minutes: float

    @property
    def text(self) -> str:
        """The plan as a recipe file with comments."""
        return written(self.recipe, self.choices, self.head)


def choose(facts: Facts, target: Target, *, minutes: float | None = None, timed: StepTimer | None = None) -> Plan:
    """Plan a training. Without ``timed``, seconds of a step come from a table."""
    refuse_minutes(minutes)
    frame = choose_frame(facts)
    shape, uses_unlabeled = choose_step_shape(facts, frame, target), facts.unlabeled > 0
    fixed = frame.choices | intensity_choices(facts) | shape.choices | _other_choices(frame, target, uses_unlabeled)
    fixed |= component_choices(facts, frame, 2 if uses_unlabeled else 1)
    operations = (
        shape.batch * prod(shape.patch) * network_load(shape.network, facts.channels, len(facts.classes)).operations
    )

    def length_at(speed: Speed) -> TrainingLength:
        return choose_length(
            uses_unlabeled=uses_unlabeled,
            operations=operations,
            speed=speed,
            dimensions=frame.dimensions,
            kind=target.kind,
            minutes=minutes,
            labeled=facts.labeled,
            has_test=facts.has_test,
        )

    speed = tabulated_speed(target)
    if timed is not None:
        seconds = timed(_recipe(fixed | length_at(speed).choices))
        speed = Speed(
            (SELF_TRAINING if uses_unlabeled else SUPERVISED) * operations / seconds,
            0.0,
            "measured here on a few steps",
        )
    length = length_at(speed)
    choices = fixed | length.choices
    pace = _time_lines(length, speed, uses_unlabeled, minutes)
    about = (*_data_lines(facts, frame, uses_unlabeled), *intensity_lines(facts, choices))
    head = (*about, _memory_line(shape, target), *pace, *_score_lines(facts, length, uses_unlabeled), "", TRAIN_LINE)
    return Plan(_recipe(choices), choices, head, length.minutes)


def _recipe(choices: Choices) -> Recipe:
    return parse_recipe(tree_of(choices), "plan")


def _other_choices(frame: Frame, target: Target, uses_unlabeled: bool) -> Choices:
    """Settings that follow from what the others are."""
    slices, cpu = frame.dimensions == 2, target.kind == "cpu"
    choices = {
        "name": Choice(PLANNED, "what the report calls it"),
        "about": Choice("made by graftseg plan", "one line for people"),
        "fast": Choice(
            True, "bf16 where the device has it (loop.precision) and both mixtures in one pass (joint): faster"
        ),
        "batches.augment.rotate_flip": Choice(
            0.0, "no mirroring, which would swap left and right; 1 suits organs without a side"
        ),
        "batches.augment.rotate": Choice(0.5, "half of the patches are turned a little in the plane of two axes"),
        "inference.overlap": Choice(
            0.25 if cpu else 0.5,
            "a quarter of a window: half of it takes several times as long on a CPU" if cpu else "half of a window",
        ),
        "inference.windows_per_forward": Choice(1 if cpu else 4, "windows, or slices, that the device takes together"),
    }
    if not uses_unlabeled:
        choices["batches.unlabeled"] = Choice(0, "there is no unlabeled scan")
        choices["stages.0.settings.dice"] = Choice("classes", "every class and the background, over the batch")
    elif slices:
        published = "as published for slices"
        choices["stages.0.settings.loss"] = Choice("regions", published)
        choices["stages.0.settings.dice"] = Choice("over-batch", published)
        choices["stages.1.settings.dice"] = Choice("over-batch", published)
        choices["stages.1.settings.ema_scope"] = Choice("state", published)
    return choices


def _data_lines(facts: Facts, frame: Frame, uses_unlabeled: bool) -> list[str]:
    kind = "2-D scan" if len(frame.size) == 2 else "volume"
    names = ", ".join(facts.classes[1:4]) + (", ..." if len(facts.classes) > 4 else "")
    lines = [
        "A plan by graftseg: every value with its reason. Change what you know better.",
        "",
        f"Scans: {counted(facts.labeled, kind)} with labels and {facts.unlabeled} without; "
        f"{counted(len(facts.classes) - 1, 'class').replace('classs', 'classes')} ({names}), "
        f"{counted(facts.channels, 'channel')}. A usual one is prepared to {times(frame.size)} voxels of "
        f"{' x '.join(f'{step:g}' for step in frame.spacing)} mm.",
    ]
    if facts.labeled == 1:
        lines.append(
            "Warning: one labeled scan is very little. The training works, but nothing can be held out to score it, "
            "and the network sees the labels of one anatomy only. Label a few more."
        )
    if not uses_unlabeled:
        more = (
            "Put scans without labels into imagesUn"
            if facts.has_layout
            else "Name a folder of other scans as --unlabeled"
        )
        lines.append(
            "Warning: there is no unlabeled scan, so this is a supervised recipe. "
            f"{more} and plan again to learn from them."
        )
    return lines


def _memory_line(shape: StepShape, target: Target) -> str:
    place = "the device's memory" if shape.is_resident else "files, as they are too many for the memory"
    return (
        f"Device: {target.name}, {target.memory / GIB:.1f} GiB of memory. A step takes about "
        f"{_gib(shape.step_bytes)} GiB of it, and the prepared scans {_gib(shape.store_bytes)} GiB in {place}."
    )


def _gib(size: int) -> str:
    """Two digits that count, and never a power of ten."""
    return (
        f"{size / GIB:.0f}" if size >= 99.5 * GIB else f"{size / GIB:.2g}" if size >= GIB // 1000 else "less than 0.001"
    )


def _time_lines(length: TrainingLength, speed: Speed, uses_unlabeled: bool, minutes: float | None) -> list[str]:
    steps = length.pretraining + length.training
    beside = f" and {spoken(length.baseline_seconds / 60)} for the supervised baseline" if uses_unlabeled else ""
    folds = f", {length.folds} times, once for each fold" if length.folds else ""
    lines = [
        f"Time: about {spoken(length.minutes)} in all: {spoken(length.seconds / 60)} for {steps} steps{beside}{folds}. "
        f"Seconds of a step are {speed.source}; reading, preparing and scoring come on top."
    ]
    if minutes is not None and length.minutes > TOLERANCE * minutes:
        lines.append(
            f"Warning: that is more than the {requested_minutes(minutes)}; fewer steps make no sense, and "
            f"these take --minutes {ceil(length.minutes)}."
        )
    if steps < FEWEST_USEFUL:
        lines.append(
            f"Warning: {steps} steps show that everything works and make no good network; give --minutes "
            f"{length.pace.minutes_for(FEWEST_USEFUL)} or more."
        )
    return lines


def _score_lines(facts: Facts, length: TrainingLength, uses_unlabeled: bool) -> list[str]:
    """What to know where nothing, or too little, will score the networks; of a single scan more is said above."""
    if uses_unlabeled and 0 < facts.tested < MIN_CASES:
        return [
            f"Note: {counted(facts.tested, 'test scan')} with labels will give scores; with fewer than {MIN_CASES}, "
            "`graftseg test` cannot tell help from chance."
        ]
    folds = suggested_folds(facts.labeled, has_test=facts.has_test)
    if folds is None or length.folds:
        return []
    trained = "" if folds == LEAST else f" (any number from {LEAST} to {folds})"
    tested = (
        "put test scans into imagesTs and their labels into labelsTs"
        if facts.has_layout
        else "name test scans as --test-images and their labels as --test-labels"
    )
    return [
        "Warning: nothing will score this run: there are no test scans with labels, and no time for folds. Train this "
        f"plan with --folds {folds}{trained}, which takes {folds} times as long, about "
        f"{spoken(length.minutes_of(folds))}; or plan with --minutes {length.pace.minutes_for(LEAST_FOLD_STEPS, folds)} or "
        f"more for {folds} folds of at least {LEAST_FOLD_STEPS} steps each; or {tested}."
    ]
