"""The length of training: the number of steps that fit into the time, and the settings that depend on this number.

A run with unlabeled scans has two stages: supervised training, then self-training. Its baseline continues from the same
first stage without unlabeled scans. In a short run, the weights of both networks are averaged at the end.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from graftseg.core.errors import Code, UserError
from graftseg.core.planned_methods import PLANNED_METHODS
from graftseg.core.teacher_checks import MIN_SCANS
from graftseg.methods import METHODS
from graftseg.ops.optimizers import RAMP_INTERVAL
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame
from graftseg.training.folds import suggested_folds
from graftseg.training.teacher_check import INTERVALS, MAX_COMPARED, MAX_WATCHED

DEFAULT_MINUTES = 60.0
MAX_MINUTES = 1_000_000
"""Upper limit of --minutes: about two years."""
PUBLISHED_STEPS = {2: 40_000, 3: 17_000}
"""Total steps of both stages in the paper, for 2-D and 3-D. Without --minutes, a plan has at most this number."""
MAX_STEPS, MIN_STEPS = 100_000, 400
ROUND_STEPS = (*range(1, 100), *(n * unit for unit in (10, 100, 1000) for n in range(10, 100)), MAX_STEPS, 110_000)
"""Possible numbers of steps, with at most two significant digits. 110,000 means that more than ``MAX_STEPS`` fit."""
MIN_FOLD_STEPS = 2000
"""Minimum number of steps per fold. If the time allows fewer, no folds are planned."""
MIN_USEFUL_STEPS = 1500
"""A plan with fewer steps has a warning that the network will not be good."""
MIN_LONG_STEPS = {"cpu": 20_000, "cuda": 5_000}
"""Minimum number of steps of a long run by kind of device.

Long runs use the published optimizer and copy-paste. Short runs use Adam and the average, without copy-paste.
"""
MAX_RATIO_ERROR = 2.5
"""Maximum deviation of the ratio of the step times on a CPU (self-training to supervised) from its expected value.

It is a factor. On an idle core, it is 2.3 for MC-Net on volumes and below 1.5 otherwise.
"""
TIME_MARGIN = 1.1
"""The recommended minutes are the expected minutes times this factor, because measured step times vary."""
FIRST_FRACTION, MAX_FIRST_FRACTION = 0.3, 0.6
MIN_FIRST_STEPS = 5000
"""The first stage takes ``FIRST_FRACTION`` of all steps, but at least ``MIN_FIRST_STEPS`` if these are at most
``MAX_FIRST_FRACTION`` of all steps, and otherwise ``MAX_FIRST_FRACTION``."""
MIN_UNLABELED_STEPS = 400
"""If fewer steps fit, a plan uses no unlabeled scans, because they lowered the score of such runs."""
RAMP_FRACTION = 0.4
"""Fraction of the second stage after which the weight of unlabeled scans has risen to its maximum."""
TEACHER_LAG = 20.0
MIN_DECAY, MAX_DECAY = 0.8, 0.99
"""The EMA decay of the teacher is ``1 - TEACHER_LAG / steps``, within these limits."""
OTHER_NETWORKS = {"mc-net"}
"""Methods whose networks have other layers than a supervised network."""
ADAM_REACH = 4.0
MIN_ADAM_RATE, MAX_ADAM_RATE = 1e-3, 1e-2
"""The learning rate of Adam is ``ADAM_REACH / steps``, within these limits.

