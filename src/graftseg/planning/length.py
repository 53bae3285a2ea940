"""The length of training: the number of steps that fit into the available time, and an optimizer for this number."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from graftseg.core.errors import Code, UserError
from graftseg.methods import METHODS
from graftseg.ops.optimizers import RAMP_INTERVAL
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.cost import SELF_TRAINING, SUPERVISED, Speed
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame
from graftseg.training.final_check import MAX_SCANS
from graftseg.training.folds import suggested_folds
from graftseg.training.teacher_check import INTERVALS, MAX_WATCHED, MIN_SCANS

DEFAULT_MINUTES = 60.0
MAX_MINUTES = 1_000_000
"""Upper limit of --minutes: about two years."""
PUBLISHED_STEPS = {2: 40_000, 3: 17_000}
"""Total steps of both stages in the paper, for 2-D and 3-D. Without --minutes, a plan has at most this number."""
MAX_STEPS, MIN_STEPS = 100_000, 400
ROUND_STEPS = (*range(1, 100), *(n * unit for unit in (10, 100, 1000) for n in range(10, 100)), MAX_STEPS, 110_000)
"""Numbers with two significant digits. A plan has one of these numbers of steps. The last says that more would fit."""
MIN_FOLD_STEPS = 2000
"""Minimum number of steps per fold. If the time allows fewer, no folds are planned."""
MIN_PUBLISHED_STEPS = 5000
"""Minimum number of steps for the published optimizer. Shorter runs use Adam."""
MAX_RATIO_ERROR = 2.5
"""Maximum factor between the measured and the expected ratio of both step times on a CPU. On an idle core, only MC-Net
for volumes is above 1.5, at 2.3."""
TIME_MARGIN = 1.1
"""The recommended minutes are the expected minutes times this factor, because measured step times vary."""
FIRST_FRACTION, MAX_FIRST_FRACTION = 0.3, 0.6
MIN_FIRST_STEPS = 5000
"""If ``FIRST_FRACTION`` of all steps is fewer than this, the first stage takes up to ``MAX_FIRST_FRACTION``."""
MIN_UNLABELED_STEPS = 400
"""If fewer steps fit with unlabeled scans, a plan is supervised, because they lowered the score of shorter runs."""
RAMP_FRACTION = 0.4
"""Fraction of the second stage after which the weight of unlabeled scans has risen to its maximum."""
DEFAULT_METHOD = "graft"
METHOD_REASONS = {
    "graft": "pseudo-labels for unlabeled scans, weighted by the confidence of the teacher",
    "bcp": "bidirectional copy-paste between labeled and unlabeled scans",
    "fg-cutmix": "patches exchanged between labeled and unlabeled scans",
    "mean-teacher": "predictions that agree with a mean teacher under noise",
    "ua-mt": "predictions that agree with a mean teacher where it is certain",
    "mc-net": "decoders that agree with one another",
}
TEACHER_LAG = 20.0
MIN_DECAY, MAX_DECAY = 0.8, 0.99
"""The EMA decay of the teacher is ``1 - TEACHER_LAG / steps``, within these limits."""
OTHER_NETWORKS = {"mc-net"}
"""Methods whose networks have other weights than a supervised network."""
ADAM_REACH = 4.0
MIN_ADAM_RATE, MAX_ADAM_RATE = 1e-3, 1e-2
"""Adam changes a weight by at most the learning rate per step. The rate of a short run is ``ADAM_REACH`` divided by its
steps, within these limits, so that every weight can move far enough."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds per step of both stages, and per prediction of an unlabeled scan. The first stage and the baseline are
    supervised.

    Without ``uses_unlabeled``, a run is one supervised stage, and has no baseline and no predictions.
    """

    self_training: float
    supervised: float
    uses_unlabeled: bool
    prediction: float = 0.0
    unlabeled: int = 0

    def seconds(self, steps: int) -> tuple[float, float]:
        """Return the seconds that a run with this number of steps takes, and the seconds that its baseline takes.

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
        final = 0 if folds else 2 * min(self.unlabeled, MAX_SCANS)
        return (self.unlabeled + (INTERVALS - 1) * min(self.unlabeled, MAX_WATCHED) + final) * self.prediction

    def second_check_seconds(self, folds: int | None) -> float:
        """Return the seconds that all runs take in addition if each checks its teacher a second time."""
        return (folds or 1) * self.unlabeled * self.prediction if self.uses_unlabeled else 0.0

    def total_seconds(self, steps: int, folds: int | None) -> float:
        """Return the seconds of all runs with their baselines and predictions."""
        return (folds or 1) * (sum(self.seconds(steps)) + self.check_seconds(folds))

    def round_steps_in(self, budget: float, folds: int | None) -> int:
        """Return the largest of ``ROUND_STEPS`` for which everything fits into ``budget`` seconds, or 0."""
        return max((steps for steps in ROUND_STEPS if self.total_seconds(steps, folds) <= budget), default=0)

    def steps_in(self, budget: float) -> int:
        """Return the number of steps of a run in ``budget`` seconds, without baseline and predictions."""
        return bisect_right(range(MAX_STEPS + 1), budget, key=lambda steps: self.seconds(steps)[0]) - 1

    def minutes_for(self, steps: int, folds: int | None = None) -> int:
        """Return the --minutes to recommend, so that this number of steps fits."""
        return ceil(TIME_MARGIN * self.total_seconds(steps, folds) / 60)


