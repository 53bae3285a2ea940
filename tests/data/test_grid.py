"""Conversion to the prepared grid and back keeps the position of every voxel."""

import itertools
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.grid import (
    Grid,
    axis_codes,
    grid_difference,
    plan_grid,
    to_grid,
    to_source_axes,
)
from loops import for_each
from user_errors import user_error

PAIRS = ("RL", "AP", "SI")
ORIENTATIONS = ["".join(letters) for pairs in itertools.permutations(PAIRS) for letters in itertools.product(*pairs)]
orientations = st.sampled_from(ORIENTATIONS)
shapes = st.tuples(*[st.integers(1, 6)] * 3)


def geometry(shape: tuple[int, ...], matrix: NDArray[Any] | None = None, **fields: Any) -> Geometry:
    matrix = np.eye(4) if matrix is None else matrix
    return Geometry(shape, tuple(tuple(float(value) for value in row) for row in matrix), **fields)


def placed(codes: str, shape: tuple[int, ...], spacing: tuple[float, ...], tilt: float = 0.0) -> Geometry:
    """Return a geometry with axes near the given directions, rotated about the body's long axis."""
    matrix = np.eye(4)
    for axis, code in enumerate(codes):
        row = next(row for row, pair in enumerate(PAIRS) if code in pair)
        matrix[:3, axis] = 0
        matrix[row, axis] = spacing[axis] * (1 if code in "RAS" else -1)
    c, s = np.cos(tilt), np.sin(tilt)
    turn = np.array([[c, -s, 0, 3.5], [s, c, 0, -20], [0, 0, 1, 8], [0, 0, 0, 1]])
    return geometry(shape, turn @ matrix)


def prepared_matrix(source: Geometry, grid: Grid) -> NDArray[np.float64]:
    """Return the affine of the prepared grid, by definition of reorientation and half-pixel resampling."""
    to_source = np.zeros((4, 4))
    to_source[3, 3] = 1
    for k, (axis, flip) in enumerate(zip(grid.order, grid.flips, strict=True)):
        n, m = grid.source_shape[axis], grid.prepared_shape[k]
        to_source[axis, k] = -n / m if flip else n / m
        first = (0.5 * n / m) - 0.5
        to_source[axis, 3] = n - 1 - first if flip else first
    return np.asarray(source.matrix @ to_source)


@settings(deadline=None, max_examples=60)
@given(source=orientations, target=orientations, shape=shapes, tilt=st.floats(-0.6, 0.6))
def test_pure_reorientation_is_undone_exactly(
    source: str, target: str, shape: tuple[int, int, int], tilt: float
) -> None:
    scan = placed(source, shape, (1.0, 2.0, 3.0), tilt)
    grid = plan_grid(scan, orientation=target, spacing=None)
    labels = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    prepared = to_grid(labels, grid, labels=True)
    assert prepared.shape == grid.prepared_shape == grid.oriented_shape
    np.testing.assert_array_equal(to_source_axes(prepared, grid), labels)
    images = np.stack([labels, labels + 7])
    np.testing.assert_array_equal(to_grid(images, grid, labels=False), np.stack([prepared, prepared + 7]))
    np.testing.assert_array_equal(to_source_axes(to_grid(images, grid, labels=True), grid), images)


