"""Signed distances by hand, by their definition with scipy, and of classes without a boundary."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import ndimage

from graftseg.ops import distances as distances_module
from graftseg.ops.distances import distance_channels, inner_boundary, signed_distance, squared_distance_to

Labels = npt.NDArray[np.int64]


def by_definition(inside: npt.NDArray[np.bool_], absent: float) -> npt.NDArray[np.float64]:
    """Find boundary voxels by erosion. Outside the image, edge voxels are repeated."""
    if inside.all() or not inside.any():
        return np.where(inside, -absent, absent)
    d_out, d_in = ndimage.distance_transform_edt(~inside), ndimage.distance_transform_edt(inside)
    cross = ndimage.generate_binary_structure(inside.ndim, 1)
    core = ndimage.grey_erosion(inside.astype(np.uint8), footprint=cross, mode="nearest").astype(bool)
    S = np.asarray(d_out) / np.max(d_out) - np.asarray(d_in) / np.max(d_in)
    return np.where(inside & ~core, 0.0, S)


def test_a_line_by_hand() -> None:
    """Five foreground voxels: distances are 1 to 4 outside, 1, 2, 3, 2, 1 inside; both ends are boundary."""
    labels = torch.tensor([[[0, 1, 1, 1, 1, 1, 0, 0, 0, 0]]])
    expected = [1 / 4, 0, -2 / 3, -1, -2 / 3, 0, 1 / 4, 2 / 4, 3 / 4, 1]
    assert signed_distance(labels, 2)[0, 0, 0].tolist() == pytest.approx(expected)


label_maps = array_shapes(min_dims=3, max_dims=4, max_side=6).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 2))
)


@settings(max_examples=60, deadline=None)
@given(labels=label_maps, absent=st.sampled_from([0.0, 1.0]), on_gpu=st.booleans())
def test_signed_distance_equals_the_definition(labels: Labels, absent: float, on_gpu: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if on_gpu:
            patch.setattr(distances_module, "distance_to", lambda masks: squared_distance_to(masks).sqrt())
        S = signed_distance(torch.from_numpy(labels), 3, absent)
        S_of_class_1 = signed_distance(torch.from_numpy((labels == 1).astype(np.int64)), 2, absent)
    expected = np.stack([[by_definition(sample == c, absent) for c in range(3)] for sample in labels])
    assert S.dtype == torch.float32 and S.shape == expected.shape
    np.testing.assert_allclose(S, expected, atol=1e-6)
    assert torch.equal(S_of_class_1, S[:, 1:2])


@pytest.mark.parametrize(("absent", "outside", "filled"), [(0.0, 0.0, 0.0), (1.0, 1.0, -1.0)])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_signed_distance_without_a_boundary(absent: float, outside: float, filled: float, dimensions: int) -> None:
    space = (4,) * dimensions
    labels = torch.stack([torch.zeros(space, dtype=torch.long), torch.ones(space, dtype=torch.long)])
    S = signed_distance(labels, 2, absent)
    assert torch.equal(S[0, 0], torch.full(space, outside))
    assert torch.equal(S[1, 0], torch.full(space, filled))


def test_single_voxel_is_boundary() -> None:
    labels = torch.zeros(1, 3, 3, 3, dtype=torch.long)
    labels[0, 1, 1, 1] = 1
    S = signed_distance(labels, 2)[0, 0]
    assert S[1, 1, 1] == 0
    assert S[0, 0, 0].item() == 1
    assert S[0, 1, 1].item() == pytest.approx(3**-0.5)


def test_image_edge_is_not_a_boundary() -> None:
    inside = torch.tensor([[[[1, 1, 0], [1, 1, 0], [1, 1, 1]]]]).bool()
    assert inner_boundary(inside)[0, 0].int().tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_two_classes_have_one_distance_map() -> None:
    assert [distance_channels(classes) for classes in (2, 3, 4)] == [1, 3, 4]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize("space", [(40, 24), (24, 20, 16)])
def test_cuda_graph_replays_without_the_host(space: tuple[int, ...]) -> None:
    first, second = torch.randint(3, (2, 4, *space))
    labels, graph = first.cuda(), torch.cuda.CUDAGraph()
    signed_distance(labels, 3, 1.0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        S = signed_distance(labels, 3, 1.0)
    for other in (first, second):
        labels.copy_(other)
        graph.replay()
        torch.testing.assert_close(S.cpu(), signed_distance(other, 3, 1.0))
