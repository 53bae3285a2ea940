"""Conversion between the grid of a scan and the prepared grid of the network, and comparison of grids."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from nibabel.orientations import aff2axcodes, axcodes2ornt, io_orientation, ornt_transform
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.types import MILLIMETERS, Geometry

MAX_VOXELS = 2**31  # maximum number of voxels of a resampled channel. A spacing that needs more voxels is refused
GRID_TOLERANCE = 0.01  # largest difference of equal grids, in voxels: above rounding in headers, below a real shift


@dataclass(frozen=True)
class Grid:
    """The conversion of a scan to the prepared grid: permute axes, then flip, then resample.

    Prepared axis ``k`` is source axis ``order[k]``, reversed if ``flips[k]``. Resampling keeps the outer edges of the
    volume. ``prepared_spacing`` (in mm) may differ from the requested spacing, because voxel counts are integers.
    """

    source_shape: tuple[int, ...]
    order: tuple[int, ...]
    flips: tuple[bool, ...]
    prepared_shape: tuple[int, ...]
    prepared_spacing: tuple[float, ...]

    def __post_init__(self) -> None:
        # the manifest of a store may be edited
        axes = len(self.source_shape)
        parts = (self.order, self.flips, self.prepared_shape, self.prepared_spacing)
        if sorted(self.order) != list(range(axes)) or any(len(part) != axes for part in parts):
            raise ValueError("the fields have different numbers of axes")

    @property
    def oriented_shape(self) -> tuple[int, ...]:
        """Shape of the source with its axes in prepared order, before resampling."""
        return tuple(self.source_shape[axis] for axis in self.order)

    @property
    def is_resampled(self) -> bool:
        """Whether preparation resamples the scan, in addition to reordering its axes."""
        return self.prepared_shape != self.oriented_shape

    @property
    def prepared_voxel(self) -> float:
        """Volume of a prepared voxel in mm³ (in 2-D the area in mm²), assuming right angles."""
        return math.prod(self.prepared_spacing)

    @property
    def prepared_voxel_ml(self) -> float | None:
        """Volume of a prepared voxel in milliliters, assuming right angles; None for a 2-D scan."""
        return self.prepared_voxel / 1000 if len(self.prepared_spacing) == 3 else None

    @property
    def source_voxel_ml(self) -> float | None:
        """Volume of a voxel of the scan in milliliters, assuming right angles; None for a 2-D scan."""
        voxel = self.prepared_voxel_ml
        return voxel and voxel * (math.prod(self.prepared_shape) / math.prod(self.source_shape))

    def coordinates(self, axis: int) -> NDArray[np.float64]:
        """Return the prepared index ``(i + 0.5) * n_prepared / n - 0.5`` of each voxel ``i`` of a reoriented axis."""
        n = self.oriented_shape[axis]
        return np.asarray((np.arange(n) + 0.5) * (self.prepared_shape[axis] / n) - 0.5, dtype=np.float64)

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Grid":
        """Return the grid of an unchanged array with voxels of 1 mm."""
        axes = len(shape)
        return cls(shape, tuple(range(axes)), (False,) * axes, shape, (1.0,) * axes)


def is_valid_affine(matrix: NDArray[np.float64]) -> bool:
    """Return whether a 4x4 matrix is finite and has three independent axes."""
    with np.errstate(all="ignore"):
        volume = np.linalg.det(matrix[:3, :3] / np.linalg.norm(matrix[:3, :3], axis=0))
    return bool(abs(volume) > 1e-6 and np.isfinite(matrix).all())


def plan_grid(geometry: Geometry, *, orientation: str | None, spacing: Sequence[float | None] | None) -> Grid:
    """Plan the conversion of a scan to an orientation and a spacing.

    ``orientation`` gives the directions of the three axes, such as ``RAS``. Each axis moves to the nearest direction,
    so an oblique scan keeps its tilt. None keeps the axes, and a 2-D scan always keeps its axes.
    ``spacing`` is in millimeters, with one number per axis after reorientation. None or 0 keeps the spacing of an axis.
    """
    axes = len(geometry.shape)
    order, flips = tuple(range(axes)), (False,) * axes
    if orientation is not None and axes == 3:
        letters = orientation.upper()
        if len(letters) != 3 or any(len(set(pair) & set(letters)) != 1 for pair in ("RL", "AP", "SI")):
            remedy = "use one letter from each of the pairs RL, AP and SI, such as RAS"
            raise UserError(Code.SETTING_INVALID, "orientation", f"{orientation!r} is not three axis codes", remedy)
        transform = ornt_transform(io_orientation(geometry.matrix), axcodes2ornt(letters))
        order = tuple(int(axis) for axis in np.argsort(transform[:, 0]))
        flips = tuple(bool(transform[axis, 1] < 0) for axis in order)
    shape = tuple(geometry.shape[axis] for axis in order)
    old = tuple(geometry.spacing[axis] for axis in order)
    prepared = shape if spacing is None else _resampled_shape(shape, old, spacing)
    extents = zip(shape, old, prepared, strict=True)
    actual = tuple(s if n == m else n * s / m for n, s, m in extents)
    return Grid(geometry.shape, order, flips, prepared, actual)


def to_grid(array: NDArray[Any], grid: Grid, *, labels: bool) -> NDArray[Any]:
    """Convert ``(C, *space)`` or ``(*space)`` to the prepared grid.

    Images are interpolated linearly and become float32. Labels take the nearest voxel and keep their type. The
    outer edges of both grids coincide. The result is contiguous, and shares memory with the input if nothing changes.
    """
    _leading_axes(array, grid.source_shape)  # raises if the shapes differ
    oriented = to_oriented_axes(array, grid)
    if labels:
        return np.ascontiguousarray(_nearest(oriented, grid.prepared_shape))
    if not grid.is_resampled:
        return np.ascontiguousarray(oriented, dtype=np.float32)
    return _linear(oriented, grid.prepared_shape)


def ras_view(array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Return a view of ``(C, *space)`` with axes nearest to RAS, unless the orientation is unknown."""
    if not geometry.is_placed:
        return array
    return to_oriented_axes(array, plan_grid(geometry, orientation="RAS", spacing=None))


