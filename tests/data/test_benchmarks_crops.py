"""Crops around a label map."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graftseg.data.benchmarks.pancreas import cropped, widened
from graftseg.data.pieces import foreground_box


def test_the_box_of_a_label() -> None:
    label = np.zeros((5, 6, 7), np.uint8)
    label[1, 2, 3] = label[3, 2, 6] = 1
    assert foreground_box(label) == (slice(1, 4), slice(2, 3), slice(3, 7))
    assert foreground_box(np.zeros((2, 2, 2))) is None


def test_margins_stay_within_the_image() -> None:
    assert widened(((30, 40), (5, 90), (2, 3)), (200, 100, 4), 25, 20) == ((5, 65), (0, 100), (0, 4))


def test_small_boxes_grow_evenly_and_are_pushed_inside() -> None:
    box = ((50, 54), (0, 2), (98, 100))
    assert widened(box, (100, 100, 100), 1, 11) == ((47, 58), (0, 11), (89, 100))


def test_a_small_crop_is_padded_with_zeros() -> None:
    image = np.arange(1, 13).reshape(3, 4)
    assert cropped(image, ((1, 3), (0, 2)), 3).tolist() == [[5, 6, 0], [9, 10, 0], [0, 0, 0]]
    assert cropped(image, ((0, 1), (3, 4)), 0).tolist() == [[4]]


bounds = st.integers(1, 40).flatmap(
    lambda size: st.tuples(st.integers(0, size - 1), st.integers(1, size), st.just(size)).filter(lambda b: b[0] < b[1])
)


@given(st.lists(bounds, min_size=1, max_size=3), st.integers(0, 9), st.integers(0, 30))
def test_a_widened_box_contains_the_label_and_has_the_minimum_size(
    axes: list[tuple[int, int, int]], margin: int, least: int
) -> None:
    box, shape = tuple((start, stop) for start, stop, _ in axes), [size for *_, size in axes]
    wide = widened(box, shape, margin, least)
    for (start, stop), (low, high), size in zip(box, wide, shape, strict=True):
        assert 0 <= low <= max(start - margin, 0) and min(stop + margin, size) <= high <= size
        assert high - low >= min(least, size)
        assert high - low <= max(stop - start + 2 * margin, least)
    image = np.ones(shape)
    assert all(side >= least for side in cropped(image, wide, least).shape)
    assert cropped(image, wide, least).sum() == np.prod([high - low for low, high in wide])
