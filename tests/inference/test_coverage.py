"""Greedy coverage of unlabeled scans, compared with exhaustive search on small sets of points."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_ranking import CLASSES, LABELED, POOL, seen

from graftseg.inference.ranking import coverage
from graftseg.inference.ranking.features import similar_above
from graftseg.inference.ranking.observe import Observation
from graftseg.inference.ranking.rank import HEAD, order_by_coverage, rank_cases

Floats = NDArray[np.float64]


class Covering(NamedTuple):
    order: tuple[int, ...]
    shares: tuple[float, ...]
    represented: tuple[int, ...]


def cover(points: Floats, labeled: Floats, weights: Floats) -> Covering:
    """Return the indices, scores and numbers of represented scans of an order."""
    places = coverage.cover(points, labeled, weights)
    represented = tuple(place.represented for place in places)
    return Covering(tuple(place.index for place in places), tuple(place.score for place in places), represented)


def line(*values: float) -> Floats:
    """Return points on a line."""
    return np.array(values, dtype=float).reshape(-1, 1)


def cost(points: Floats, centers: Floats, weights: Floats) -> float:
    distances = [min(float(np.linalg.norm(point - center)) for center in centers) for point in points]
    return float(weights @ np.array(distances))


def searched(points: Floats, labeled: Floats, weights: Floats) -> tuple[list[int], list[float]]:
    """Return the greedy order and the shares by computing the whole cost for every possible next point."""
    centers, left = labeled, list(range(len(points)))
    first = now = cost(points, centers, weights)
    order, shares = [], []
    while left:
        costs = [cost(points, np.vstack([centers, points[index]]), weights) for index in left]
        best = min(range(len(left)), key=lambda place: round(costs[place], 9))
        order.append(left.pop(best))
        shares.append((now - costs[best]) / first if first > 0 else 0.0)
        centers, now = np.vstack([centers, points[order[-1]]]), costs[best]
    return order, shares


def test_order_and_shares_by_hand() -> None:
    # the distances to the label at 0 are 1, 9, 10, 11 and 30; 10 removes 8 + 10 + 10 + 10, and then 30 removes 20
    covering = cover(line(1, 9, 10, 11, 30), line(0), np.ones(5))
    assert covering.order == (2, 4, 0, 1, 3)
    assert covering.shares == (38 / 61, 20 / 61, 1 / 61, 1 / 61, 1 / 61)
    assert covering.represented == (3, 0, 0, 0, 0)


def test_weights_change_the_order() -> None:
    points = line(-5, 9, 10, 11)
    assert cover(points, line(0), np.ones(4)).order[0] == 2
    heavy = cover(points, line(0), np.array([20.0, 1.0, 1.0, 1.0]))
    assert heavy.order[0] == 0 and heavy.shares[0] == 100 / 130
    assert cover(points, line(0), np.array([1.0, 0.0, 0.0, 0.0])).shares == (1.0, 0.0, 0.0, 0.0)


def test_labeled_points_are_covered() -> None:
    points = line(10, 10, 10, -4)
    assert cover(points, line(0), np.ones(4)).order[0] == 0
    covering = cover(points, line(0, 10), np.ones(4))
    assert covering.order == (3, 0, 1, 2) and covering.shares == (1.0, 0.0, 0.0, 0.0)


def test_ties_are_sorted_by_index() -> None:
    assert cover(line(-3, 3, -3, 3), line(0), np.ones(4)).order == (0, 1, 2, 3)
    covered = cover(line(7, 7), line(7), np.ones(2))
    assert covered == Covering((0, 1), (0.0, 0.0), (0, 0))


def test_without_labels_the_first_point_is_the_median() -> None:
    # every distance is at first twice the largest distance to the mean 6, which is 14
    covering = cover(line(0, 1, 2, 7, 20), np.empty((0, 1)), np.ones(5))
    assert covering.order[:2] == (2, 4)
    assert covering.shares[:2] == (1 - (2 + 1 + 0 + 5 + 18) / 140, 18 / 140)
    assert cover(np.empty((0, 1)), line(0), np.empty(0)) == Covering((), (), ())


numbers = st.integers(-9, 9)


@given(
    st.lists(st.tuples(numbers, st.integers(0, 5)), min_size=1, max_size=8), st.lists(numbers, min_size=1, max_size=3)
)
def test_the_order_is_that_of_exhaustive_search(pool: list[tuple[int, int]], labeled: list[int]) -> None:
    values = np.array(pool, dtype=float)
    order, shares = searched(values[:, :1], line(*labeled), values[:, 1])
    covering = cover(values[:, :1], line(*labeled), values[:, 1])
    assert list(covering.order) == order
    np.testing.assert_allclose(covering.shares, shares, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 3))
def test_random_points_are_ordered_as_by_exhaustive_search(seed: int, count: int, known: int) -> None:
    rng = np.random.default_rng(seed)
    points, labeled, weights = rng.normal(size=(count, 2)), rng.normal(size=(known, 2)), rng.random(count)
    covering = cover(points, labeled, weights)
    order, shares = searched(points, labeled, weights)
    np.testing.assert_allclose(covering.shares, shares, atol=1e-9)
    assert list(covering.order) == order
    assert (np.diff(covering.shares) <= 0).all() and sum(covering.shares) == pytest.approx(1)


def test_scores_of_scans_by_hand() -> None:
    # the mean uncertainty is 0.2, so that the weights are 1.5, 1 and 0.5
    places = order_by_coverage(line(10, 11, -4, 0), np.array([0.3, 0.2, 0.1]))
    total = 15 + 11 + 2
    assert [place.index for place in places] == [0, 2, 1]
    assert [place.score for place in places] == pytest.approx([25 / total, 2 / total, 1 / total])
    assert similar_above([0, 2, 1], line(10, 11, -4)) == [None, 0, None]
    assert [place.represented for place in places] == [1, 0, 0]
    same = order_by_coverage(line(10, 11, -4, 0), np.zeros(3))
    assert [place.score for place in same] == pytest.approx([20 / 25, 4 / 25, 1 / 25])


def group(name: str, center: float, count: int, **changes: float) -> list[Observation]:
    """Return scans with similar features."""
    offsets = np.random.default_rng(0).normal(size=(count, 6)) * 0.1
    return [seen(f"{name}{i}", features=center + offset, **changes) for i, offset in enumerate(offsets)]


def test_a_group_that_no_label_resembles_is_represented_first() -> None:
    pool = [*group("labeled-like", 0.0, 6), *group("new", 4.0, 5), seen("odd", features=np.full(6, -9.0))]
    first, second, *others = rank_cases(pool, group("l", 0.0, 4), CLASSES, "coverage")
    assert first.case.startswith("new") and "represents 4 other scans" in first.reasons
    assert second.case == "odd"
    printed = [float(one.cells(1)[HEAD.index("score")]) for one in (first, second, *others)]
    assert printed == sorted(printed, reverse=True)
    assert any(f"much like {first.case} above" in one.reasons for one in others)


def test_uncertain_scans_are_worth_more() -> None:
    pool = [*group("a", 4.0, 4), *group("b", -4.0, 4, uncertainty=0.6)]
    assert rank_cases(pool, group("l", 0.0, 4), CLASSES, "coverage")[0].case.startswith("b")
    pool = [*group("a", 4.0, 4, uncertainty=0.6), *group("b", -4.0, 4)]
    assert rank_cases(pool, group("l", 0.0, 4), CLASSES, "coverage")[0].case.startswith("a")


@given(st.permutations(POOL), st.permutations(LABELED))
def test_the_order_of_files_does_not_matter(pool: list[Observation], labeled: list[Observation]) -> None:
    assert rank_cases(pool, labeled, CLASSES, "coverage") == rank_cases(POOL, LABELED, CLASSES, "coverage")


def test_only_the_order_score_and_order_reasons_depend_on_the_order() -> None:
    plain = {one.case: one for one in rank_cases(POOL, LABELED, CLASSES, "uncertainty")}
    for one in rank_cases(POOL, LABELED, CLASSES, "coverage"):
        other = plain[one.case]
        assert (one.uncertainty, one.unlike, one.size) == (other.uncertainty, other.unlike, other.size)


def test_equal_scans_are_sorted_by_name() -> None:
    twins = [seen(name, features=np.ones(6)) for name in ("d", "b", "a", "c")]
    ranked = rank_cases(twins, [seen("l", features=np.ones(6))], CLASSES, "coverage")
    assert [one.case for one in ranked] == ["a", "b", "c", "d"] and {one.score for one in ranked} == {0.0}
