"""What two runs on the same cases say of the unlabeled scans, in words that claim no more than the cases show."""

import math
from collections.abc import Iterator
from dataclasses import replace

from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import Effect, effect_of, paired

LIKELY = 0.05
"""Below this p of Wilcoxon's test, and with an interval on one side of zero, a difference is more than chance."""
MATTERS = 0.5
"""Points of Dice below which a difference is of no use, however sure it is."""
MIN_CASES = 6
"""Cases from which on Wilcoxon's p can be that small."""
USABLE = 50.0
"""Mean Dice in percent that one of the two must reach for their difference to mean anything."""
ONE_TRAINING = "in this one training"
SEVERAL_TRAININGS = "in these trainings"


def verdict_between(baseline: Evaluation, run: Evaluation, trainings: str = ONE_TRAINING) -> str:
    """One sentence on two evaluations of the same cases; a class that neither network finds would hide the others."""
    lost = {name: label for label, name in never_found(baseline).items() if label in never_found(run)}
    rest = [_without(one, set(lost.values())) for one in (baseline, run)]
    if not lost or not rest[0].rows or not rest[1].rows:
        return verdict(_dice(baseline, run), trainings)
    return f"without {' and '.join(lost)}, which neither network finds: {verdict(_dice(*rest), trainings)}"


def missed_classes(who: str, evaluation: Evaluation) -> Iterator[str]:
    """A sentence for each class that is never found, which a mean over classes may hide."""
    for label, name in never_found(evaluation).items():
        cases = sum(row.label == label and not math.isnan(row.dice) for row in evaluation.rows)
        yield f"{who} finds {name} right in none of {cases} cases, which makes its distances large"


def never_found(evaluation: Evaluation) -> dict[int, str]:
    """The classes, by their values, of which no voxel was found right in any case that was scored."""
    found: dict[int, str] = {}
    for label, name in sorted({(row.label, row.name) for row in evaluation.rows}):
        rows = [row for row in evaluation.rows if row.label == label and not math.isnan(row.dice)]
        if rows and not any(row.dice > 0 for row in rows):
            found[label] = name
    return found


def _without(evaluation: Evaluation, labels: set[int]) -> Evaluation:
    return replace(evaluation, rows=tuple(row for row in evaluation.rows if row.label not in labels))


def _dice(baseline: Evaluation, run: Evaluation) -> Effect:
    """The mean over classes is the last, and with a single class the class itself."""
    return effect_of([pairs for pairs in paired(baseline, run) if pairs.figure == "dice"][-1])


def verdict(effect: Effect, trainings: str = ONE_TRAINING) -> str:
    """One sentence on the mean Dice, in percent, of a run (the second) and of its baseline (the first)."""
    if not effect.count:
        return "no class of the test cases could be scored"
    found = (
        f"mean Dice {effect.second:.2f} % with the unlabeled scans and {effect.first:.2f} % without, "
        f"{effect.difference:+.2f} points"
    )
    if math.isnan(effect.low):
        return f"{found}, in a single case, which shows nothing"
    sure = f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}, p = {effect.p:.2g}{_least(effect)}"
    return f"{found} ({sure}), better in {effect.better} of {effect.count} cases: {_meaning(effect, trainings)}"


def _least(effect: Effect) -> str:
    """Why a large p stands beside an interval on one side of zero: so few cases give no smaller one."""
    if effect.count >= MIN_CASES or effect.low <= 0 <= effect.high:
        return ""
    return f", which {effect.count} cases cannot bring below {2 / 2**effect.count:.2g}"


def _meaning(effect: Effect, trainings: str) -> str:
    if max(effect.first, effect.second) < USABLE:
        return "neither network is good enough for that to mean anything"
    if effect.count < MIN_CASES:
        return f"fewer than {MIN_CASES} cases cannot show whether they helped"
    if effect.low <= 0 <= effect.high or not effect.p < LIKELY:
        return "these cases do not show whether they helped"
    if abs(effect.difference) < MATTERS:
        return "too little to matter"
    return f"they {'helped' if effect.difference > 0 else 'did harm'}, {trainings}"
