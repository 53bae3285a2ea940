import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graftseg.core.types import Geometry, Matrix
from graftseg.data.slices import Cut, thumbnail_of


def diagonal(*spacing: float) -> Matrix:
    return tuple(tuple(row) for row in np.diag([*spacing, 1.0]).tolist())


@pytest.mark.parametrize(("spacing", "axis", "middle"), [((1, 1, 1), 2, 3), ((1, 3, 1), 1, 2), ((2, 1, 1), 0, 2)])
def test_slices_are_across_the_largest_spacing(spacing: tuple[float, ...], axis: int, middle: int) -> None:
    cut = Cut.across_largest_spacing(Geometry((4, 5, 6), diagonal(*spacing)))
    assert cut.axis == axis
    assert cut.fullest() == cut.fullest(np.zeros((4, 5, 6))) == middle


def test_the_fullest_slice_of_the_first_nonempty_label_map() -> None:
    cut = Cut.across_largest_spacing(Geometry((4, 5, 6), diagonal(1, 1, 1)))
    first, second = np.zeros((4, 5, 6), int), np.zeros((4, 5, 6), int)
    second[1, 1, 5] = 1
    assert cut.fullest(first, second) == 5
    first[0, :2, 1], first[0, :3, 4] = 1, 2
    assert cut.fullest(first, second) == 4


@settings(max_examples=50, deadline=None)
@given(st.permutations([0, 1, 2]), st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3), st.data())
def test_the_index_of_a_voxel_is_its_slice(order: list[int], signs: tuple[float, ...], data: st.DataObject) -> None:
    matrix = np.zeros((4, 4))
    matrix[3, 3] = 1
    for axis, (target, sign) in enumerate(zip(order, signs, strict=True)):
        matrix[target, axis] = sign * (1 + axis % 2)
    cut = Cut.across_largest_spacing(Geometry((4, 5, 6), tuple(map(tuple, matrix.tolist()))))
    voxel = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 5)))
    array = np.zeros((4, 5, 6))
    array[voxel] = 1
    assert cut.plane(array, cut.index_of(voxel)).sum() == 1
    assert cut.fullest(array) == cut.index_of(voxel)


def test_a_2d_scan_is_one_slice() -> None:
    image = np.arange(20.0).reshape(4, 5)
    thumbnail = thumbnail_of(image, None, Geometry((4, 5), diagonal(1, 2, 1)))
    assert thumbnail.image.shape == (5, 4)
    assert (thumbnail.aspect, thumbnail.labels) == (2.0, None)
    assert (thumbnail.image[0, 0], thumbnail.image[-1, -1]) == (0, 255)


def test_a_thumbnail_is_small_and_contains_the_voxel() -> None:
    image, labels = np.zeros((400, 300, 3)), np.zeros((400, 300, 3), np.uint8)
    labels[:, :, 0], labels[0, 0, 2] = 1, 2
    where = Geometry(image.shape, diagonal(-1, -1, 5))
    fullest, through = thumbnail_of(image, labels, where), thumbnail_of(image, labels, where, (0, 0, 2))
    assert fullest.image.shape == (100, 134)
    assert fullest.labels is not None and (fullest.labels == 1).all()
    assert through.labels is not None and (through.labels[0, 0], through.labels.sum()) == (2, 2)


def test_a_label_of_another_size_is_not_shown() -> None:
    thumbnail = thumbnail_of(np.zeros((4, 5)), np.ones((5, 4), np.uint8), Geometry((4, 5), diagonal(1, 1, 1)))
    assert thumbnail.labels is None
    assert not thumbnail.image.any()