def lossless_reorientation(source: Geometry, target: Geometry, tolerance: float) -> Grid | None:
    """Return how to permute and flip axes so that the grids match within ``tolerance`` voxels, or None."""
    is_volume = len(source.shape) == len(target.shape) == 3
    if not is_volume or not source.is_placed or not target.is_placed or axis_codes(source) == axis_codes(target):
        return None
    grid = plan_grid(source, orientation=axis_codes(target), spacing=None)
    distance = corner_distance(target, _reoriented(source, grid))
    return grid if distance < tolerance * min(target.spacing) else None


def _reoriented(geometry: Geometry, grid: Grid) -> Geometry:
    old = geometry.matrix
    new = old.copy()
    for axis, (source, flip) in enumerate(zip(grid.order, grid.flips, strict=True)):
        new[:, axis] = -old[:, source] if flip else old[:, source]
        new[:, 3] += old[:, source] * (geometry.shape[source] - 1) if flip else 0.0
    return replace(geometry, shape=grid.oriented_shape, affine=tuple(tuple(row) for row in new.tolist()))


def to_oriented_axes(array: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Return a view of an array of any size, ``(C, *space)`` or ``(*space)``, with axes as in the prepared grid."""
    lead = array.ndim - len(grid.order)
    order = (*range(lead), *(axis + lead for axis in grid.order))
    return np.flip(array.transpose(order), _flipped(grid, lead))


def to_source_axes(array: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """Undo only the reorientation of ``(C, *oriented_shape)`` or ``(*oriented_shape)``. The result is contiguous."""
    lead = _leading_axes(array, grid.oriented_shape)
    back = (*range(lead), *(grid.order.index(axis) + lead for axis in range(len(grid.order))))
    return np.ascontiguousarray(np.flip(array, _flipped(grid, lead)).transpose(back))


def axis_codes(geometry: Geometry) -> str:
    """Return the direction of each array axis, such as ``RAS``: right, anterior, superior."""
    codes = aff2axcodes(geometry.matrix)
    return "".join(str(code) for code in codes[: len(geometry.shape)])


def grid_difference(first: Geometry, second: Geometry) -> str | None:
    """Describe how two grids differ by more than ``GRID_TOLERANCE`` of the smallest voxel edge, or return None."""
    if first.shape != second.shape:
        return _shape_difference(first.shape, second.shape)
    A, B = _millimeter_matrix(first), _millimeter_matrix(second)
    distance, tolerance = corner_distance(first, second), GRID_TOLERANCE * min(first.spacing)
    if distance <= tolerance:
        return None
    if axis_codes(first) != axis_codes(second):
        return f"orientation {axis_codes(first)} and {axis_codes(second)}"
    differences = ", ".join(_matrix_differences(A, B, first.shape, tolerance))
    return differences or f"corners {_number(distance)} mm apart"


def corner_distance(first: Geometry, second: Geometry) -> float:
    """Return the largest distance between the outer corners of two grids in mm, or infinity if the shapes differ."""
    if first.shape != second.shape:
        return math.inf
    edges = itertools.product(*[(-0.5, n - 0.5) for n in first.shape])
    corners = np.array([(*corner, 1.0) for corner in edges])
    difference = _millimeter_matrix(second) - _millimeter_matrix(first)
    return float(np.linalg.norm(corners @ difference.T, axis=1).max())


def _shape_difference(first: tuple[int, ...], second: tuple[int, ...]) -> str:
    differences = [f"{len(first)} and {len(second)} axes"]
    if len(first) == len(second):
        added = ((axis, m - n) for axis, (n, m) in enumerate(zip(first, second, strict=True), start=1) if n != m)
        voxels = ((axis, counted(abs(n), "voxel"), "more" if n > 0 else "fewer") for axis, n in added)
        differences = [f"{count} {change} along axis {axis}" for axis, count, change in voxels]
    return f"shape {_shape_text(first)} and {_shape_text(second)} ({', '.join(differences)})"


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _millimeter_matrix(geometry: Geometry) -> NDArray[np.float64]:
    """Return the affine in millimeters ``(3, axes + 1)``, with a column per axis of the scan and the origin."""
    columns = [*range(len(geometry.shape)), 3]
    return np.asarray(geometry.matrix[:3, columns] * MILLIMETERS[geometry.units])


def _matrix_differences(
    A: NDArray[np.float64], B: NDArray[np.float64], shape: tuple[int, ...], tolerance: float
) -> Iterator[str]:
    rotation = 0.0
    for axis, n in enumerate(shape):
        a, b = A[:, axis], B[:, axis]
        old, new = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        if abs(new - old) * n > tolerance:
            yield f"spacing {_number(old, new)} and {_number(new, old)} mm along axis {axis + 1}"
        angle = math.atan2(float(np.linalg.norm(np.cross(a, b))), float(a @ b))
        rotation = max(rotation, angle if angle * old * n > tolerance else 0.0)
    if rotation:
        yield f"rotated by {_number(math.degrees(rotation), digits=1)} degrees"
    origin = float(np.linalg.norm(B[:, -1] - A[:, -1]))
    if origin > tolerance:
        yield f"origin {_number(origin)} mm apart"


def _number(value: float, other: float = 0.0, digits: int = 2) -> str:
    """Format a value with enough digits to distinguish it from ``other`` and from 0."""
    while digits < 9 and f"{value:.{digits}f}" in (f"{other:.{digits}f}", f"{0:.{digits}f}"):
        digits += 1
    return f"{value:.{digits}f}"


def _resampled_shape(
    shape: tuple[int, ...], old: tuple[float, ...], spacing: Sequence[float | None]
) -> tuple[int, ...]:
    if len(spacing) != len(shape):
        finding = f"{len(spacing)} numbers for a scan with {len(shape)} axes"
        raise UserError(Code.SETTING_INVALID, "spacing", finding, "use one number per axis (0 keeps the spacing)")
    new = [requested or current for requested, current in zip(spacing, old, strict=True)]
    if not all(0 < value < math.inf for value in new):
        finding = f"{tuple(spacing)} is not a valid voxel spacing"
        raise UserError(Code.SETTING_INVALID, "spacing", finding, "use millimeters above 0")
    voxels = [n * s / value for n, s, value in zip(shape, old, new, strict=True)]
    prepared = tuple(max(1, round(min(count, 2.0 * MAX_VOXELS))) for count in voxels)
    if math.prod(prepared) > max(MAX_VOXELS, math.prod(shape)):
        finding = f"{tuple(spacing)} mm resamples {_shape_text(shape)} voxels to {_shape_text(prepared)}"
        remedy = "use a coarser spacing, or correct the voxel size of the scan"
        raise UserError(Code.SCAN_TOO_LARGE, "spacing", finding, remedy)
    return prepared


def _leading_axes(array: NDArray[Any], space: tuple[int, ...]) -> int:
    """Return the number of axes before the spatial axes: 1 with a channel axis, otherwise 0."""
    lead = array.ndim - len(space)
    if lead not in (0, 1) or array.shape[lead:] != space:
        raise ValueError(f"an array of shape {array.shape} does not fit a grid of {space}")
    return lead


def _flipped(grid: Grid, lead: int) -> tuple[int, ...]:
    return tuple(axis + lead for axis, flip in enumerate(grid.flips) if flip)


def _nearest(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Resample the last axes. A new voxel takes the value of the old voxel that contains the new voxel center."""
    for axis, m in enumerate(shape, start=array.ndim - len(shape)):
        n = array.shape[axis]
        if n != m:
            array = array.take((2 * np.arange(m) + 1) * n // (2 * m), axis=axis)
    return array


def _linear(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    import torch
    from torch.nn.functional import interpolate

    lead = array.ndim - len(shape)
    images = torch.from_numpy(np.array(array, np.float32, order="C")).reshape(1, -1, *array.shape[lead:])
    mode = "trilinear" if len(shape) == 3 else "bilinear"
    resampled = interpolate(images, size=shape, mode=mode, align_corners=False)
    return np.asarray(resampled.reshape(*array.shape[:lead], *shape).numpy())
