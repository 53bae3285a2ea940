"""Order and reasons of the ranking, for synthetic measurements."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.errors import Code
from graftseg.inference.ranking.features import scale_measures, shrunken_covariance, similar_above, spread_out, whitened
from graftseg.inference.ranking.observe import Observation
from graftseg.inference.ranking.rank import HEAD, Ranked, Ranking, rank_cases
from graftseg.inference.ranking.reasons import describe_unlearned, doublings, specks
from loops import for_each
from user_errors import user_error

CLASSES = ("background", "ring", "core")


def seen(case: str, **changes: Any) -> Observation:
    """Return measurements of an ordinary scan, with features drawn from its name."""
    features = np.random.default_rng(list(case.encode())).normal(size=6)
    plain = Observation(case, 0.2, 0.9, (100.0, 50.0), (1, 1), 1.0, features)
    return replace(plain, **changes)


LABELED = [seen(f"l{i}", sizes=(80.0 + 10 * i, 40.0 + 5 * i)) for i in range(5)]
POOL = [seen(f"u{i:02d}") for i in range(12)]


def first(*odd: Observation) -> Ranked:
    return rank_cases([*POOL, *odd], LABELED, CLASSES)[0]


@for_each(
    ("changes", "reason"),
    [
        ({"uncertainty": 0.5}, "uncertain at the boundary"),
        ({"uncertainty": 0.5, "at_boundary": 0.4}, "uncertain about whole regions"),
        ({"features": np.full(6, 40.0)}, "looks unlike the labeled scans"),
        ({"sizes": (2.0, 0.0), "components": (1, 0)}, "hardly any foreground found"),
        ({"sizes": (960.0, 50.0)}, "ring 8.0 times as large as in any labeled scan"),
        ({"sizes": (20.0, 50.0)}, "ring 4.0 times smaller than in any labeled scan"),
        ({"sizes": (100.0, 0.0), "components": (1, 0)}, "no core found"),
        ({"components": (4, 8)}, "10 specks that labeled scans do not have"),
        ({"components": (1, 2)}, "1 speck that labeled scans do not have"),
    ],
)
def test_an_unusual_scan_has_its_reason(changes: dict[str, Any], reason: str) -> None:
    ranked = {one.case: one for one in rank_cases([*POOL, seen("odd", **changes)], LABELED, CLASSES)}
    assert reason in ranked["odd"].reasons
    assert ranked["odd"].score > 0


def test_kinds_of_reasons_contain_no_amounts() -> None:
    large, small = seen("large", sizes=(960.0, 50.0)), seen("small", sizes=(20.0, 50.0))
    ranked = rank_cases([*POOL, large, small, seen("parts", components=(4, 8))], LABELED, CLASSES)
    kinds = {one.case: one.kinds for one in ranked}
    assert "ring larger than in any labeled scan" in kinds["large"]
    assert "ring smaller than in any labeled scan" in kinds["small"]
    assert "specks that labeled scans do not have" in kinds["parts"]


@pytest.mark.parametrize(
    "changes", [{"uncertainty": 0.9}, {"features": np.full(6, 40.0)}, {"sizes": (0.0, 0.0)}, {"components": (30, 1)}]
)
def test_a_very_unusual_scan_comes_first(changes: dict[str, Any]) -> None:
    same = [replace(one, features=np.zeros(6) + i / 10) for i, one in enumerate(POOL)]
    odd = replace(seen("odd", features=np.full(6, 0.7)), **changes)
    assert rank_cases([*same, odd], LABELED, CLASSES)[0].case == "odd"


@given(
    st.permutations([*POOL, seen("odd", uncertainty=0.5), seen("odder", components=(9, 9))]), st.permutations(LABELED)
)
def test_the_order_of_files_does_not_matter(pool: list[Observation], labeled: list[Observation]) -> None:
    ordered = rank_cases(sorted(pool, key=lambda one: one.case), LABELED, CLASSES)
    assert rank_cases(pool, labeled, CLASSES) == ordered


def test_ties_are_sorted_by_name() -> None:
    twins = [seen(name, features=np.ones(6)) for name in ("d", "b", "a", "c")]
    ranked = rank_cases(twins, LABELED, CLASSES)
    assert [one.case for one in ranked] == ["a", "b", "c", "d"]
    assert {one.score for one in ranked} == {0.0}


def test_a_twin_of_the_first_scan_is_not_second() -> None:
    odd = seen("odd", uncertainty=0.9, features=np.full(6, 3.0))
    twin = replace(odd, case="twin", uncertainty=0.89)
    other = seen("other", uncertainty=0.4, features=np.full(6, -3.0))
    ranked = rank_cases([*POOL, odd, twin, other], LABELED, CLASSES)
    names = [one.case for one in ranked]
    assert names[0] == "odd" and names.index("other") < names.index("twin")
    assert ranked[names.index("twin")].reasons[-1] == "much like odd above"
    printed = [float(one.cells(1)[HEAD.index("score")]) for one in ranked]
    assert printed == sorted(printed, reverse=True)


def test_one_scan_and_one_label() -> None:
    (only,) = rank_cases([seen("a")], LABELED[:1], CLASSES)
    assert (only.score, only.unlike, only.cells(1)[-1]) == (0.0, 1.0, "nothing stands out")


def test_scaled_measures() -> None:
    measures = np.array([[0.1, 1.0, 0.0, 0.0], [0.2, 1.0, 0.0, 0.0], [0.3, 1.0, 0.0, 0.0], [0.9, 1.5, 3.0, 1.0]])
    spread = 1.4826 * 0.1
    z = (0.9 - 0.25) / spread
    np.testing.assert_allclose(scale_measures(measures)[3], [z / (1 + z), 2 / 3, 3 / 4, 1 / 2])
    assert (scale_measures(measures)[:2] == 0).all()


def test_doublings_and_specks_by_hand() -> None:
    one = seen("a", sizes=(480.0, 10.0), components=(3, 0))
    assert doublings(one, LABELED) == [2.0, -2.0]
    assert doublings(seen("b", sizes=(100.0, 0.0)), LABELED) == [0.0, pytest.approx(-np.log2(40))]
    assert specks(one, LABELED) == [2, 0]
    assert specks(one, [seen("c", components=(5, 0))]) == [0, 0]


def test_the_greedy_order_by_hand() -> None:
    points = np.array([[0.0], [0.1], [10.0], [20.0]])
    order, scores = spread_out(np.array([1.0, 0.9, 0.5, 0.1]), points)
    assert order == [0, 2, 3, 1] and similar_above(order, points) == [None, 0, None, None]
    np.testing.assert_allclose(scores, [1.0, 0.9 * 0.1 / 10, 0.5, 0.1])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=12))
def test_the_printed_scores_are_sorted(scans: list[tuple[float, float, float]]) -> None:
    values = np.array(scans)
    order, scores = spread_out(values[:, 0], values[:, 1:])
    assert sorted(order) == list(range(len(scans)))
    assert (np.diff(scores[order]) <= 0).all() and (scores <= values[:, 0]).all()


def test_whitened_features_of_many_scans_are_uncorrelated() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(5000, 3)) @ np.array([[1.0, 0.0, 0.0], [5.0, 1.0, 0.0], [0.0, 0.0, 9.0]]) + 7
    covariance = np.cov(whitened(mixed).T) * 3
    np.testing.assert_allclose(covariance, np.eye(3), atol=0.1)
    assert whitened(np.ones((4, 3))).tolist() == [[0.0]] * 4


def test_the_covariance_is_shrunken_between_two_bounds() -> None:
    few = np.random.default_rng(1).normal(size=(4, 20))
    few -= few.mean(axis=0)
    shrunken, empirical = shrunken_covariance(few), few.T @ few / 4
    assert np.linalg.eigvalsh(empirical)[0] < 1e-9 < 0.05 < np.linalg.eigvalsh(shrunken)[0]
    assert np.trace(shrunken) == pytest.approx(np.trace(empirical))


@for_each(
    ("kinds", "shared"),
    [
        ([("no core found", "uncertain at the boundary"), ("no core found",)], "no core found"),
        ([("a larger than in any labeled scan",), ("a larger than in any labeled scan",)], "a larger than"),
        ([("no class 1 found",), ("no class 2 found",)], None),
        ([("no core found",), ()], None),
        ([(), ()], None),
        ([("no core found",)], None),
    ],
)
def test_a_reason_shared_by_all_scans_describes_the_network(kinds: list[tuple[str, ...]], shared: str | None) -> None:
    rows = [Ranked(f"case{place}", 0.5, 0.1, 1.0, 0.0, 0, (), one) for place, one in enumerate(kinds)]
    sentence = Ranking(tuple(rows)).in_common()
    assert sentence is None if shared is None else sentence is not None and f"({shared}" in sentence


@for_each(
    ("found", "unlabeled", "labeled", "expected"),
    [
        (0, 12, 5, "core is found in none of 12 unlabeled scans and labeled in 5 of 5 scans: it has not been learned."),
        (1, 12, 3, "core is found in 1 of 12 unlabeled scans and labeled in 3 of 5 scans: it has not been learned."),
        (2, 12, 5, None),
        (12, 12, 5, None),
        (
            0,
            12,
            2,
            "core is found in none of 12 unlabeled scans and labeled in 2 of 5 scans: it has not been learned, or ",
        ),
        (1, 12, 2, None),
        (0, 12, 0, None),
        (0, 1, 5, None),
    ],
)
def test_a_rarely_found_class_is_reported_as_unlearned(
    found: int, unlabeled: int, labeled: int, expected: str | None
) -> None:
    pool = [seen(f"u{i}", sizes=(100.0, 9.0 * (i < found))) for i in range(unlabeled)]
    with_labels = [seen(f"l{i}", sizes=(100.0, 9.0 * (i < labeled))) for i in range(5)]
    sentences = describe_unlearned(pool, with_labels, CLASSES)
    assert len(sentences) == (expected is not None)
    assert all(sentence.startswith(str(expected)) for sentence in sentences)


def test_every_unlearned_class_is_reported() -> None:
    pool = [seen(f"u{i}", sizes=(0.0, 0.0)) for i in range(3)]
    assert [one.split()[0] for one in describe_unlearned(pool, LABELED, CLASSES)] == ["ring", "core"]


def test_only_a_ranking_is_overwritten(tmp_path: Path) -> None:
    ranking = Ranking(rank_cases([*POOL, seen("a, b", uncertainty=0.9)], LABELED, CLASSES))
    path = tmp_path / "rank.csv"
    for _ in range(2):
        ranking.write_csv(path)
    rows = list(csv.reader(path.open()))
    assert tuple(rows[0]) == HEAD and len(rows) == 14
    assert rows[1][:2] == ["1", "a, b"] and rows[1][-1].startswith("uncertain at the boundary")
    assert ranking.lines(2) == [tuple(row) for row in rows[1:3]]
    path.write_text("case,dice\n")
    with user_error(Code.UNSAFE_TARGET, path):
        ranking.write_csv(path)
    with user_error(Code.OPTION_INVALID, "rank.txt", ".csv"):
        ranking.write_csv(tmp_path / "rank.txt")
