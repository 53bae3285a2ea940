"""Components removed by rank and by size, compared with scipy."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from scipy import ndimage

from graftseg.ops.components import filter_components, largest_components

MAPS = arrays(np.uint8, array_shapes(min_dims=2, max_dims=3, max_side=7), elements=st.integers(0, 3))


def filtered(labels: Any, keep: dict[int, int], min_voxels: dict[int, float]) -> Any:
    return filter_components(torch.tensor(labels, dtype=torch.uint8), keep, min_voxels).tolist()


def test_exact_maps() -> None:
    labels = [[1, 0, 1, 1, 0, 1, 1, 1, 0, 2]]
    assert filtered(labels, {1: 2}, {}) == [[0, 0, 1, 1, 0, 1, 1, 1, 0, 2]]
    assert filtered(labels, {1: 3, 2: 1}, {}) == labels
    assert filtered(labels, {}, {1: 2.5}) == [[0, 0, 0, 0, 0, 1, 1, 1, 0, 2]]
    assert filtered(labels, {}, {1: 2, 2: 2}) == [[0, 0, 1, 1, 0, 1, 1, 1, 0, 0]]
    assert filtered(labels, {1: 2}, {1: 3}) == [[0, 0, 0, 0, 0, 1, 1, 1, 0, 2]]
    assert filtered([[0, 0]], {1: 2}, {1: 3}) == [[0, 0]]


def test_the_first_of_equal_components_are_kept() -> None:
    labels = [[3, 0, 3, 0, 3, 3, 0, 3]]
    assert filtered(labels, {3: 1}, {}) == [[0, 0, 0, 0, 3, 3, 0, 0]]
    assert filtered(labels, {3: 2}, {}) == [[3, 0, 0, 0, 3, 3, 0, 0]]
    assert filtered(labels, {3: 3}, {}) == [[3, 0, 3, 0, 3, 3, 0, 0]]


def by_scipy(labels: NDArray[np.uint8], keep: dict[int, int], min_voxels: dict[int, float]) -> NDArray[np.uint8]:
    """Filter one class at a time; scipy numbers components by their first voxel."""
    result = labels.copy()
    for value in {*keep, *min_voxels}:
        numbered, count = ndimage.label(labels == value, np.ones((3,) * labels.ndim))
        sizes = {number: int((numbered == number).sum()) for number in range(1, count + 1)}
        ranked = sorted(sizes, key=lambda number: (-sizes[number], number))
        kept = [number for number in ranked[: keep.get(value, count)] if sizes[number] >= min_voxels.get(value, 0)]
        result[(labels == value) & ~np.isin(numbered, kept)] = 0
    return result


@settings(deadline=None, max_examples=60)
@given(
    MAPS,
    st.dictionaries(st.integers(1, 3), st.integers(1, 3)),
    st.dictionaries(st.integers(1, 3), st.floats(0.5, 6)),
)
def test_filters_equal_scipy(labels: NDArray[np.uint8], keep: dict[int, int], min_voxels: dict[int, float]) -> None:
    kept = filter_components(torch.from_numpy(labels), keep, min_voxels)
    assert kept.dtype == torch.uint8
    np.testing.assert_array_equal(kept.numpy(), by_scipy(labels, keep, min_voxels))


@settings(deadline=None, max_examples=30)
@given(MAPS)
def test_one_component_is_the_largest(labels: NDArray[np.uint8]) -> None:
    given_labels = torch.from_numpy(labels)
    largest = filter_components(given_labels, dict.fromkeys((1, 2, 3), 1), {})
    assert torch.equal(largest, largest_components(given_labels[None], 4)[0])
