"""Labels in the progress messages of several trainings."""

from graftseg.training.recorder import BASELINE, BEFORE_BASELINE, ONLY_RUN, ProgressLabel, fold_labels


def test_single_training_has_an_empty_label() -> None:
    assert (ONLY_RUN.prefix, ONLY_RUN.suffix) == ("", "")


def test_a_run_and_its_baseline() -> None:
    assert (BEFORE_BASELINE.prefix, BEFORE_BASELINE.suffix) == ("", "; next: the baseline")
    assert (BASELINE.prefix, BASELINE.suffix) == ("the baseline, ", "")


def test_folds_and_the_folds_of_their_baseline() -> None:
    assert fold_labels(2, baseline=True) == [
        ProgressLabel("fold 0", "1 of 4", "fold 1"),
        ProgressLabel("fold 1", "2 of 4", "fold 0 of the baseline"),
        ProgressLabel("fold 0 of the baseline", "3 of 4", "fold 1 of the baseline"),
        ProgressLabel("fold 1 of the baseline", "4 of 4", ""),
    ]


def test_folds_without_a_baseline() -> None:
    assert fold_labels(2, baseline=False) == [
        ProgressLabel("fold 0", "1 of 2", "fold 1"),
        ProgressLabel("fold 1", "2 of 2", ""),
    ]