Adam changes a weight by at most the learning rate per step, so a short run needs a high rate.
"""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of steps and predictions, to calculate the time of a run.

    self_training: seconds per step of the second stage
    supervised: seconds per step of the first stage and of the baseline
    uses_unlabeled: if false, a run is one supervised stage without a baseline and without predictions
    prediction: seconds to predict an unlabeled scan
    unlabeled: number of unlabeled scans
    compared_networks: number of networks that predict unlabeled scans after training, to compare them
    """

    self_training: float
    supervised: float
    uses_unlabeled: bool
    prediction: float = 0.0
    unlabeled: int = 0
    compared_networks: int = 2

    def seconds(self, steps: int) -> tuple[float, float]:
        """Return the seconds of a run with this number of steps, and the additional seconds of its baseline.

        The baseline continues from the first stage of the run, so only its second stage takes time.
        """
        if not self.uses_unlabeled:
            return steps * self.supervised, 0.0
        first = first_stage_steps(steps)
        return first * self.supervised + (steps - first) * self.self_training, (steps - first) * self.supervised

    def check_seconds(self, folds: int | None) -> float:
        """Return the seconds to predict unlabeled scans in one run: before and during self-training, and at the end."""
        if not self.uses_unlabeled:
            return 0.0
        during = (INTERVALS - 1) * min(self.unlabeled, MAX_WATCHED)
        final = 0 if folds else self.compared_networks * min(self.unlabeled, MAX_COMPARED)
        return (self.unlabeled + during + final) * self.prediction

    def second_check_seconds(self, folds: int | None) -> float:
        """Return the additional seconds if the teacher is checked a second time in every run."""
        return (folds or 1) * self.unlabeled * self.prediction if self.uses_unlabeled else 0.0

    def total_seconds(self, steps: int, folds: int | None) -> float:
        """Return the seconds of all runs with their baselines and predictions: one run, or one per fold."""
        return (folds or 1) * (sum(self.seconds(steps)) + self.check_seconds(folds))

    def round_steps_in(self, budget: float, folds: int | None) -> int:
        """Return the largest of ``ROUND_STEPS`` whose ``total_seconds`` are at most ``budget``, or 0."""
        return max((steps for steps in ROUND_STEPS if self.total_seconds(steps, folds) <= budget), default=0)

    def steps_in(self, budget: float, *, baseline: bool = False) -> int:
        """Return the largest number of steps, at most ``MAX_STEPS``, of a run in ``budget`` seconds.

        With ``baseline``, the time includes the baseline of the run. The time of predictions is not included.
        """
        runs = 2 if baseline else 1
        return bisect_right(range(MAX_STEPS + 1), budget, key=lambda steps: sum(self.seconds(steps)[:runs])) - 1

    def minutes_for(self, steps: int, folds: int | None = None) -> int:
        """Return the ``--minutes`` for this number of steps, with a margin."""
        return ceil(TIME_MARGIN * self.total_seconds(steps, folds) / 60)


@dataclass(frozen=True)
class TrainingLength:
    """The number of steps and folds of a plan.

    first: steps of the first stage, 0 if the plan is supervised
    second: steps of the second stage
    fitting: number of steps that fit into the time, which may be below the minimum of a plan
    folds: number of folds, or None
    choices: the settings that depend on the length
    times: seconds of steps and predictions
    """

    first: int
    second: int
    fitting: int
    folds: int | None
    choices: Choices
    times: StepTimes

    @property
    def steps(self) -> int:
        """Return the number of steps of both stages."""
        return self.first + self.second

    @property
    def total_seconds(self) -> float:
        """Return the expected seconds of all folds with their baselines and predictions."""
        return self.times.total_seconds(self.steps, self.folds)


def check_minutes(minutes: float | None) -> None:
    """Raise a UserError if the requested minutes are not positive or too large."""
    if minutes is not None and not 0 < minutes < MAX_MINUTES:
        remedy = f"give minutes above 0 and below {MAX_MINUTES}"
        raise UserError(Code.OPTION_INVALID, f"--minutes {minutes:g}", "not a valid training time", remedy)


def seconds_in(minutes: float | None) -> float:
    """Return the time of a plan in seconds."""
    return 60 * (DEFAULT_MINUTES if minutes is None else minutes)


def plausible_times(self_training: float, supervised: float, expected_ratio: float) -> tuple[float, float]:
    """Return both measured step times. Reduce one if their ratio is too far from ``expected_ratio``.

    The time that is too long is reduced, because other programs only lengthen a measured time.
    """
    longest_self_training = supervised * expected_ratio * MAX_RATIO_ERROR
    longest_supervised = self_training / expected_ratio * MAX_RATIO_ERROR
    return min(self_training, longest_self_training), min(supervised, longest_supervised)


