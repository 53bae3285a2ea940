"""Trainings one after the other: each has a name, a place and a next one."""

from graftseg.training.recorder import ALONE, BASELINE, BEFORE_BASELINE, Leg, fold_legs


def test_the_only_training_needs_no_words() -> None:
    assert (ALONE.start, ALONE.end) == ("", "")


def test_a_run_and_its_baseline() -> None:
    assert (BEFORE_BASELINE.start, BEFORE_BASELINE.end) == ("", "; the baseline comes next")
    assert (BASELINE.start, BASELINE.end) == ("the baseline, ", "")


def test_folds_and_the_folds_of_their_baseline() -> None:
    assert fold_legs(2, baseline=True) == [
        Leg("fold 0", "1 of 4", "fold 1"),
        Leg("fold 1", "2 of 4", "fold 0 of the baseline"),
        Leg("fold 0 of the baseline", "3 of 4", "fold 1 of the baseline"),
        Leg("fold 1 of the baseline", "4 of 4", ""),
    ]


def test_folds_without_a_baseline() -> None:
    assert fold_legs(2, baseline=False) == [Leg("fold 0", "1 of 2", "fold 1"), Leg("fold 1", "2 of 2", "")]
