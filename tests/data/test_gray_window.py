import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from graftseg.data.slices import MAX_VALUES, gray_window, to_gray


def test_percentiles_without_the_padding() -> None:
    scan = np.concatenate([np.full(900, -3000.0), np.arange(101.0)])
    assert gray_window(scan) == (1.0, 99.0)
    gray = to_gray(np.array([[-3000.0, 1.0, 50.0, 99.0, 4000.0]]), gray_window(scan))
    assert gray.tolist() == [[0, 0, 128, 255, 255]]


def test_a_dark_scan_with_a_bright_part_becomes_visible() -> None:
    tissue = np.random.default_rng(0).normal(100, 10, 10_000)
    scan = np.concatenate([np.zeros(90_000), tissue, np.full(1000, 5000.0)])  # the bright part is 9 % of the body
    assert 60 < to_gray(tissue, gray_window(scan)).mean() < 160
    full_range = 255 * tissue.mean() / 5000
    assert full_range < 10


@pytest.mark.parametrize(
    ("scan", "window"),
    [
        ([7.0, 7.0], (7.0, 8.0)),
        ([0.0] * 99 + [2.0], (0.0, 2.0)),
        ([0.0] * 50 + [100.0] * 40 + [200.0] * 5, (0.0, 200.0)),
        ([np.nan, np.inf], (0.0, 1.0)),
        ([], (0.0, 1.0)),
    ],
)
def test_special_scans(scan: list[float], window: tuple[float, float]) -> None:
    assert gray_window(np.array(scan)) == window


def test_not_finite_values() -> None:
    assert to_gray(np.array([[np.nan, 1.0, np.inf, -np.inf]]), (0.0, 2.0)).tolist() == [[0, 128, 255, 0]]


def test_a_large_scan_is_sampled() -> None:
    size = 2 * MAX_VALUES
    low, high = gray_window(np.arange(size).reshape(2, -1))
    assert low / size == pytest.approx(0.01, abs=1e-5) and high / size == pytest.approx(0.99, abs=1e-5)


@given(arrays(np.float32, 30, elements=st.floats(-1e6, 1e6, width=32)))
def test_window_is_ordered_and_inside_the_range(scan: NDArray[np.float32]) -> None:
    low, high = gray_window(scan)
    assert low < high and low >= scan.min()
    assert high <= scan.max() or scan.min() == scan.max()
