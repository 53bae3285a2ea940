"""The length of training: the number of steps that fit into the available time, and an optimizer for this number."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, floor, log10

from graftseg.core.errors import Code, UserError
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.cost import PRETRAIN, SELF_TRAINING, SUPERVISED, Speed
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame
from graftseg.training.folds import suggested_folds

DEFAULT_MINUTES = 60.0
MAX_MINUTES = 1_000_000
"""Upper limit of --minutes: about two years."""
PUBLISHED_STEPS = {2: 40_000, 3: 17_000}
"""Total steps of both stages in the paper, for 2-D and 3-D. Without --minutes, a plan has at most this number."""
MAX_STEPS, MIN_STEPS = 100_000, 400
MIN_FOLD_STEPS = 2000
"""Minimum number of steps per fold. If the time allows fewer, no folds are planned."""
MIN_PUBLISHED_STEPS = 5000
"""Minimum number of steps for the published optimizer. Shorter runs use Adam."""
TIME_MARGIN = 1.1
"""The recommended minutes are the expected minutes times this factor, because measured step times vary."""
PRETRAINING_FRACTION = 0.2
MIN_PRETRAINING_STEPS = 1000
"""If a fifth of all steps is fewer than this, pre-training takes more than a fifth."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds per step of both stages and of a supervised run."""

    pretraining: float
    self_training: float
    supervised: float
    uses_unlabeled: bool

    def seconds(self, steps: int) -> tuple[float, float]:
        """Return the seconds that a run with this number of steps takes, and the seconds that its baseline takes."""
        if not self.uses_unlabeled:
            return steps * self.supervised, 0.0
        first = pretraining_steps(steps)
        return first * self.pretraining + (steps - first) * self.self_training, steps * self.supervised

    def steps_in(self, budget: float) -> int:
        """Return how many steps a run and its baseline can have in ``budget`` seconds, at most ``MAX_STEPS + 1``."""
        return bisect_right(range(MAX_STEPS + 2), budget, key=lambda steps: sum(self.seconds(steps))) - 1

    def minutes_for(self, steps: int, runs: int = 1) -> int:
        """Return the --minutes to recommend, so that ``runs`` runs of ``steps`` steps fit, each with its baseline."""
        return ceil(TIME_MARGIN * runs * sum(self.seconds(steps)) / 60)


@dataclass(frozen=True)
class TrainingLength:
    """Steps of both stages, folds, and expected seconds per fold. ``pretraining`` is 0 without unlabeled scans."""

    pretraining: int
    training: int
    folds: int | None
    seconds: float
    baseline_seconds: float
    choices: Choices
    times: StepTimes

    @property
    def total_seconds(self) -> float:
        """Return the expected seconds of all folds with their baselines."""
        return self.seconds_of(self.folds or 1)

    def seconds_of(self, runs: int) -> float:
        """Return the expected seconds for this number of runs, each with its baseline."""
        return runs * (self.seconds + self.baseline_seconds)


def check_minutes(minutes: float | None) -> None:
    """Raise if the requested minutes are not positive or too large."""
    if minutes is not None and not 0 < minutes < MAX_MINUTES:
        remedy = f"give minutes above 0 and below {MAX_MINUTES}"
        raise UserError(Code.OPTION_INVALID, f"--minutes {minutes:g}", "not a valid training time", remedy)


