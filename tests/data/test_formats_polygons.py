"""Filling of polygons: exact squares, holes, and random polygons against scikit-image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.data.formats import rtstruct
from graftseg.data.formats.rtstruct import edges_of, fill_polygons

Points = NDArray[np.float64]


def square(low: float, high: float) -> Points:
    return np.array([(low, low), (high, low), (high, high), (low, high)])


def test_a_center_on_the_lower_edge_is_inside_and_on_the_upper_edge_is_not() -> None:
    expected = np.zeros((6, 5), bool)
    expected[1:3, 1:3] = True
    assert np.array_equal(fill_polygons([square(1, 3)], (6, 5)), expected)
    assert np.array_equal(fill_polygons([square(0.5, 2.5)], (6, 5)), expected)
    assert np.array_equal(fill_polygons([square(1, 3)[::-1]], (6, 5)), expected)


def test_polygons_with_a_common_edge_share_no_pixel() -> None:
    corners = np.array([(0.0, 0.0), (7.0, 0.0), (7.0, 7.0), (0.0, 7.0)])
    center = np.array([3.0, 4.0])
    parts = [fill_polygons([np.array([corners[i - 1], corners[i], center])], (8, 8)) for i in range(4)]
    assert np.array_equal(sum(part.astype(int) for part in parts), fill_polygons([corners], (8, 8)).astype(int))


def test_an_inner_polygon_and_a_keyhole_are_the_same_hole() -> None:
    outer, inner = square(0.5, 8.5), square(2.5, 5.5)
    keyhole = np.concatenate([outer, outer[:1], inner[::-1], inner[-1:], outer[:1]])
    found = fill_polygons([outer, inner], (10, 10))
    assert found.sum() == 64 - 9 and not found[3:6, 3:6].any()
    assert np.array_equal(fill_polygons([keyhole], (10, 10)), found)


def test_parts_outside_of_the_grid_are_cut_off() -> None:
    assert fill_polygons([square(-9.5, 99.5)], (4, 3)).all()
    assert not fill_polygons([square(20, 30)], (4, 3)).any()
    assert not fill_polygons([np.array([(1.0, 1.0)])], (4, 3)).any()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 12))
def test_random_polygons_are_filled_as_by_scikit_image(seed: int, count: int) -> None:
    measure = pytest.importorskip("skimage.measure")
    shape = (13, 11)
    points = np.random.default_rng(seed).uniform(-3, 15, (count, 2))
    centers = np.argwhere(np.ones(shape, bool))
    expected = measure.points_in_poly(centers, points).reshape(shape)
    assert np.array_equal(fill_polygons([points], shape), expected)


def test_groups_of_edges_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    star = np.random.default_rng(0).uniform(-2, 12, (40, 2))
    known = fill_polygons([star, square(1, 7)], (10, 10))
    for crossings in (1, 3, 50):
        monkeypatch.setattr(rtstruct, "CROSSINGS", crossings)
        assert np.array_equal(fill_polygons([star, square(1, 7)], (10, 10)), known)


def test_edges_do_not_depend_on_start_and_direction() -> None:
    one = np.array([(0.0, 0.0), (4.0, -0.0), (4.0, 3.0), (1.0, 2.0), (0.0, 3.0)])
    same = [np.roll(one, 2, axis=0), one[::-1], np.concatenate([one, one[:1]]), one + 1e-6]
    assert {edges_of(points) for points in same} == {edges_of(one)}
    # the same corners in another order are another polygon
    assert edges_of(one[[0, 2, 1, 3, 4]]) != edges_of(one) != edges_of(one + 1e-3)