def choose_length(
    facts: Facts, frame: Frame, step_times: StepTimes, minutes: float | None, method: str, kind: str
) -> TrainingLength:
    """Choose the number of steps and folds for a kind of device."""
    uses_unlabeled = step_times.uses_unlabeled
    budget = seconds_in(minutes)
    max_steps = PUBLISHED_STEPS[frame.dimensions] if minutes is None else MAX_STEPS
    suggested = suggested_folds(facts.labeled_count, has_test=facts.has_test)
    folds = suggested if suggested and step_times.round_steps_in(budget, suggested) >= MIN_FOLD_STEPS else None
    fitting = step_times.round_steps_in(budget, folds)
    steps = min(max(fitting, MIN_STEPS), max_steps)
    first = first_stage_steps(steps) if uses_unlabeled else 0
    limit = f"{DEFAULT_MINUTES:g} minutes (change with --minutes)" if minutes is None else requested_time(minutes)
    short = is_short(steps, kind)
    steps_reason = _steps_reason(fitting, max_steps, minutes, limit)
    choices = stage_choices(first, steps - first, steps_reason, method, short=short)
    if not uses_unlabeled:
        choices["stages.0.method"] = Choice("supervised", _supervised_reason(facts, limit))
    choices |= optimizer_choices([first, steps - first] if uses_unlabeled else [steps], short=short)
    choices["folds"] = Choice(folds, _fold_reason(facts, folds, suggested, limit))
    comparison = "also train a supervised run with the same number of steps, to measure the benefit of unlabeled scans"
    choices["baseline"] = Choice(uses_unlabeled, comparison if uses_unlabeled else "this recipe is already supervised")
    choices["average_with_baseline"] = choose_average(method if uses_unlabeled else None, short=short)
    return TrainingLength(first, steps - first, fitting, folds, choices, step_times)


def is_short(steps: int, kind: str) -> bool:
    """Return whether a run with this number of steps on a kind of device is short."""
    return steps < MIN_LONG_STEPS[kind]


def choose_average(method: str | None, *, short: bool) -> Choice:
    """Choose whether to average the weights of the run and its baseline. ``method`` is None without unlabeled scans."""
    if method is None:
        return Choice(False, "there is only one network")
    if method in OTHER_NETWORKS:
        return Choice(False, f"the network of {method} differs from the network of the baseline")
    if not short:
        return Choice(False, "in a long run, the weights of both networks become too different")
    return Choice(True, "in short runs, the average of run and baseline loses less often than the network of the run")


def requested_time(minutes: float) -> str:
    """Return the requested minutes as a phrase."""
    return "requested minute" if minutes == 1 else f"requested {minutes:g} minutes"


def first_stage_steps(steps: int) -> int:
    """Return the number of steps of the first stage, from three to six tenths of all steps.

    The first stage trains the first teacher. A class that this teacher does not know is unlearned by the student.
    """
    return max(1, round_down(max(FIRST_FRACTION * steps, min(MIN_FIRST_STEPS, MAX_FIRST_FRACTION * steps))))