@dataclass(frozen=True)
class TrainingLength:
    """Steps of both stages, folds, and the seconds per step. ``first`` is 0 if the plan is supervised.

    ``fits`` is the number of steps that fit into the time. A plan may have more steps, because it has a minimum.
    """

    first: int
    second: int
    fits: int
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
    """Raise if the requested minutes are not positive or too large."""
    if minutes is not None and not 0 < minutes < MAX_MINUTES:
        remedy = f"give minutes above 0 and below {MAX_MINUTES}"
        raise UserError(Code.OPTION_INVALID, f"--minutes {minutes:g}", "not a valid training time", remedy)


def estimated_times(speed: Speed, operations: float, method: str) -> StepTimes:
    """Estimate the seconds per step; ``operations`` is the cost of a forward pass over the labeled images."""
    self_training, supervised = (speed.seconds(work * operations) for work in (SELF_TRAINING[method], SUPERVISED))
    return StepTimes(self_training, supervised, uses_unlabeled=True)


def plausible_times(self_training: float, supervised: float, expected: float) -> tuple[float, float]:
    """Return both step times with a plausible ratio near ``expected``, and at least one of them unchanged.

    The longer one is reduced, because other programs only lengthen a measured time.
    """
    longest = (supervised * expected * MAX_RATIO_ERROR, self_training / expected * MAX_RATIO_ERROR)
    return min(self_training, longest[0]), min(supervised, longest[1])


def choose_length(
    facts: Facts, frame: Frame, step_times: StepTimes, minutes: float | None, method: str
) -> TrainingLength:
    """Choose steps and folds."""
    uses_unlabeled = step_times.uses_unlabeled
    budget = 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    most = PUBLISHED_STEPS[frame.dimensions] if minutes is None else MAX_STEPS
    suggested = suggested_folds(facts.labeled, has_test=facts.has_test)
    folds = suggested if suggested and step_times.round_steps_in(budget, suggested) >= MIN_FOLD_STEPS else None
    fits = step_times.round_steps_in(budget, folds)
    steps = min(max(fits, MIN_STEPS), most)
    first_steps = first_stage_steps(steps) if uses_unlabeled else 0
    limit = f"{DEFAULT_MINUTES:g} minutes (change with --minutes)" if minutes is None else requested(minutes)
    choices = stage_choices(first_steps, steps - first_steps, _steps_reason(fits, most, minutes, limit), method)
    if not uses_unlabeled:
        choices["stages.0.method"] = Choice("supervised", _supervised_reason(facts, limit))
    choices |= optimizer_choices([first_steps, steps - first_steps] if uses_unlabeled else [steps])
    choices["folds"] = Choice(folds, _fold_reason(facts, folds, suggested, limit))
    comparison = "also train a supervised run with the same number of steps, to measure the benefit of unlabeled scans"
    choices["baseline"] = Choice(uses_unlabeled, comparison if uses_unlabeled else "this recipe is already supervised")
    choices["average_with_baseline"] = choose_average(method if uses_unlabeled else None, steps)
    return TrainingLength(first_steps, steps - first_steps, fits, folds, choices, step_times)


def choose_average(method: str | None, steps: int) -> Choice:
    """Choose whether to average the weights of the run and its baseline. ``method`` is None without unlabeled scans."""
    if method is None:
        return Choice(False, "there is only one network")
    if method in OTHER_NETWORKS:
        return Choice(False, f"the network of {method} differs from the network of the baseline")
    if steps >= MIN_PUBLISHED_STEPS:
        return Choice(False, "in a long run, the weights of both networks become too different")
    return Choice(True, "the average of both networks gains nearly as much in a short run, and rarely loses")


def requested(minutes: float) -> str:
    """Return the requested minutes as a phrase."""
    return "requested minute" if minutes == 1 else f"requested {minutes:g} minutes"