def choose_length(facts: Facts, frame: Frame, operations: float, speed: Speed, minutes: float | None) -> TrainingLength:
    """Choose steps and folds. ``operations`` is the cost of a forward pass over the labeled images of a batch."""
    uses_unlabeled = facts.unlabeled > 0
    first, second, alone = (speed.seconds(work * operations) for work in (PRETRAIN, SELF_TRAINING, SUPERVISED))
    step_times = StepTimes(first, second, alone, uses_unlabeled)
    budget = 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    most = PUBLISHED_STEPS[frame.dimensions] if minutes is None else MAX_STEPS
    suggested = suggested_folds(facts.labeled, has_test=facts.has_test)
    folds = suggested if suggested and step_times.steps_in(budget / suggested) >= MIN_FOLD_STEPS else None
    fits = step_times.steps_in(budget / (folds or 1))
    steps = round_down(min(max(fits, MIN_STEPS), most))
    first_steps = pretraining_steps(steps) if uses_unlabeled else 0
    limit = f"{DEFAULT_MINUTES:g} minutes (change with --minutes)" if minutes is None else requested(minutes)
    choices = _stage_choices(first_steps, steps - first_steps, _steps_reason(fits, most, minutes, limit))
    choices |= _optimizer_choices(2 if uses_unlabeled else 1, steps)
    choices["folds"] = Choice(folds, _fold_reason(facts, folds, suggested, limit))
    comparison = "also train a supervised run with the same number of steps, to measure the benefit of unlabeled scans"
    choices["baseline"] = Choice(uses_unlabeled, comparison if uses_unlabeled else "this recipe is already supervised")
    return TrainingLength(first_steps, steps - first_steps, folds, *step_times.seconds(steps), choices, step_times)


def requested(minutes: float) -> str:
    """Return the requested minutes as a phrase."""
    return "requested minute" if minutes == 1 else f"requested {minutes:g} minutes"


def pretraining_steps(steps: int) -> int:
    """Return the number of pre-training steps: a fifth of all steps, or up to half of a short run.

    Pre-training trains the first teacher. If the teacher has not learned a class, the student unlearns this class.
    """
    return max(1, round_down(max(PRETRAINING_FRACTION * steps, min(MIN_PRETRAINING_STEPS, steps / 2))))


def round_down(number: float) -> int:
    """Round down to an integer with two significant digits."""
    if number < 100:
        return int(number)
    unit = 10 ** (floor(log10(number)) - 1)
    return int(number // unit * unit)


def _steps_reason(fits: float, most: int, minutes: float | None, limit: str) -> str:
    if fits < MIN_STEPS:
        return f"the minimum number of steps of a plan, although it takes longer than the {limit}"
    if fits > most:
        return "as published; the time allows more" if minutes is None else f"the maximum; the {limit} would allow more"
    return f"the number that fits into the {limit}"


def _stage_choices(first: int, second: int, reason: str) -> Choices:
    if not first:
        method = Choice("supervised", "there are no unlabeled scans")
        return {"stages.0.method": method, "stages.0.steps": Choice(second, reason)}
    share = "more than the usual fifth, so that the first teacher learns all classes"
    if first <= PRETRAINING_FRACTION * (first + second):
        share = "a fifth of all steps, because the first pseudo-labels need not be accurate"
    return {
        "stages.0.method": Choice("bcp-pretrain", "copy-paste between labeled scans trains the first teacher"),
        "stages.0.steps": Choice(first, share),
        "stages.1.method": Choice("bcp", "bidirectional copy-paste between labeled and unlabeled scans"),
        "stages.1.steps": Choice(second, reason),
    }


def _optimizer_choices(stages: int, steps: int) -> Choices:
    name, rate = Choice("sgd", "as published"), Choice(0.01, "initial value; as published")
    if steps < MIN_PUBLISHED_STEPS:
        name = Choice("adam", f"learns faster than SGD in {steps} steps")
        rate = Choice(0.001, "initial value; the usual value for Adam")
    decay = "decays to zero, so that the last few steps change the network little"
    schedule = Choice("poly", f"{decay}; with the published constant rate, a checkpoint must be selected by its score")
    chosen = {"name": name, "learning_rate": rate, "schedule.name": schedule}
    return {f"stages.{stage}.optimizer.{key}": choice for stage in range(stages) for key, choice in chosen.items()}


def _fold_reason(facts: Facts, folds: int | None, suggested: int | None, limit: str) -> str:
    if folds:
        return "there is no test set, so every labeled scan is scored by a network that was not trained on it"
    if facts.has_test:
        return "none, because there is a test set"
    if suggested is None:
        return f"none, because {facts.labeled} labeled scan cannot be divided"
    return f"none, because {suggested} folds would be too short within the {limit}; --folds {suggested} forces folds"
