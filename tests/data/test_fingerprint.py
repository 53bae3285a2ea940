from dataclasses import replace
from math import inf, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import in_parallel
from graftseg.core.types import Case, Geometry, Split
from graftseg.data.checks.shift import SHIFT_LIMIT, intensity_shift
from graftseg.data.fingerprint import PERCENTILES, CaseFingerprint, Fingerprint, fingerprint_case
from graftseg.data.scans import Scan

LABELED = Case("a", (Path("a.nii"),), Path("label.nii"), "labeled")
LAS = ((-2.0, 0, 0, 0), (0, 0, 3, 0), (0, 1, 0, 0), (0, 0, 0, 1))


def scan(array: npt.NDArray[np.generic]) -> Scan:
    return Scan(array, Geometry(array.shape[1:], LAS))


def spread(centre: float, scale: float = 7.0, split: Split = "labeled") -> CaseFingerprint:
    """Return a case with evenly spaced percentiles. Their mean absolute deviation is 12/7 of the scale."""
    levels = tuple(centre + scale * step for step in range(-3, 4))
    return CaseFingerprint("x", split, (4, 4), (1, 1), "RA", (levels,), (centre,), (2 * scale,), {}, "")


def drawn(seed: int, count: int, gain: float = 1.0, offset: float = 0.0) -> list[CaseFingerprint]:
    """Return cases of one scanner: bodies of varying brightness and contrast, surrounded by air."""
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        body = rng.normal(100 + 5 * rng.normal(), 20 * np.exp(0.1 * rng.normal()), 800)
        voxels = np.concatenate([body, rng.normal(10, 3, 200)]) * gain + offset
        cases.append(fingerprint_case(LABELED, scan(voxels.reshape(1, 10, 10, 10)), None))
    return cases


def test_summary_of_a_case() -> None:
    array = np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4)
    label = np.zeros((2, 3, 4), dtype=np.uint8)
    label[0, 0] = 3
    summary = fingerprint_case(LABELED, scan(array), Scan(label, Geometry(label.shape, LAS)))
    assert (summary.name, summary.split, summary.shape) == ("a", "labeled", (2, 3, 4))
    assert (summary.orientation, summary.spacing) == ("LSA", (2, 1, 3))
    assert (summary.canonical_shape, summary.canonical_spacing) == ((2, 4, 3), (2, 3, 1))
    assert summary.percentiles[0][PERCENTILES.index(50)] == 11.5
    assert summary.mean == (11.5,)
    assert summary.std == pytest.approx((sqrt((24**2 - 1) / 12),))
    assert summary.label_counts == {0: 20, 3: 4}


def test_content_depends_on_the_voxels_only() -> None:
    array = np.arange(8, dtype=np.int16).reshape(1, 2, 2, 2)
    content = fingerprint_case(LABELED, scan(array), None).content
    other = replace(LABELED, name="b")
    assert fingerprint_case(other, scan(array.astype(np.float64, order="F")), None).content == content
    assert fingerprint_case(other, scan(array.reshape(2, 1, 2, 2)), None).content != content
    assert fingerprint_case(other, scan(array[:, ::-1]), None).content != content
    zeros = np.zeros((1, 2, 2, 2), dtype=np.float32)
    assert fingerprint_case(other, scan(zeros), None) == fingerprint_case(other, scan(-zeros), None)


def test_training_cases_and_their_label_counts() -> None:
    labeled = replace(spread(0), shape=(10, 20), spacing=(1, 2), label_counts={0: 5, 1: 2})
    unlabeled = replace(spread(0, split="unlabeled"), shape=(40, 10), spacing=(4, 3), orientation="AR")
    test = replace(spread(0, split="test"), shape=(900, 900), spacing=(9, 9), label_counts={2: 1})
    summary = Fingerprint((labeled, labeled, unlabeled, test))
    assert summary.training == (labeled, labeled, unlabeled)
    assert summary.label_counts == {0: 10, 1: 4}


def test_shift_by_hand() -> None:
    labeled, unlabeled = [spread(10), spread(12), spread(14)], [spread(32), spread(36)]
    # The group medians differ by 22, a scan has width 12, and the distances from the group medians sum to 8.
    expected = 22 / (12 / 8 + 5 * 8 / 3 * sqrt(1 / 3 + 1 / 2))
    assert intensity_shift(labeled, unlabeled) == pytest.approx(expected, rel=1e-12)
    assert intensity_shift(unlabeled, labeled) == pytest.approx(expected, rel=1e-12)
    assert intensity_shift(labeled, unlabeled, standardized=True) == pytest.approx(0, abs=1e-12)


def test_the_narrower_group_gives_the_width() -> None:
    assert intensity_shift([spread(0)] * 2, [spread(0, 14)] * 2) == pytest.approx(12 / 1.5)


def test_an_outlier_does_not_hide_a_shift() -> None:
    assert intensity_shift([spread(0)] * 3, [spread(10), spread(10), spread(1e6)]) == pytest.approx(10 / 1.5)


def test_the_shift_is_the_maximum_over_channels() -> None:
    same, far = spread(0), spread(60)
    pair = replace(same, percentiles=same.percentiles * 2, mean=(0, 0), std=(1, 1))
    other = replace(pair, percentiles=same.percentiles + far.percentiles)
    assert intensity_shift([pair] * 2, [other] * 2) == pytest.approx(60 / 1.5)


def test_degenerate_groups() -> None:
    assert intensity_shift([], [spread(0)]) == 0
    assert intensity_shift([spread(1, 0)], [spread(1, 0)]) == 0
    assert intensity_shift([spread(1, 0)], [spread(2, 0)]) == inf
    assert intensity_shift([spread(1, 0)], [spread(2, 0)], standardized=True) == 0


def test_scaling_both_groups_changes_nothing() -> None:
    first, second = drawn(1, 4), drawn(2, 6, gain=1.3)
    scaled = intensity_shift(drawn(1, 4, 10, -500), drawn(2, 6, 13, -500))
    assert scaled == pytest.approx(intensity_shift(first, second), rel=1e-4)


def test_three_cases_of_one_scanner_show_no_shift() -> None:
    shifts = {seed: intensity_shift(drawn(seed, 3), drawn(seed + 5000, 12)) for seed in range(1000, 1020)}
    assert max(shifts.values()) < SHIFT_LIMIT, shifts


def test_another_scale_is_a_shift() -> None:
    for seed in range(1000, 1010):
        labeled, unlabeled = drawn(seed, 3), drawn(seed + 5000, 12, gain=2, offset=100)
        assert intensity_shift(labeled, unlabeled) > 2 * SHIFT_LIMIT, seed
        assert intensity_shift(labeled, unlabeled, standardized=True) < SHIFT_LIMIT, seed


def test_another_contrast_is_a_shift() -> None:
    inverted = drawn(3, 12, gain=-1, offset=200)
    assert intensity_shift(drawn(4, 3), inverted, standardized=True) > SHIFT_LIMIT


def test_in_parallel_keeps_the_order_and_stops_at_a_failure() -> None:
    assert in_parallel(lambda n: n * n, [3, 1, 2], "", workers=2) == [9, 1, 4]
    begun: list[int] = []

    def fail(item: int) -> None:
        begun.append(item)
        raise UserError(Code.OPTION_INVALID, "x", "y", "z")

    with pytest.raises(UserError):
        in_parallel(fail, range(50), "", workers=1)
    assert begun[0] == 0