def round_down(number: float) -> int:
    """Round down to an integer with two significant digits."""
    if number < 100:
        return int(number)
    unit = 10 ** (floor(log10(number)) - 1)
    return int(number // unit * unit)


def _supervised_reason(facts: Facts, limit: str) -> str:
    if facts.unlabeled_count < MIN_SCANS:
        return "there are too few unlabeled scans"
    return f"with the unlabeled scans, fewer than {MIN_UNLABELED_STEPS} steps would fit into the {limit}"


def _steps_reason(fitting: int, max_steps: int, minutes: float | None, limit: str) -> str:
    if fitting < MIN_STEPS:
        return f"the minimum number of steps of a plan, although it takes longer than the {limit}"
    if fitting > max_steps:
        return "as published; the time allows more" if minutes is None else f"the maximum; the {limit} would allow more"
    return f"the number that fits into the {limit}"


def stage_choices(first: int, second: int, reason: str, method: str, *, short: bool) -> Choices:
    """Choose methods, steps and length-dependent settings of the stages: one supervised stage if ``first`` is 0."""
    if not first:
        supervised = Choice("supervised", "no unlabeled scans are used")
        return {"stages.0.method": supervised, "stages.0.steps": Choice(second, reason)}
    fraction = first / (first + second)
    choices = {
        "stages.0.method": Choice("supervised", "labeled scans train the first teacher"),
        "stages.0.steps": Choice(first, f"{fraction:.0%} of all steps, because self-training needs a good teacher"),
        "stages.1.method": Choice(method, PLANNED_METHODS[method].idea),
        "stages.1.steps": Choice(second, reason),
        "stages.1.check_teacher": Choice(True, "leave out scans with implausible predictions of the first stage"),
    }
    settings = METHODS[method].Config.model_fields
    if "ema_decay" in settings:
        decay = teacher_decay(second)
        lag = "the teacher follows the student slowly, but fast enough for the length of the stage"
        choices["stages.1.settings.ema_decay"] = Choice(decay, lag)
    if "direction" in settings:
        direction = "off, because pasting pays off only in longer runs" if short else "paste crops in both directions"
        choices["stages.1.settings.direction"] = Choice("none" if short else "both", direction)
    if "ramp" in settings:
        ramp = float(f"{max(RAMP_FRACTION * second / RAMP_INTERVAL, 0.1):.2g}")
        choices["stages.1.settings.ramp"] = Choice(ramp, f"full weight after {RAMP_FRACTION:.0%} of the stage")
    return choices


def teacher_decay(steps: int) -> float:
    """Return the EMA decay of the teacher, which averages the student over about ``1 / (1 - decay)`` steps.

    This is a twentieth of the stage, unless a limit of the decay applies. In a short stage, a slower teacher would keep
    the student at the quality of the first stage.
    """
    return float(f"{min(max(1 - TEACHER_LAG / steps, MIN_DECAY), MAX_DECAY):.3g}")


def optimizer_choices(stage_steps: Sequence[int], *, short: bool) -> Choices:
    """Choose the optimizer of the stages of a short or a long run with these numbers of steps."""
    steps = sum(stage_steps)
    decay = "decays to zero, so that the last steps change the network little and no checkpoint has to be selected"
    schedule = Choice("poly", decay)
    constant = Choice("constant", "constant in the first stage; the rate decays in the last stage")
    name, rate = Choice("sgd", "as published"), Choice(0.01, "initial value; as published")
    if short:
        name = Choice("adam", f"learns faster than SGD in {steps} steps")
        rate = Choice(adam_rate(steps), "initial value; the fewer steps, the higher")
    choices: Choices = {}
    for stage in range(len(stage_steps)):
        is_last = stage == len(stage_steps) - 1
        choices[f"stages.{stage}.optimizer.name"] = name
        choices[f"stages.{stage}.optimizer.learning_rate"] = rate
        choices[f"stages.{stage}.optimizer.schedule.name"] = schedule if is_last else constant
    if len(stage_steps) > 1:
        choices["stages.1.carry_optimizer"] = Choice(True, "continue with the optimizer of the first stage")
    return choices


def adam_rate(steps: int) -> float:
    """Return the learning rate of Adam for a run of this number of steps."""
    return float(f"{min(max(ADAM_REACH / steps, MIN_ADAM_RATE), MAX_ADAM_RATE):.2g}")


def _fold_reason(facts: Facts, folds: int | None, suggested: int | None, limit: str) -> str:
    if folds:
        return "there is no test set, so every labeled scan is scored by a network that was not trained on it"
    if facts.has_test:
        return "none, because there is a test set"
    if suggested is None:
        return f"none, because {facts.labeled_count} labeled scan cannot be divided"
    return f"none, because {suggested} folds would be too short within the {limit}; --folds {suggested} forces folds"
