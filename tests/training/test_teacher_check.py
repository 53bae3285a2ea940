"""The check of the teacher: decisions and the stages that follow."""

from dataclasses import replace
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.teacher_checks import Decision, TeacherCheck
from graftseg.training.loop import Stage, adapted
from graftseg.training.teacher_check import (
    ScanSummary,
    check_teacher,
    drifted_class,
    find_excess,
    has_occasional_class,
)
from scan_summaries import GOOD, LABELED, centers, changed


@given(bad=st.integers(0, 12), good=st.integers(0, 12), may_extend=st.booleans())
def test_decisions(bad: int, good: int, may_extend: bool) -> None:
    scans = {f"bad{n}": changed(centers=centers()) for n in range(bad)} | {f"good{n}": GOOD for n in range(good)}
    check = check_teacher(LABELED, scans, stage=1, may_extend=may_extend)
    trusted = 3 * bad <= good and good >= 2
    assert check.decision == ("continue" if trusted else "extend" if may_extend else "skip")
    assert set(check.rejected) == {f"bad{n}" for n in range(bad)} and check.scans == bad + good
    assert TeacherCheck(**check.to_json()) == check


def test_the_sentence_counts_the_reasons() -> None:
    scans = {"a": changed(centers=centers()), "b": changed(volumes=(1, 45)), "c": changed(volumes=(2, 45)), "d": GOOD}
    sentence = check_teacher(LABELED, scans, stage=1, may_extend=False).sentence
    assert "3 of 4" in sentence and "2 with less than a tenth" in sentence and "1 with no foreground" in sentence
    assert "all 4" in check_teacher(LABELED, dict.fromkeys("abcd", GOOD), stage=1, may_extend=True).sentence


def stages_of(*steps: int) -> list[Stage]:
    first, second = tiny.tiny_recipe().stages
    settings = [first, second, second][: len(steps)]
    return [
        Stage(stage.model_copy(update={"steps": count}), lambda: None)  # type: ignore[arg-type,return-value]
        for stage, count in zip(settings, steps, strict=True)
    ]


def kinds(stages: list[Stage]) -> list[tuple[str, int]]:
    return [(stage.settings.method, stage.settings.steps) for stage in stages]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ("continue", [("bcp-pretrain", 10), ("bcp", 30), ("bcp", 5)]),
        ("extend", [("bcp-pretrain", 10), ("bcp-pretrain", 10), ("bcp", 20), ("bcp", 5)]),
        ("skip", [("bcp-pretrain", 10), ("bcp-pretrain", 35)]),
    ],
)
def test_the_stages_after_a_decision_have_the_same_number_of_steps(decision: Decision, expected: Any) -> None:
    stages = stages_of(10, 30, 5)
    after = adapted(stages, TeacherCheck(1, 4, {}, decision))
    assert kinds(after) == expected and sum(steps for _, steps in kinds(after)) == 45


def test_an_extension_takes_at_most_half_of_the_checked_stage() -> None:
    after = adapted(stages_of(100, 30), TeacherCheck(1, 4, {}, "extend"))
    assert kinds(after) == [("bcp-pretrain", 100), ("bcp-pretrain", 15), ("bcp", 15)]
    again = adapted(after, TeacherCheck(2, 4, {}, "skip"))
    assert kinds(again) == [("bcp-pretrain", 100), ("bcp-pretrain", 15), ("bcp-pretrain", 15)]


def test_a_skipped_stage_gets_the_added_steps_of_the_check() -> None:
    check = TeacherCheck(1, 4, {}, "skip", added=40)
    assert kinds(adapted(stages_of(10, 30, 5), check)) == [("bcp-pretrain", 10), ("bcp-pretrain", 75)]
    assert TeacherCheck(**check.to_json()) == check


