"""Distances by axis, as on a GPU, and scipy's distances equal the definition."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.spatial.distance import cdist

from graftseg.ops import distances as distance_transform
from graftseg.ops.distances import distance_to, squared_distance_to

Masks = npt.NDArray[np.bool_]


def by_definition(mask: Masks) -> npt.NDArray[np.float64]:
    voxels = np.array(list(product(*map(range, mask.shape))))
    to = voxels[mask.ravel()]
    if not len(to):
        return np.full(mask.shape, np.inf)
    return np.asarray(cdist(voxels, to).min(1).reshape(mask.shape))


some_masks = array_shapes(min_dims=3, max_dims=4, max_side=6).flatmap(lambda shape: arrays(np.bool_, shape))
few_voxels = st.builds(
    lambda shape, place: np.arange(np.prod(shape)).reshape(shape) == place % np.prod(shape),
    array_shapes(min_dims=3, max_dims=4, max_side=6),
    st.integers(0, 10_000),
)


@settings(max_examples=60, deadline=None)
@given(masks=some_masks | few_voxels, block=st.sampled_from([1, 50, 1 << 26]))
def test_distance_to_the_nearest_voxel(masks: Masks, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance_transform, "MAX_BLOCK_ELEMENTS", block)
        squared = squared_distance_to(torch.from_numpy(masks))
    distances = distance_to(torch.from_numpy(masks))
    expected = np.stack([by_definition(mask) for mask in masks])
    assert squared.dtype == distances.dtype == torch.float32
    np.testing.assert_array_equal(squared, np.round(expected**2))
    np.testing.assert_allclose(distances, expected, rtol=1e-6)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_full_and_empty_masks(dimensions: int) -> None:
    masks = torch.stack([torch.zeros((5,) * dimensions, dtype=torch.bool), torch.ones((5,) * dimensions) > 0])
    for distances in (distance_to(masks), squared_distance_to(masks)):
        assert torch.isinf(distances[0]).all()
        assert torch.equal(distances[1], torch.zeros((5,) * dimensions))


def test_large_squares_are_exact() -> None:
    mask = torch.zeros(1, 3, 2000, dtype=torch.bool)
    mask[0, 0, 0] = True
    assert squared_distance_to(mask)[0, 2, 1999].item() == 1999**2 + 2**2


def test_scipy_distance_compiles_as_one_operator() -> None:
    compiled = torch.compile(distance_to, backend="eager", fullgraph=True)
    mask = torch.eye(4).bool()[None]
    assert torch.equal(compiled(mask), distance_to(mask))
