"""Paired differences, compared with hand-computed numbers, with scipy, and by properties."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.statistics import Pairs, _tail, bootstrap, effect_of, paired, signed_rank
from graftseg.evaluation.table_metrics import METRIC_NAMES, mean_metrics

CLASSES = {1: "ring", 2: "core"}


def wilcoxon(values: Any) -> float:
    """Return the p-value of scipy, which takes long to import."""
    from scipy import stats

    return float(stats.wilcoxon(values).pvalue)


def row(case: str, label: int, dice: float, hd95: float = 1.0) -> Row:
    distances = [hd95, hd95, hd95 / 2, hd95 / 2]
    return Row(case, label, CLASSES[label], *[dice, dice / 2, *distances, *distances, 1.0, 1.0])


def evaluation(*rows: Row) -> Evaluation:
    return Evaluation(rows, "standard")


def pairs_of(differences: list[float], metric: str = "dice") -> Pairs:
    second = np.array(differences, dtype=float)
    cases = tuple(f"case {index}" for index in range(len(second)))
    return Pairs(metric, 1, "ring", cases, np.zeros(len(second)), second)


def test_effects_by_hand() -> None:
    first = evaluation(row("a", 1, 0.5, 4), row("b", 1, 0.6, 2), row("c", 1, 0.9, 1), row("only", 1, 0.1))
    second = evaluation(row("a", 1, 0.7, 1), row("b", 1, 0.5, 2), row("c", 1, 1.0, 3), row("other", 1, 0.1))
    found = {pairs.metric: pairs for pairs in paired(first, second)}
    assert list(found) == ["dice", "jaccard", "hd95", "asd"]
    assert all(pairs.cases == ("a", "b", "c") and pairs.label == 1 for pairs in found.values())
    assert found["dice"].differences.tolist() == [20.0, -10.0, 10.0]
    assert found["jaccard"].differences.tolist() == [10.0, -5.0, 5.0]
    assert found["hd95"].differences.tolist() == [-3.0, 0.0, 2.0]
    dice, hd95 = effect_of(found["dice"]), effect_of(found["hd95"])
    assert (dice.count, dice.better, dice.worse, dice.equal) == (3, 2, 1, 0)
    assert [dice.first, dice.second] == pytest.approx([200 / 3, 220 / 3])
    assert dice.difference == pytest.approx(20 / 3)
    assert (hd95.better, hd95.worse, hd95.equal) == (1, 1, 1)
    assert hd95.difference == pytest.approx(-1 / 3)
    assert dice.p == pytest.approx(wilcoxon([20, -10, 10]))
    # of 3 and 2 with opposite signs the smaller sum is 1, and 2 * P(sum <= 1) is 1
    assert hd95.p == 1.0


def test_the_mean_over_classes_is_taken_in_each_case() -> None:
    first = evaluation(row("a", 1, 0.5), row("a", 2, 0.7), row("b", 1, 0.2), row("b", 2, 0.4))
    second = evaluation(row("a", 1, 0.6), row("a", 2, 0.6), row("b", 1, 0.4), row("b", 2, 0.8))
    found = [pairs for pairs in paired(first, second) if pairs.metric == "dice"]
    assert [(pairs.label, pairs.name) for pairs in found] == [(1, "ring"), (2, "core"), (None, "mean")]
    assert found[2].differences.tolist() == [0.0, 30.0]
    assert effect_of(found[2]).second == pytest.approx(mean_metrics(second)["dice"])


def test_missing_values_are_ignored() -> None:
    first = evaluation(row("a", 1, 0.5, math.nan), row("a", 2, 0.5, 4), row("b", 1, 0.5, 2), row("b", 2, 0.5, 2))
    second = evaluation(row("a", 1, 0.5, 1), row("a", 2, 0.5, 1), row("b", 1, 0.5, 3), row("b", 2, 0.5, math.nan))
    found = {pairs.label: pairs for pairs in paired(first, second) if pairs.metric == "hd95"}
    assert (found[1].cases, found[2].cases) == (("b",), ("a",))
    assert found[None].cases == ("a", "b") and found[None].differences.tolist() == [-3.0, 1.0]
    nothing = paired(evaluation(row("a", 1, 0.5, math.nan)), evaluation(row("a", 1, 0.5, 1)))[2]
    effect = effect_of(nothing)
    assert effect.count == effect.better == effect.worse == 0
    assert all(math.isnan(value) for value in (effect.first, effect.difference, effect.low, effect.p))


def test_rounding_errors_are_not_differences() -> None:
    effect = effect_of(Pairs("dice", 1, "ring", ("a",), np.array([30.0]), np.array([100 * (0.1 + 0.2)])))
    assert (effect.better, effect.worse, effect.equal, effect.difference, effect.p) == (0, 0, 1, 0.0, 1.0)


def test_intervals_with_known_answers() -> None:
    # all equal: every resample has the same mean
    assert bootstrap(np.full(7, 2.5)) == (2.5, 2.5)
    # two cases: the mean is 0, 1/2 or 1 in 1/4, 1/2 and 1/4 of the resamples
    assert bootstrap(np.array([0.0, 1.0])) == (0.0, 1.0)
    # of a single case nothing can be said
    assert all(math.isnan(end) for end in bootstrap(np.array([3.0])))
    # many cases: the interval of the normal distribution
    values = np.arange(1.0, 401.0)
    low, high = bootstrap(values)
    half = 1.959964 * values.std() / 20
    assert [low, high] == pytest.approx([200.5 - half, 200.5 + half], abs=0.5)


@pytest.mark.parametrize("count", [3, 6, 12, 40])
def test_intervals_of_few_cases_are_as_wide_as_those_of_student(count: int) -> None:
    """Plain percentile intervals would exclude a true mean of zero in far more than 5 % of cases."""
    generator, trials = np.random.default_rng(count), 200
    missed = 0
    for _ in range(trials):
        low, high = bootstrap(generator.normal(size=count), resamples=2000)
        missed += not low <= 0 <= high
    assert missed / trials < (0.3 if count == 3 else 0.09)


def test_fewer_cases_use_wider_percentiles() -> None:
    assert _tail(10**6) == pytest.approx(2.5, abs=1e-3)
    # t(0.975, 9) = 2.2622, times sqrt(10 / 9) = 2.3846, of which the normal tail is 0.855 %
    assert _tail(10) == pytest.approx(0.855, abs=1e-3)
    assert _tail(3) < 1e-4


def test_intervals_are_repeated_and_do_not_depend_on_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    before = bootstrap(values)
    assert bootstrap(values) == before
    monkeypatch.setattr("graftseg.evaluation.statistics.BLOCK", 64)
    assert bootstrap(values) == before


def test_the_signed_rank_test() -> None:
    # five of one sign: 2 of the 32 ways to put signs are as far out
    assert signed_rank(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == 2 / 32
    assert signed_rank(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])) == 2 / 32
    assert signed_rank(np.zeros(4)) == 1.0
    values = np.random.default_rng(1).normal(0.3, 1, 60)
    assert signed_rank(values) == wilcoxon(values)


SCORES = st.lists(st.tuples(*[st.integers(0, 1000)] * 4), min_size=1, max_size=8)


@given(SCORES)
@settings(max_examples=10, deadline=None)
def test_swapping_the_runs_negates_the_differences(scores: list[tuple[int, ...]]) -> None:
    one = evaluation(*(row(f"{i:02}", 1, a / 1000, b) for i, (a, b, _, _) in enumerate(scores)))
    two = evaluation(*(row(f"{i:02}", 1, c / 1000, d) for i, (_, _, c, d) in enumerate(scores)))
    for there, back in zip(paired(one, two), paired(two, one), strict=True):
        assert np.array_equal(there.differences, -back.differences)
        ours, theirs = effect_of(there), effect_of(back)
        assert (ours.first, ours.second, ours.better, ours.worse) == (
            theirs.second,
            theirs.first,
            theirs.worse,
            theirs.better,
        )
        assert ours.difference == -theirs.difference and ours.p == pytest.approx(theirs.p)
        expected = pytest.approx((-theirs.high, -theirs.low), nan_ok=True)
        assert (ours.low, ours.high) == expected


def test_all_figures_are_compared() -> None:
    one = evaluation(row("a", 1, 0.5), row("a", 2, 0.5))
    assert [(pairs.metric, pairs.label) for pairs in paired(one, one)] == [
        (metric, label) for metric in METRIC_NAMES for label in (1, 2, None)
    ]
    assert effect_of(pairs_of([1.0, -2.0], "asd")).better == 1


def test_smaller_distances_and_larger_overlaps_are_better() -> None:
    for metric, counts in {"asd": (2, 1), "hd95": (2, 1), "dice": (1, 2), "jaccard": (1, 2)}.items():
        effect = effect_of(pairs_of([1.0, -2.0, -3.0], metric))
        assert (effect.better, effect.worse) == counts, metric
