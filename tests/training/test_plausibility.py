"""Plausibility of predictions: summaries, usual values and reasons."""

import numpy as np
import pytest

from graftseg.training.teacher_check import ScanSummary, UsualAnatomy, summarize
from scan_summaries import GOOD, LABELED, centers, changed

USUAL = UsualAnatomy.of(LABELED)


def test_a_summary_counts_voxels_pieces_and_the_center() -> None:
    label = np.zeros((4, 8), np.uint8)
    label[0, :3] = 1
    label[2, 6] = 1
    label[3, 4:] = 2
    found = summarize(label, 4, 0.25)
    assert found.volumes == (4, 4, 0) and found.largest == (0.75, 1.0, 0.0) and found.uncertainty == 0.25
    rows, columns = np.nonzero(label)
    foreground, first, second, third = found.centers
    assert foreground == pytest.approx(((rows.mean() + 0.5) / 4, (columns.mean() + 0.5) / 8))
    assert first == pytest.approx((1.0 / 4, (9 / 4 + 0.5) / 8)) and second == pytest.approx((3.5 / 4, 6.0 / 8))
    assert third is None


def test_centers_of_a_volume() -> None:
    label = np.random.default_rng(0).integers(0, 3, (5, 6, 7))
    expected = [
        tuple((np.argwhere(chosen).mean(axis=0) + 0.5) / label.shape) for chosen in (label > 0, label == 1, label == 2)
    ]
    assert [*map(pytest.approx, expected)] == [*summarize(label, 3).centers]


def test_volumes_of_scans_with_other_voxels() -> None:
    """The usual volume is 100: a volume of 9 is implausible, but a volume of 9 * 8 is plausible."""
    small, large = changed(volumes=(9, 45)), changed(volumes=(9, 45), voxel=8.0)
    assert USUAL.implausibility(large) is None and "tenth" in str(USUAL.implausibility(small))
    assert UsualAnatomy.of([large]).volumes == (72.0, 360.0)


def test_an_empty_label_map_has_no_center() -> None:
    assert summarize(np.zeros((3, 3, 3), np.uint8), 3) == ScanSummary((0, 0), (0.0, 0.0), (None, None, None))


def test_usual_values() -> None:
    assert USUAL.volumes == (100.0, 50.0) and USUAL.is_one_piece == (True, True)
    assert USUAL.positions[0] == ((0.4, 0.5), (0.5, 0.6)) and USUAL.positions[2] == ((0.5, 0.5), (0.6, 0.5))


def test_a_class_that_some_labels_lack_is_not_checked() -> None:
    usual = UsualAnatomy.of([*LABELED, ScanSummary((90, 0), (1.0, 0.0), centers(0.5, 0.5, inner=None))])
    assert usual.volumes == (95.0, None) and usual.is_one_piece == (True, False) and usual.positions[2] is None
    assert usual.implausibility(changed(volumes=(100, 0), largest=(1.0, 0.0))) is None


@pytest.mark.parametrize(
    ("scan", "keyword"),
    [
        (GOOD, None),
        (changed(centers=centers()), "no foreground"),
        (changed(volumes=(9, 45)), "tenth"),
        (changed(volumes=(10, 45)), None),
        (changed(volumes=(100, 4)), "tenth"),
        (changed(volumes=(1001, 45)), "ten times"),
        (changed(largest=(0.49, 1.0)), "scattered"),
        (changed(centers=centers(0.76, 0.5)), "position"),
        (changed(centers=centers(0.5, 0.24)), "position"),
        (changed(centers=centers(0.74, 0.26)), None),
        (changed(centers=centers(0.5, 0.5, outer=(0.76, 0.5))), "position"),
        (changed(centers=centers(0.5, 0.5, inner=(0.76, 0.5))), None),
        (changed(centers=centers(0.5, 0.5, inner=(0.86, 0.5))), "position"),
        (changed(uncertainty=0.61), "uncertainty"),
        (changed(uncertainty=None), None),
    ],
)
def test_implausible_predictions(scan: ScanSummary, keyword: str | None) -> None:
    reason = USUAL.implausibility(scan)
    assert reason is None if keyword is None else keyword in str(reason)


def test_an_empty_prediction_is_plausible_if_a_label_map_is_empty() -> None:
    empty = ScanSummary((0, 0), (0.0, 0.0), (None, None, None))
    usual = UsualAnatomy.of([*LABELED, empty])
    assert usual.positions == (((0.4, 0.5), (0.5, 0.6)), None, None) and not usual.is_never_empty
    assert usual.implausibility(empty) is None and USUAL.implausibility(empty) == "no foreground"
    assert usual.implausibility(changed(centers=centers(0.5, 0.5, outer=(0.9, 0.9)))) is None
    assert UsualAnatomy.of([empty]).implausibility(GOOD) is None