@settings(deadline=None, max_examples=50)
@given(source=orientations, shape=shapes)
def test_canonical_orientation_equals_nibabel(source: str, shape: tuple[int, int, int]) -> None:
    scan = placed(source, shape, (1.0, 2.0, 3.0), 0.3)
    labels = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    oracle = nibabel.as_closest_canonical(nibabel.Nifti1Image(labels, scan.matrix))
    grid = plan_grid(scan, orientation="ras", spacing=None)
    np.testing.assert_array_equal(to_grid(labels, grid, labels=True), np.asarray(oracle.dataobj))
    np.testing.assert_allclose(prepared_matrix(scan, grid), oracle.affine, atol=1e-9)
    np.testing.assert_allclose(grid.prepared_spacing, oracle.header.get_zooms(), rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(source=orientations, target=orientations, factors=st.tuples(*[st.integers(1, 3)] * 3), data=st.data())
def test_a_marked_voxel_keeps_its_world_position(
    source: str, target: str, factors: tuple[int, int, int], data: st.DataObject
) -> None:
    scan = placed(source, (4, 5, 6), (1.5, 2.0, 3.0), 0.2)
    kept = plan_grid(scan, orientation=target, spacing=None)
    spacing = [s / factor for s, factor in zip(kept.prepared_spacing, factors, strict=True)]
    grid = plan_grid(scan, orientation=target, spacing=spacing)
    assert grid.prepared_shape == tuple(n * k for n, k in zip(kept.prepared_shape, factors, strict=True))
    voxel = tuple(data.draw(st.integers(0, n - 1)) for n in scan.shape)
    labels = np.zeros(scan.shape, np.uint8)
    labels[voxel] = 1
    prepared = to_grid(labels, grid, labels=True)
    assert prepared.sum() == np.prod(factors)
    centre = np.append(np.argwhere(prepared).mean(axis=0), 1)
    np.testing.assert_allclose(prepared_matrix(scan, grid) @ centre, scan.matrix @ [*voxel, 1], atol=1e-9)
    oriented = np.argwhere(to_grid(labels, kept, labels=True))[0]
    np.testing.assert_allclose([grid.coordinates(k)[oriented[k]] for k in range(3)], centre[:3], atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(
    shape=st.tuples(*[st.integers(1, 9)] * 2),
    target=st.tuples(*[st.integers(1, 9)] * 2),
    seed=st.integers(0, 99),
)
def test_nearest_equals_torch_without_ties(shape: tuple[int, int], target: tuple[int, int], seed: int) -> None:
    grid = Grid(shape, (0, 1), (False, False), target, (1.0, 1.0))
    labels = np.random.default_rng(seed).integers(0, 200, shape).astype(np.uint8)
    oracle = torch.nn.functional.interpolate(torch.from_numpy(labels)[None, None], size=target, mode="nearest-exact")
    found = to_grid(labels, grid, labels=True)
    clear = [(2 * np.arange(m) + 1) * n % (2 * m) != 0 for n, m in zip(shape, target, strict=True)]
    np.testing.assert_array_equal(found[np.ix_(*clear)], oracle[0, 0].numpy()[np.ix_(*clear)])
    assert found.dtype == np.uint8


@pytest.mark.parametrize("spacing", [(0.5, 0.8, 1.7), (2.0, 1.3, 1.0), (0.9, 0, None)])
def test_a_linear_ramp_stays_a_linear_ramp(spacing: tuple[float | None, ...]) -> None:
    scan = geometry((12, 10, 8))
    grid = plan_grid(scan, orientation=None, spacing=spacing)
    x, y, z = np.meshgrid(*[np.arange(n) for n in scan.shape], indexing="ij")
    images = np.stack([x + 2 * y - 3 * z, 5 * z]).astype(np.int16)
    found = to_grid(images, grid, labels=False)
    assert found.dtype == np.float32
    # outside of the outermost source centers, the nearest value is used
    at = [
        np.clip((np.arange(m) + 0.5) * n / m - 0.5, 0, n - 1)
        for n, m in zip(scan.shape, grid.prepared_shape, strict=True)
    ]
    u, v, w = np.meshgrid(*at, indexing="ij")
    np.testing.assert_allclose(found, np.stack([u + 2 * v - 3 * w, 5 * w]), atol=1e-4)


def test_numbers_of_a_small_plan() -> None:
    scan = placed("LPS", (10, 4, 3), (0.7, 1.0, 5.0))
    grid = plan_grid(scan, orientation="RAS", spacing=(1.5, None, 2.5))
    assert grid.order == (0, 1, 2)
    assert grid.flips == (True, True, False)
    assert grid.prepared_shape == (5, 4, 6)
    assert grid.prepared_spacing == pytest.approx((1.4, 1.0, 2.5))
    np.testing.assert_allclose(grid.coordinates(2), [0.5, 2.5, 4.5])
    np.testing.assert_allclose(grid.coordinates(0)[:3], [-0.25, 0.25, 0.75])
    assert grid.coordinates(0).dtype == np.float64
    turned = plan_grid(placed("SLA", (3, 10, 4), (5.0, 0.7, 1.0)), orientation="RAS", spacing=(1.4, 2, 5))
    assert (turned.order, turned.flips) == ((1, 2, 0), (True, False, False))
    assert (turned.oriented_shape, turned.prepared_shape) == ((10, 4, 3), (5, 2, 3))


def test_linear_numbers_by_hand() -> None:
    grid = plan_grid(geometry((2, 1)), orientation=None, spacing=(0.5, 0))
    assert to_grid(np.array([[0], [4]]), grid, labels=False).tolist() == [[0], [1], [3], [4]]
    coarse = plan_grid(geometry((4, 1)), orientation=None, spacing=(2, 0))
    assert to_grid(np.array([[0], [1], [3], [4]]), coarse, labels=False).tolist() == [[0.5], [3.5]]


def test_a_thin_axis_keeps_one_voxel() -> None:
    grid = plan_grid(geometry((2, 2, 1)), orientation=None, spacing=(1, 1, 10))
    assert grid.prepared_shape == (2, 2, 1)
    assert grid.prepared_spacing == (1, 1, 1)


def test_units_count_in_the_spacing() -> None:
    scan = geometry((4, 4, 4), np.diag([500, 500, 500, 1]), units="micron")
    assert plan_grid(scan, orientation=None, spacing=(1, 1, 1)).prepared_shape == (2, 2, 2)


def test_two_dimensional_scans_keep_their_axes() -> None:
    grid = plan_grid(geometry((6, 4), np.diag([-1, -1, 1, 1])), orientation="RAS", spacing=(2, 1))
    assert grid == Grid((6, 4), (0, 1), (False, False), (3, 4), (2.0, 1.0))
    assert to_grid(np.ones((2, 6, 4)), grid, labels=False).shape == (2, 3, 4)


def test_an_unchanged_array_is_not_copied() -> None:
    grid = plan_grid(geometry((3, 4, 5)), orientation="RAS", spacing=(1, 1, 1))
    image, labels = np.zeros((1, 3, 4, 5), np.float32), np.zeros((3, 4, 5), np.uint8)
    assert np.shares_memory(to_grid(image, grid, labels=False), image)
    assert np.shares_memory(to_grid(labels, grid, labels=True), labels)
    assert np.shares_memory(to_source_axes(labels, grid), labels)


def test_results_are_contiguous_and_inputs_may_be_read_only() -> None:
    scan = placed("LPS", (4, 4, 4), (1.0, 1.0, 1.0))
    image = np.asfortranarray(np.random.default_rng(0).random((4, 4, 4), np.float32))
    image.flags.writeable = False
    for spacing in (None, (2.0, 2.0, 2.0)):
        for orientation in (None, "RAS"):
            grid = plan_grid(scan, orientation=orientation, spacing=spacing)
            for labels in (True, False):
                assert to_grid(image, grid, labels=labels).flags.c_contiguous
    contiguous = np.zeros((4, 4, 4), np.float32)
    contiguous.flags.writeable = False
    assert to_grid(contiguous, grid, labels=False).shape == (2, 2, 2)


@pytest.mark.parametrize("orientation", ["", "RA", "RRS", "RLS", "XYZ", "RASL"])
def test_an_invalid_orientation_is_refused(orientation: str) -> None:
    with user_error(Code.SETTING_INVALID, keyword="RL, AP and SI"):
        plan_grid(geometry((2, 2, 2)), orientation=orientation, spacing=None)


@pytest.mark.parametrize(
    ("spacing", "code", "keyword"),
    [
        ((1.0, 1.0), Code.SETTING_INVALID, "2 numbers"),
        ((1.0, -1.0, 1.0), Code.SETTING_INVALID, "(1.0, -1.0, 1.0)"),
        ((1.0, float("nan"), 1.0), Code.SETTING_INVALID, "nan"),
        ((1.0, float("inf"), 1.0), Code.SETTING_INVALID, "inf"),
        ((1e-4, 1e-4, 1.0), Code.SCAN_TOO_LARGE, "90000x90000x9"),
        ((1e-300, 1.0, 1.0), Code.SCAN_TOO_LARGE, "coarser"),
    ],
)
def test_an_invalid_spacing_is_refused(spacing: tuple[float, ...], code: Code, keyword: str) -> None:
    with user_error(code, "spacing", keyword):
        plan_grid(geometry((9, 9, 9)), orientation=None, spacing=spacing)


def test_arrays_of_another_shape_are_refused() -> None:
    grid = plan_grid(geometry((2, 3, 4)), orientation=None, spacing=(2, 3, 4))
    for shape in [(2, 3), (4, 3, 2), (1, 1, 2, 3, 4)]:
        with pytest.raises(ValueError, match=r"does not fit a grid of \(2, 3, 4\)"):
            to_grid(np.zeros(shape), grid, labels=True)
    with pytest.raises(ValueError, match=r"does not fit a grid of \(2, 3, 4\)"):
        to_source_axes(np.zeros((1, 1, 1), np.uint8), grid)


def test_axis_codes_of_all_orientations() -> None:
    found = [axis_codes(placed(codes, (2, 2, 2), (1.0, 2.0, 3.0), tilt=0.4)) for codes in ORIENTATIONS]
    assert found == list(ORIENTATIONS)


def test_axis_codes_of_a_plane_are_two() -> None:
    assert axis_codes(geometry((2, 2), np.diag([-1, 1, 1, 1]))) == "LA"


def turned(degrees: float) -> NDArray[np.float64]:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def moved(x: float, y: float = 0, z: float = 0) -> NDArray[np.float64]:
    matrix = np.eye(4)
    matrix[:3, 3] = x, y, z
    return matrix


SHAPE = (48, 48, 20)


@for_each(
    ("second", "phrase"),
    [
        (geometry(SHAPE), None),
        (geometry(SHAPE, moved(0.009)), None),
        (geometry(SHAPE, np.diag([1, 1.0001, 1, 1])), None),
        (geometry(SHAPE, np.diag([0.001, 0.001, 0.001, 1]), units="meter"), None),
        (geometry(SHAPE, units="unknown", qform_code=3, sform_code=0), None),
        (geometry((48, 48, 21)), "shape 48x48x20 and 48x48x21 (1 voxel more along axis 3)"),
        (
            geometry((40, 48, 19)),
            "shape 48x48x20 and 40x48x19 (8 voxels fewer along axis 1, 1 voxel fewer along axis 3)",
        ),
        (geometry((48, 48)), "shape 48x48x20 and 48x48 (3 and 2 axes)"),
        (geometry(SHAPE, moved(1.5, -2, 0)), "origin 2.50 mm apart"),
        (geometry(SHAPE, moved(0.012)), "origin 0.01 mm apart"),
        (geometry(SHAPE, np.diag([1, 1.25, 1, 1])), "spacing 1.00 and 1.25 mm along axis 2"),
        (geometry(SHAPE, np.diag([1, 1.001, 1, 1])), "spacing 1.000 and 1.001 mm along axis 2"),
        (
            geometry(SHAPE, units="micron"),
            ", ".join(f"spacing 1.00 and 0.001 mm along axis {k}" for k in (1, 2, 3)),
        ),
        (geometry(SHAPE, turned(3.2)), "rotated by 3.2 degrees"),
        (geometry(SHAPE, turned(-0.02)), "rotated by 0.02 degrees"),
        (geometry(SHAPE, moved(1) @ turned(5)), "rotated by 5.0 degrees, origin 1.00 mm apart"),
        (geometry(SHAPE, np.diag([-1, -1, 1, 1])), "orientation RAS and LPS"),
    ],
)
def test_grid_differences_are_described(second: Geometry, phrase: str | None) -> None:
    assert grid_difference(geometry(SHAPE), second) == phrase


def test_small_differences_add_up() -> None:
    second = np.diag([1.0001, 1.0001, 1.0001, 1])
    second[:3, 3] = 0.005
    assert grid_difference(geometry((90, 90, 90)), geometry((90, 90, 90), second)) == "corners 0.02 mm apart"


def test_2d_grids_differ_only_along_two_axes() -> None:
    assert grid_difference(geometry((8, 8)), geometry((8, 8), np.diag([1, 1, 7, 1]))) is None
    assert grid_difference(geometry((8, 8)), geometry((8, 8), np.diag([1, 2, 1, 1]))) == (
        "spacing 1.00 and 2.00 mm along axis 2"
    )
