"""Sentences that say whether unlabeled scans helped, given two runs scored on the same cases."""

import math
from collections.abc import Iterator
from dataclasses import replace

from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import Effect, effect_of, paired

MAX_P = 0.05
"""A difference is significant if Wilcoxon's p is below this and the interval excludes zero."""
MIN_DIFFERENCE = 0.5
"""Points of Dice below which a difference is too small to matter."""
MIN_CASES = 6
"""Number of cases needed for Wilcoxon's p to fall below ``MAX_P``."""
MIN_DICE = 50.0
"""Mean Dice in percent that at least one run must reach for a meaningful comparison."""
ONE_TRAINING = "in this one training"
SEVERAL_TRAININGS = "in these trainings"


def verdict_between(baseline: Evaluation, run: Evaluation, trainings: str = ONE_TRAINING) -> str:
    """Return one sentence that compares two evaluations of the same cases.

    Classes that neither network finds are left out, because they would hide the other classes.
    """
    lost = {name: label for label, name in never_found(baseline).items() if label in never_found(run)}
    rest = [_without(one, set(lost.values())) for one in (baseline, run)]
    if not lost or not rest[0].rows or not rest[1].rows:
        return verdict(_dice_effect(baseline, run), trainings)
    return f"without {' and '.join(lost)}, which neither network finds: {verdict(_dice_effect(*rest), trainings)}"


def missed_classes(who: str, evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each class that is never found; a mean over classes may hide this."""
    for label, name in never_found(evaluation).items():
        cases = sum(row.label == label and not math.isnan(row.dice) for row in evaluation.rows)
        yield f"{who} finds {name} right in none of {cases} cases, which makes its distances large"


def never_found(evaluation: Evaluation) -> dict[int, str]:
    """Return label and name of the classes with a Dice of 0 in every scored case."""
    scored = sorted((row.label, row.name, row.dice) for row in evaluation.rows if not math.isnan(row.dice))
    found = {label for label, _, dice in scored if dice > 0}
    return {label: name for label, name, _ in scored if label not in found}


def _without(evaluation: Evaluation, labels: set[int]) -> Evaluation:
    return replace(evaluation, rows=tuple(row for row in evaluation.rows if row.label not in labels))


def _dice_effect(baseline: Evaluation, run: Evaluation) -> Effect:
    """Return the effect on the mean Dice over classes; ``paired`` puts this mean last."""
    return effect_of([pairs for pairs in paired(baseline, run) if pairs.metric == "dice"][-1])


def verdict(effect: Effect, trainings: str = ONE_TRAINING) -> str:
    """Return one sentence on the mean Dice, in percent, of a run (second) and its baseline (first)."""
    if not effect.count:
        return "no class of the test cases could be scored"
    found = (
        f"mean Dice {effect.second:.2f} % with the unlabeled scans and {effect.first:.2f} % without, "
        f"{effect.difference:+.2f} points"
    )
    if math.isnan(effect.low):
        return f"{found}, in a single case, which shows nothing"
    statistics = f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}, p = {effect.p:.2g}{_smallest_p(effect)}"
    return f"{found} ({statistics}), better in {effect.better} of {effect.count} cases: {_meaning(effect, trainings)}"


def _smallest_p(effect: Effect) -> str:
    """Return the smallest possible p if there are too few cases for a p that agrees with the interval."""
    if effect.count >= MIN_CASES or effect.low <= 0 <= effect.high:
        return ""
    return f", which {effect.count} cases cannot bring below {2 / 2**effect.count:.2g}"


def _meaning(effect: Effect, trainings: str) -> str:
    if max(effect.first, effect.second) < MIN_DICE:
        return "neither network is good enough for that to mean anything"
    if effect.count < MIN_CASES:
        return f"fewer than {MIN_CASES} cases cannot show whether they helped"
    if effect.low <= 0 <= effect.high or not effect.p < MAX_P:
        return "these cases do not show whether they helped"
    if abs(effect.difference) < MIN_DIFFERENCE:
        return "too little to matter"
    return f"they {'helped' if effect.difference > 0 else 'did harm'}, {trainings}"
