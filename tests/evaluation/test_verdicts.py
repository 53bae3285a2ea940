"""Verdict sentences on whether unlabeled scans helped."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import wilcoxon

from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.statistics import Effect
from graftseg.evaluation.verdicts import (
    SEVERAL_RUNS,
    UnlabeledUse,
    missed_classes,
    never_found,
    verdict,
    verdict_between,
)


def effect(difference: float, low: float, high: float, *, p: float = 0.01, first: float = 80.0) -> Effect:
    return Effect(40, first, first + difference, difference, low, high, p, 30, 10)


def test_a_clear_gain() -> None:
    assert verdict(effect(1.25, 0.5, 2.0)) == (
        "mean Dice 81.25 % with the unlabeled scans and 80.00 % without, +1.25 points (95 % interval +0.50 to +2.00, "
        "p = 0.01), better in 30 of 40 cases: the unlabeled scans helped, in this one run"
    )


@pytest.mark.parametrize(
    ("found", "meaning"),
    [
        (effect(-1.25, -2.0, -0.5), "the unlabeled scans did harm, in this one run"),
        (effect(1.25, -0.5, 3.0), "these cases do not show whether the unlabeled scans helped"),
        (effect(1.25, 0.5, 2.0, p=0.0625), "these cases do not show whether the unlabeled scans helped"),
        (effect(0.0, 0.0, 0.0, p=1.0), "these cases do not show whether the unlabeled scans helped"),
        (effect(0.25, 0.1, 0.4), "the difference is too small to matter"),
        (effect(9.0, 8.0, 10.0, first=2.0), "neither network is good enough for a meaningful comparison"),
    ],
)
def test_meaning(found: Effect, meaning: str) -> None:
    assert verdict(found).endswith(f" cases: {meaning}")


def test_no_conclusion_if_the_unlabeled_scans_were_not_used() -> None:
    unused = UnlabeledUse("they were not used", is_supervised_only=True)
    sentence = "mean Dice 81.25 % of the run and 80.00 % of its baseline, +1.25 points; they were not used"
    assert verdict(effect(1.25, 0.5, 2.0), use=unused) == sentence
    assert verdict_between(scored(0.8, 0.0), scored(0.9, 0.0), use=unused) == (
        "leaving out gallbladder, which neither network finds: mean Dice 93.50 % of the run and 83.50 % of its "
        "baseline, +10.00 points; they were not used"
    )


def test_unlabeled_scans_that_were_used_in_part() -> None:
    sentence = verdict(effect(1.25, 0.5, 2.0), use=UnlabeledUse("they were used until step 5"))
    assert sentence.endswith("the unlabeled scans helped, in this one run; they were used until step 5")


def test_several_runs() -> None:
    assert verdict(effect(1.25, 0.5, 2.0), SEVERAL_RUNS).endswith(
        "30 of 40 cases: the unlabeled scans helped, in these runs"
    )


def test_few_cases() -> None:
    found = replace(effect(2.0, 1.0, 3.0, p=0.0625), count=5, better=5, worse=0)
    assert verdict(found).endswith(": fewer than 6 cases cannot show whether the unlabeled scans helped")


@pytest.mark.parametrize(("count", "least"), [(2, "0.5"), (3, "0.25"), (5, "0.062")])
def test_few_cases_state_the_smallest_possible_p(count: int, least: str) -> None:
    few = replace(effect(2.0, 1.0, 3.0, p=2 / 2**count), count=count, better=count, worse=0)
    assert f"+1.00 to +3.00, p = {least}, and {count} cases cannot give a p below {least})" in verdict(few)
    assert wilcoxon(np.arange(1.0, count + 1)).pvalue == 2 / 2**count
    assert "cannot give" not in verdict(replace(few, low=-1.0))
    assert "cannot give" not in verdict(effect(2.0, 1.0, 3.0))


def test_no_case() -> None:
    assert verdict(replace(effect(0.0, 0.0, 0.0), count=0)) == "no class of the test cases could be scored"


def test_a_single_case() -> None:
    assert verdict(effect(1.25, math.nan, math.nan)).endswith(" points, in a single case, too few for a conclusion")


def scored(liver: float, gallbladder: float, cases: int = 8) -> Evaluation:
    """Build an evaluation whose Dice rises slightly from case to case."""
    rows = [
        Row(f"case_{number}", label, name, dice + (number / 100 if dice else 0), *[math.nan] * 11)
        for number in range(cases)
        for label, name, dice in ((1, "liver", liver), (2, "gallbladder", gallbladder))
    ]
    return Evaluation(tuple(rows), "standard")


def test_a_class_that_neither_network_finds_is_left_out() -> None:
    sentence = verdict_between(scored(0.8, 0.0), scored(0.9, 0.0))
    assert sentence.startswith(
        "leaving out gallbladder, which neither network finds: mean Dice 93.50 % with the unlabeled scans and 83.50 % "
        "without, +10.00 points"
    )
    assert sentence.endswith("better in 8 of 8 cases: the unlabeled scans helped, in this one run")


def test_a_class_that_one_network_finds_is_not_left_out() -> None:
    sentence = verdict_between(scored(0.8, 0.0), scored(0.8, 0.4))
    assert sentence.startswith("mean Dice 63.50 % with the unlabeled scans and 41.75 % without")


def test_no_class_found_by_either_network() -> None:
    sentence = verdict_between(scored(0.0, 0.0), scored(0.0, 0.0), SEVERAL_RUNS)
    assert sentence.startswith("mean Dice 0.00 %") and sentence.endswith(
        "neither network is good enough for a meaningful comparison"
    )


def test_classes_that_are_never_found() -> None:
    assert never_found(scored(0.5, 0.0)) == {2: "gallbladder"}
    assert never_found(scored(0.5, math.nan)) == {}, "cases without a score are ignored"


def with_volumes(evaluation: Evaluation, predicted: list[float], reference: list[float]) -> Evaluation:
    """Set the volumes of the liver by case. A volume of 0 has a Dice of 0."""
    rows = list(evaluation.rows)
    for number, (volume, expected) in enumerate(zip(predicted, reference, strict=True)):
        row = rows[2 * number]
        dice = row.dice if volume else 0.0
        rows[2 * number] = replace(row, dice=dice, volume_prediction_ml=volume, volume_reference_ml=expected)
    return replace(evaluation, rows=tuple(rows))


@pytest.mark.parametrize(("protocol", "distance"), [("standard", "the diagonal of the image"), ("paper", "0")])
def test_a_class_that_some_predictions_lack(protocol: Protocol, distance: str) -> None:
    evaluation = replace(scored(0.8, 0.5, cases=4), protocol=protocol)
    (told,) = missed_classes("run", with_volumes(evaluation, [5.0, 0.0, 5.0, 0.0], [5.0, 5.0, 5.0, 0.0]))
    assert told.startswith("run ") and "liver" in told and "1 of the 3 cases" in told and "(case_1)" in told
    assert told.endswith(f" {distance}")
    (told,) = missed_classes("run", with_volumes(evaluation, [5.0, 0.0, 0.0, 0.0], [5.0] * 4))
    assert "3 of the 4 cases" in told and "such as case_1" in told


def test_a_class_that_no_prediction_lacks() -> None:
    assert not [*missed_classes("run", scored(0.8, 0.5))], "2-D images have no volumes"
    assert not [*missed_classes("run", with_volumes(scored(0.8, 0.5, cases=2), [5.0, 5.0], [5.0, 0.0]))]
    (told,) = missed_classes("run", with_volumes(scored(0.8, 0.5, cases=2), [0.0, 0.0], [5.0, 5.0]))
    assert "Dice of 0 for liver in all 2 cases" in told
