import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graftseg.data.checks.copies import coarse_view

shapes = st.tuples(st.integers(1, 3), st.integers(8, 40), st.integers(8, 40))


@settings(max_examples=30, deadline=None)
@given(shapes, st.floats(0.01, 1e4), st.floats(-1e4, 1e4), st.integers(0, 99))
def test_intensity_scaling_changes_nothing(shape: tuple[int, ...], gain: float, offset: float, seed: int) -> None:
    voxels = np.random.default_rng(seed).normal(100, 20, shape)
    first, second = coarse_view(voxels), coarse_view(voxels * gain + offset)
    assert first is not None and second is not None
    assert float(first @ first) == pytest.approx(1, abs=1e-5)
    assert float(first @ second) == pytest.approx(1, abs=1e-4)


def test_the_product_is_the_correlation_of_block_means() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(1, 32, 48)), rng.normal(size=(1, 32, 48))
    blocks = [array[0].reshape(16, 2, 16, 3).mean(axis=(1, 3)).ravel() for array in (one, two)]
    first, second = coarse_view(one), coarse_view(two)
    assert first is not None and second is not None
    assert float(first @ second) == pytest.approx(np.corrcoef(*blocks)[0, 1], abs=1e-6)


def test_scans_that_cannot_be_compared() -> None:
    assert coarse_view(np.random.default_rng(0).normal(size=(1, 7, 9))) is None
    assert coarse_view(np.full((1, 20, 20), 1e6)) is None
    assert coarse_view(np.stack([np.arange(400.0).reshape(20, 20), np.zeros((20, 20))])) is None
