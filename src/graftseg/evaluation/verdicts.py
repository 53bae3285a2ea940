"""Sentences on whether unlabeled scans helped, from the scores of a run and its baseline on the same cases."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import Effect, effect_of, paired

MAX_P = 0.05  # a difference is significant if Wilcoxon's p is below this value and the 95 % interval excludes zero
MIN_DIFFERENCE = 0.5  # smallest difference in mean Dice, in percentage points, that matters
MIN_CASES = 6  # smallest number of cases for which Wilcoxon's p can be below ``MAX_P``
MIN_DICE = 50.0  # mean Dice in percent that at least one run must reach for a meaningful comparison
ONE_RUN = "in this one run"
SEVERAL_RUNS = "in these runs"


@dataclass(frozen=True)
class UnlabeledUse:
    """Whether a run used its unlabeled scans. By default, it used them as planned."""

    note: str = ""  # clause for the verdict if a run used its unlabeled scans only in part or not at all
    is_supervised_only: bool = False  # whether the run learned from labeled scans only


AS_PLANNED = UnlabeledUse()


def verdict_between(baseline: Evaluation, run: Evaluation, scope: str = ONE_RUN, use: UnlabeledUse = AS_PLANNED) -> str:
    """Return one sentence that compares a run with its baseline. Both were scored on the same cases.

    Classes that neither network finds are left out, because their Dice of 0 would hide differences in other classes.
    ``use`` is how the run used its unlabeled scans. ``scope`` ends a conclusion: helped "in this one run".
    """
    missed_by_run = never_found(run)
    missed = {label: name for label, name in never_found(baseline).items() if label in missed_by_run}
    remaining = [
        replace(scores, rows=tuple(row for row in scores.rows if row.label not in missed)) for scores in (baseline, run)
    ]
    if not missed or not remaining[0].rows or not remaining[1].rows:
        return verdict(dice_effect(baseline, run), scope, use)
    names = " and ".join(missed.values())
    return f"leaving out {names}, which neither network finds: {verdict(dice_effect(*remaining), scope, use)}"


def missed_classes(subject: str, evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence about ``subject`` for each class that is never found, or that some predictions lack.

    Means may hide such classes.
    """
    for label, name in never_found(evaluation).items():
        count = sum(row.label == label and not math.isnan(row.dice) for row in evaluation.rows)
        cases = "the only case" if count == 1 else f"all {count} cases"
        yield f"{subject} has a Dice of 0 for {name} in {cases}, so the distances of this class say little"
    yield from _classes_without_prediction(subject, evaluation)


def _classes_without_prediction(subject: str, evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each class that some predictions lack. 2-D images are skipped: they have no volumes."""
    counted_as = "0" if evaluation.protocol == "paper" else "the diagonal of the image"
    for label in sorted({row.label for row in evaluation.rows} - never_found(evaluation).keys()):
        rows = [row for row in evaluation.rows if row.label == label and row.volume_reference_ml > 0]
        if empty := [row for row in rows if row.volume_prediction_ml == 0]:
            first = empty[0]
            example = first.case if len(empty) == 1 else f"such as {first.case}"
            cases = f"in {len(empty)} of the {len(rows)} cases with this class ({example})"
            yield f"{subject} predicts no {first.name} {cases}; its distances there count as {counted_as}"


def never_found(evaluation: Evaluation) -> dict[int, str]:
    """Return the names, by label, of the classes with a Dice of 0 in every scored case."""
    scored = sorted((row.label, row.name, row.dice) for row in evaluation.rows if not math.isnan(row.dice))
    found = {label for label, _, dice in scored if dice > 0}
    return {label: name for label, name, _ in scored if label not in found}


def dice_effect(baseline: Evaluation, run: Evaluation) -> Effect:
    """Return the effect on the Dice averaged over classes, which is the last Dice entry of ``paired``."""
    return effect_of([pairs for pairs in paired(baseline, run) if pairs.metric == "dice"][-1])


def verdict(effect: Effect, scope: str = ONE_RUN, use: UnlabeledUse = AS_PLANNED) -> str:
    """Return one sentence on whether unlabeled scans helped a run. Draw no conclusion if none were used."""
    if not effect.count:
        return "no class of the test cases could be scored"
    means = f"mean Dice {effect.second:.2f} % of the run and {effect.first:.2f} % of its baseline"
    is_compared = not use.is_supervised_only
    sentence = _conclusion(effect, scope) if is_compared else f"{means}, {effect.difference:+.2f} points"
    return f"{sentence}; {use.note}" if use.note else sentence


def _conclusion(effect: Effect, scope: str) -> str:
    means = (
        f"mean Dice {effect.second:.2f} % with the unlabeled scans and {effect.first:.2f} % without, "
        f"{effect.difference:+.2f} points"
    )
    if math.isnan(effect.low):
        return f"{means}, in a single case, too few for a conclusion"
    statistics = effect.statistics
    if effect.count < MIN_CASES and not effect.low <= 0 <= effect.high:  # only the number of cases limits p
        statistics += f", and {effect.count} cases cannot give a p below {2 / 2**effect.count:.2g}"
    return f"{means} ({statistics}), better in {effect.better} of {effect.count} cases: {_meaning(effect, scope)}"


def _meaning(effect: Effect, scope: str) -> str:
    if max(effect.first, effect.second) < MIN_DICE:
        return "neither network is good enough for a meaningful comparison"
    if effect.count < MIN_CASES:
        return f"fewer than {MIN_CASES} cases cannot show whether the unlabeled scans helped"
    if effect.low <= 0 <= effect.high or not effect.p < MAX_P:
        return "these cases do not show whether the unlabeled scans helped"
    if abs(effect.difference) < MIN_DIFFERENCE:
        return "the difference is too small to matter"
    return f"the unlabeled scans {'helped' if effect.difference > 0 else 'did harm'}, {scope}"
