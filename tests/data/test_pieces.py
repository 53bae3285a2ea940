import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage

from graftseg.data.pieces import ISLAND_SHARE, Pieces, pieces_of

Labels = npt.NDArray[np.uint8]


def oracle(labels: Labels, value: int) -> list[int]:
    """Return the sizes of the pieces of a class, largest first, computed by scipy."""
    everywhere = np.ones((3,) * labels.ndim, int)
    numbered, count = ndimage.label(labels == value, structure=everywhere)
    return sorted((int(size) for size in np.bincount(numbered.ravel())[1:]), reverse=True) if count else []


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(
        np.uint8,
        st.one_of(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.tuples(*[st.integers(1, 6)] * 3)),
        elements=st.sampled_from([0, 0, 0, 1, 2, 5]),
    )
)
def test_pieces_equal_scipy(labels: Labels) -> None:
    found = pieces_of(labels)
    assert sorted(found) == sorted(set(np.unique(labels).tolist()) - {0})
    for value, pieces in found.items():
        sizes = oracle(labels, value)
        assert (pieces.count, pieces.voxels) == (len(sizes), sum(sizes))
        assert list(pieces.sizes) == sizes[:16]


def test_islands_are_small_by_count_and_by_share() -> None:
    labels = np.zeros((60, 60, 3), np.uint8)
    labels[10:50, 10:30] = 1
    assert pieces_of(labels) == {1: Pieces(2400, 1, (2400,))}
    labels[55, 55:58] = 1  # 9 voxels: an island
    labels[0, 0, 0] = 1
    labels[55:57, 0:5] = 1  # 30 voxels, above 1 % of 2400: a piece, not an island
    assert pieces_of(labels) == {1: Pieces(2440, 4, (2400, 30, 9, 1), 2, 10, (1, 9), (55, 55, 0))}


def test_two_kidneys_are_not_islands() -> None:
    labels = np.zeros((30, 30, 4), np.uint8)
    labels[2:10, 2:10] = labels[20:26, 20:26] = 3
    assert pieces_of(labels) == {3: Pieces(400, 2, (256, 144))}


@pytest.mark.parametrize("extra", [0, 1])
def test_a_piece_of_exactly_the_share_is_not_an_island(extra: int) -> None:
    labels = np.zeros((40, 40), np.uint8)
    labels[:10, : 20 + extra] = 1
    labels[30, 30:32] = 1
    assert ISLAND_SHARE * 200 == 2
    assert pieces_of(labels)[1].islands == extra


def test_an_empty_label_map_has_no_pieces() -> None:
    assert pieces_of(np.zeros((4, 5), np.uint8)) == {}