def test_a_stopped_stage_is_followed_by_the_stage_before() -> None:
    check = TeacherCheck(1, 4, {"a": "grew"}, "stop", step=12)
    assert kinds(adapted(stages_of(10, 30, 5), check)) == [("bcp-pretrain", 10), ("bcp", 12), ("bcp-pretrain", 23)]
    assert kinds(adapted(stages_of(10, 12), check)) == [("bcp-pretrain", 10), ("bcp", 12)]
    assert "12 steps" in check.sentence and TeacherCheck(**check.to_json()) == check


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"a": [90, 50], "b": [10, 50]}, {"a": [40, 50], "b": [0, 50]}, None),
        ({"a": [90, 50], "b": [10, 50]}, {"a": [30, 50], "b": [0, 50]}, 0),
        ({"a": [90, 50]}, {"a": [90, 151]}, 1),
        ({"a": [10, 50]}, {"a": [31, 50]}, 0),
        # a mean of fewer than ten voxels per scan is not checked
        ({"a": [0, 50]}, {"a": [400, 50]}, None),
        ({"a": [9, 50], "b": [10, 50]}, {"a": [0, 50], "b": [0, 50]}, None),
    ],
)
def test_a_class_drifts_if_its_volume_changes_by_more_than_a_factor_of_three(
    before: dict[str, list[int]], now: dict[str, list[int]], found: int | None
) -> None:
    drift = drifted_class(before, now, [None, None])
    assert (drift and drift[0]) == found if found is None or drift is None else drift[0] == found


@pytest.mark.parametrize(
    ("expected", "now", "found"),
    [
        # the first predictions were too small: growth up to three times the usual volume is no drift
        (200.0, 300, None),
        (200.0, 301, 0),
        # the first predictions were too large
        (10.0, 2, None),
        (10.0, 1, 0),
    ],
)
def test_a_class_does_not_drift_toward_its_usual_volume(expected: float, now: int, found: int | None) -> None:
    drift = drifted_class({"a": [20], "b": [20]}, {"a": [now], "b": [now]}, [expected])
    assert (None if drift is None else drift[0]) == found


@pytest.mark.parametrize(
    ("volume", "other", "expected"),
    [
        (100.0, 20.0, None),  # 2 and 0.4 times the usual volume
        (100.0, 50.0, None),
        (101.0, 50.0, (2.02, 1.0)),
        (24.0, 50.0, (0.48, 1.0)),
        (0.0, 50.0, (0.01, 1.0)),  # the class was forgotten
        (0.0, 0.0, None),
        (50.0, 400.0, None),  # the other network is further from the usual volume
    ],
)
def test_the_volume_of_an_occasional_class(volume: float, other: float, expected: tuple[float, float] | None) -> None:
    """Half of the label maps contain 100 mm³ of the second class, so 50 mm³ are usual."""
    labeled = [replace(GOOD, volumes=(100, size), voxel=0.5) for size in (200, 0)]

    def scans(cubic_mm: float) -> dict[str, ScanSummary]:
        return {name: replace(GOOD, volumes=(9, round(4 * cubic_mm)), voxel=0.25) for name in "ab"}

    assert has_occasional_class(labeled) and not has_occasional_class(LABELED)
    excess = find_excess(labeled, scans(volume), scans(other))
    assert (None if excess is None else (excess.index, excess.volume, excess.other)) == (
        None if expected is None else (1, *map(pytest.approx, expected))
    )
    assert find_excess(LABELED, scans(volume), scans(other)) is None


def test_one_unlabeled_scan_is_too_few() -> None:
    check = check_teacher(LABELED, {"only": GOOD}, stage=1, may_extend=False)
    assert (check.decision, dict(check.rejected)) == ("skip", {})
    assert "at least 2 unlabeled scans" in check.sentence and "without the unlabeled scans" in check.sentence


def test_plausible_scans_are_watched() -> None:
    scans = {"bad": changed(centers=centers())} | {f"good{n}": GOOD for n in range(9)}
    check = check_teacher(LABELED, scans, stage=1, may_extend=True)
    assert list(check.watched) == [f"good{n}" for n in range(6)] and check.watched["good0"] == [110, 45]