def first_stage_steps(steps: int) -> int:
    """Return the number of steps of the first stage: three tenths of all steps, or up to six tenths of a short run.

    The first stage trains the first teacher. If the teacher has not learned a class, the student unlearns this class.
    """
    return max(1, round_down(max(FIRST_FRACTION * steps, min(MIN_FIRST_STEPS, MAX_FIRST_FRACTION * steps))))


def round_down(number: float) -> int:
    """Round down to an integer with two significant digits."""
    if number < 100:
        return int(number)
    unit = 10 ** (floor(log10(number)) - 1)
    return int(number // unit * unit)


def _supervised_reason(facts: Facts, limit: str) -> str:
    if facts.unlabeled < MIN_SCANS:
        return "there are too few unlabeled scans"
    return f"with the unlabeled scans, fewer than {MIN_UNLABELED_STEPS} steps would fit into the {limit}"


def _steps_reason(fits: int, most: int, minutes: float | None, limit: str) -> str:
    if fits < MIN_STEPS:
        return f"the minimum number of steps of a plan, although it takes longer than the {limit}"
    if fits > most:
        return "as published; the time allows more" if minutes is None else f"the maximum; the {limit} would allow more"
    return f"the number that fits into the {limit}"


def stage_choices(first: int, second: int, reason: str, method: str) -> Choices:
    """Choose methods, steps and length-dependent settings of the stages. Without a first stage, choose one stage."""
    if not first:
        supervised = Choice("supervised", "no unlabeled scans are used")
        return {"stages.0.method": supervised, "stages.0.steps": Choice(second, reason)}
    fraction = first / (first + second)
    choices = {
        "stages.0.method": Choice("supervised", "labeled scans train the first teacher"),
        "stages.0.steps": Choice(first, f"{fraction:.0%} of all steps, because self-training needs a good teacher"),
        "stages.1.method": Choice(method, METHOD_REASONS[method]),
        "stages.1.steps": Choice(second, reason),
        "stages.1.check_teacher": Choice(True, "leave out scans with implausible predictions of the first stage"),
    }
    settings = METHODS[method].Config.model_fields
    if "ema_decay" in settings:
        decay = teacher_decay(second)
        lag = "the teacher follows the student slowly, but fast enough for the length of the stage"
        choices["stages.1.settings.ema_decay"] = Choice(decay, lag)
    if "direction" in settings:
        is_short = first + second < MIN_PUBLISHED_STEPS
        direction = "no pasting, which pays off only in longer runs" if is_short else "paste crops in both directions"
        choices["stages.1.settings.direction"] = Choice("none" if is_short else "both", direction)
    if "ramp" in settings:
        rises = float(f"{max(RAMP_FRACTION * second / RAMP_INTERVAL, 0.1):.2g}")
        choices["stages.1.settings.ramp"] = Choice(rises, f"full weight after {RAMP_FRACTION:.0%} of the stage")
    return choices


def teacher_decay(steps: int) -> float:
    """Return the EMA decay of the teacher, which averages the student over about ``1 / (1 - decay)`` steps.

    Within the limits of the decay, this average covers a twentieth of the stage. In a short stage, a teacher that
    averages over more steps keeps the student at the quality of the first stage.
    """
    return float(f"{min(max(1 - TEACHER_LAG / steps, MIN_DECAY), MAX_DECAY):.3g}")


def optimizer_choices(stages: Sequence[int]) -> Choices:
    """Choose the optimizer of stages with these numbers of steps."""
    is_short = sum(stages) < MIN_PUBLISHED_STEPS
    decay = "decays to zero, so that the last steps change the network little and no checkpoint has to be selected"
    schedule = Choice("poly", decay)
    constant = Choice("constant", "constant in the first stage; the rate decays in the last stage")
    name, rate = Choice("sgd", "as published"), Choice(0.01, "initial value; as published")
    if is_short:
        name = Choice("adam", f"learns faster than SGD in {sum(stages)} steps")
        rate = Choice(adam_rate(sum(stages)), f"initial value; high, because the run has only {sum(stages)} steps")
    choices: Choices = {}
    for stage in range(len(stages)):
        is_last = stage == len(stages) - 1
        chosen = {"name": name, "learning_rate": rate, "schedule.name": schedule if is_last else constant}
        choices |= {f"stages.{stage}.optimizer.{key}": choice for key, choice in chosen.items()}
    if len(stages) > 1:
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
        return f"none, because {facts.labeled} labeled scan cannot be divided"
    return f"none, because {suggested} folds would be too short within the {limit}; --folds {suggested} forces folds"
