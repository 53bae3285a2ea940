"""How long to train: the number of steps that fit into a time, and the optimiser that suits such a number."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, floor, log10

from graftseg.planning.choices import Choice, Choices
from graftseg.planning.cost import PRETRAIN, SELF_TRAINING, SUPERVISED, Speed
from graftseg.planning.durations import requested_minutes
from graftseg.training.folds import suggested_folds

MINUTES = {"cpu": 60.0, "cuda": 60.0}
"""What a plan may take where nobody says."""
PUBLISHED = {2: 40_000, 3: 17_000}
"""Steps of both stages in the paper: more are planned only where somebody gives the time."""
MOST, FEWEST = 100_000, 400
LEAST_FOLD_STEPS = 2000
"""Steps that each training must have left for folds to be worth it."""
LONG = 5000
"""Steps from which the published optimiser is taken."""
TIME_MARGIN = 1.1
"""Times the expected minutes that are told to be enough: a step is not timed twice alike."""
PRETRAINING_SHARE = 0.2
LEAST_PRETRAINING = 1000
"""Steps of pre-training after which a fifth is enough."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step of each kind, and of whole trainings."""

    pretraining: float
    self_training: float
    supervised: float
    uses_unlabeled: bool

    def seconds(self, steps: int) -> tuple[float, float]:
        """Of so many steps in both stages, and of as many for the baseline."""
        if not self.uses_unlabeled:
            return steps * self.supervised, 0.0
        first = pretraining_steps(steps)
        return first * self.pretraining + (steps - first) * self.self_training, steps * self.supervised

    def steps_in(self, budget: float) -> int:
        """The most steps that take no longer than so many seconds; one more than the most that are planned at most."""
        return bisect_right(range(MOST + 2), budget, key=lambda steps: sum(self.seconds(steps))) - 1

    def minutes_for(self, steps: int, trainings: int = 1) -> int:
        """Whole minutes in which so many steps, with the baseline, are planned for each of some trainings."""
        return ceil(TIME_MARGIN * trainings * sum(self.seconds(steps)) / 60)


@dataclass(frozen=True)
class TrainingLength:
    """Steps of the two stages, the first 0 where nothing is unlabeled, folds, and the expected seconds of parts."""

    pretraining: int
    training: int
    folds: int | None
    seconds: float
    baseline_seconds: float
    choices: Choices
    pace: StepTimes

    @property
    def trainings(self) -> int:
        """How many networks are trained, the baselines not counted."""
        return self.folds or 1

    @property
    def minutes(self) -> float:
        """Of everything that training the plan does."""
        return self.minutes_of(self.trainings)

    def minutes_of(self, trainings: int) -> float:
        """Of so many networks of as many steps, each with its baseline."""
        return trainings * (self.seconds + self.baseline_seconds) / 60


def choose_length(
    *,
    uses_unlabeled: bool,
    operations: float,
    speed: Speed,
    dimensions: int,
    kind: str,
    minutes: float | None,
    labeled: int,
    has_test: bool,
) -> TrainingLength:
    """Steps that fit. ``operations`` are those of a forward pass of all images of one stream in a batch."""
    first, second, alone = (speed.seconds(work * operations) for work in (PRETRAIN, SELF_TRAINING, SUPERVISED))
    pace = StepTimes(first, second, alone, uses_unlabeled)
    budget = 60 * (MINUTES[kind] if minutes is None else minutes)
    most = PUBLISHED[dimensions] if minutes is None else MOST
    suggested = suggested_folds(labeled, has_test=has_test)
    folds = suggested if suggested and pace.steps_in(budget / suggested) >= LEAST_FOLD_STEPS else None
    fits = pace.steps_in(budget / (folds or 1))
    steps = round_down(min(max(fits, FEWEST), most))
    begun = pretraining_steps(steps) if uses_unlabeled else 0
    asked = f"{MINUTES[kind]:g} minutes (--minutes changes it)" if minutes is None else requested_minutes(minutes)
    bound = _bound(fits, most, minutes, asked)
    choices = _stage_choices(begun, steps - begun, bound) | _optimizer_choices(2 if uses_unlabeled else 1, steps)
    choices["folds"] = Choice(folds, _fold_reason(folds, suggested, labeled, has_test, asked))
    choices["baseline"] = Choice(
        uses_unlabeled,
        "a supervised run of as many steps beside it: what the unlabeled scans were worth"
        if uses_unlabeled
        else "it is one",
    )
    return TrainingLength(begun, steps - begun, folds, *pace.seconds(steps), choices, pace)


def pretraining_steps(steps: int) -> int:
    """How many of all steps make the first teacher: a fifth, but of few steps up to half.

    A teacher that has not yet learnt a class never labels it, and the student unlearns it.
    """
    return max(1, round_down(max(PRETRAINING_SHARE * steps, min(LEAST_PRETRAINING, steps / 2))))


def round_down(number: float) -> int:
    """To two leading digits, and to an integer."""
    if number < 100:
        return int(number)
    unit = 10 ** (floor(log10(number)) - 1)
    return int(number // unit * unit)


def _bound(fits: float, most: int, minutes: float | None, asked: str) -> str:
    if fits < FEWEST:
        return f"the fewest that make sense; they take longer than the {asked}"
    if fits > most:
        return (
            "as many as published, with time left" if minutes is None else f"the most that are planned, within {asked}"
        )
    return f"both stages and the baseline take the {asked}"


def _stage_choices(first: int, second: int, bound: str) -> Choices:
    if not first:
        return {
            "stages.0.method": Choice("supervised", "there is no unlabeled scan to learn from"),
            "stages.0.steps": Choice(second, bound.replace("both stages and the baseline", "they")),
        }
    return {
        "stages.0.method": Choice("bcp-pretrain", "copy-paste between labeled scans makes the first teacher"),
        "stages.0.steps": Choice(first, _first_reason(first, first + second)),
        "stages.1.method": Choice("bcp", "bidirectional copy-paste between labeled and unlabeled scans"),
        "stages.1.steps": Choice(second, bound),
    }


def _first_reason(first: int, steps: int) -> str:
    if first <= PRETRAINING_SHARE * steps:
        return "a fifth of all steps: its pseudo-labels only have to be a start"
    return "more than the usual fifth: a class that the first teacher has not learnt would be unlearnt"


def _optimizer_choices(stages: int, steps: int) -> Choices:
    choices: Choices = {}
    for number in range(stages):
        place = f"stages.{number}.optimizer"
        if steps < LONG:
            choices[f"{place}.name"] = Choice("adam", f"gets further than SGD in {steps} steps")
            choices[f"{place}.learning_rate"] = Choice(0.001, "at the start; the usual one of Adam")
        else:
            choices[f"{place}.name"] = Choice("sgd", "as published")
            choices[f"{place}.learning_rate"] = Choice(0.01, "at the start; as published")
        choices[f"{place}.schedule.name"] = Choice(
            "poly",
            "falls to zero, so that the last network, the one reported, does not hang on its last few steps; with the "
            "published constant rate a network had to be picked by its score",
        )
    return choices


def _fold_reason(folds: int | None, suggested: int | None, labeled: int, has_test: bool, asked: str) -> str:
    if folds:
        return "there is no test set, so every labeled scan is scored by a network that never saw it"
    if has_test:
        return "none: there is a test set"
    if suggested is None:
        return f"none: {labeled} labeled scan cannot be divided"
    return (
        f"none: {suggested} of them within the {asked} would leave each too few steps; --folds {suggested} makes them"
    )
