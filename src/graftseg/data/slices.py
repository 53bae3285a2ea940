"""Slices of a scan for display, in radiological orientation and in a window of intensities from black to white."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, plan_grid, to_oriented_axes

RADIOLOGICAL = "LPS"  # directions of the axes
PERCENTILES = (1.0, 25.0, 75.0, 99.0)
MAX_REACH = 3.0  # largest distance of the window from the quartiles, in interquartile ranges
MAX_VALUES = 1_000_000  # number of voxels above which percentiles are computed from evenly spaced voxels
Window = tuple[float, float]
MAX_THUMBNAIL_PIXELS = 192  # per side


def gray_window(scan: NDArray[Any]) -> Window:
    """Return the darkest and the brightest intensity to show. The second value is larger than the first.

    The window reaches from the 1st to the 99th percentile, without outliers. Voxels with the smallest value are padding
    or background and are ignored. If most other voxels are equal, the window is the full range.
    """
    flat = np.asarray(scan).reshape(-1, order="A")  # in the order in memory, because a copy of a CT takes seconds
    step = -(-flat.size // MAX_VALUES) | 1  # odd: a step with a factor of the row length would skip columns
    values = flat[::step].astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    lowest, highest = float(values.min()), float(values.max())
    inner = values[values > lowest]
    if inner.size:
        first, lower, upper, last = (float(value) for value in np.percentile(inner, PERCENTILES))
        reach = MAX_REACH * (upper - lower)
        low, high = max(first, lower - reach), min(last, upper + reach)
        if high > low:
            return low, high
    return lowest, highest if highest > lowest else lowest + 1.0


def to_gray(image: NDArray[Any], window: Window | None = None) -> NDArray[np.uint8]:
    """Return gray values from 0 to 255, by default with the window of the image itself. NaN is black."""
    low, high = gray_window(image) if window is None else window
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=low, posinf=high, neginf=low)
    return np.asarray(np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * 255), dtype=np.uint8)


@dataclass(frozen=True)
class Cut:
    """Orientation and axis of the slices of an array ``(*space)``. A 2-D scan is one slice, and its axis is None.

    Transverse slices show the right of the patient on the left and anterior on top. Other slices show the head on top.
    """

    grid: Grid
    axis: int | None

    @classmethod
    def across_largest_spacing(cls, geometry: Geometry) -> "Cut":
        """Cut across the axis with the largest spacing. Of equal axes, use the last in LPS order."""
        grid = plan_grid(geometry, orientation=RADIOLOGICAL, spacing=None)
        if len(geometry.shape) == 2:
            return cls(grid, None)
        spacing = grid.prepared_spacing
        return cls(grid, max(range(3), key=lambda axis: (round(spacing[axis], 2), axis)))

    @classmethod
    def across(cls, geometry: Geometry, axis: int) -> "Cut":
        """Cut across ``axis`` of the array as stored."""
        grid = plan_grid(geometry, orientation=RADIOLOGICAL, spacing=None)
        return cls(grid, grid.order.index(axis))

    @classmethod
    def as_stored(cls, geometry: Geometry) -> "Cut":
        """Cut across the last axis without reorientation, for volumes of unknown orientation."""
        grid = plan_grid(geometry, orientation=None, spacing=None)
        return cls(grid, None if len(geometry.shape) == 2 else 2)

    @property
    def aspect(self) -> float:
        """Pixel height divided by pixel width."""
        width, height = (step for axis, step in enumerate(self.grid.prepared_spacing) if axis != self.axis)
        return height / width

    def index_of(self, voxel: tuple[int, ...]) -> int:
        """Return the index of the slice that contains a voxel of the array."""
        if self.axis is None:
            return 0
        source = self.grid.order[self.axis]
        return self.grid.source_shape[source] - 1 - voxel[source] if self.grid.flips[self.axis] else voxel[source]

    def oriented(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a view of the array ``(*space)`` in display orientation."""
        return to_oriented_axes(array, self.grid)

    def fullest(self, *label_maps: NDArray[Any]) -> int:
        """Return the slice with the most foreground of the first label map that has any, else the middle slice."""
        if self.axis is None:
            return 0
        counts = next((counts for labels in label_maps if (counts := self._foreground(labels)).any()), None)
        return self.grid.oriented_shape[self.axis] // 2 if counts is None else int(counts.argmax())

    def through(self, shown: int, count: int, *label_maps: NDArray[Any]) -> list[int]:
        """Return up to ``count`` evenly spaced indices of slices through the foreground, including ``shown``."""
        if self.axis is None or not (filled := np.flatnonzero(sum(map(self._foreground, label_maps)))).size:
            return [shown]
        indices = sorted({round(float(index)) for index in np.linspace(filled[0], filled[-1], count)})
        nearest = min(range(len(indices)), key=lambda number: abs(indices[number] - shown))
        indices[nearest] = shown
        return indices

    def _foreground(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of foreground voxels of each slice of a volume."""
        others = tuple(axis for axis in range(3) if axis != self.axis)
        return np.asarray(np.count_nonzero(self.oriented(labels), axis=others))

    def count(self, array: NDArray[Any]) -> int:
        """Return the number of slices."""
        return 1 if self.axis is None else array.shape[self.grid.order[self.axis]]

    def plane(self, array: NDArray[Any], index: int) -> NDArray[Any]:
        """Return a slice as an image ``(H, W)``."""
        if self.axis is None:
            return array.T
        plane: NDArray[Any] = self.oriented(array).take(index, self.axis).T
        return plane[::-1] if self.axis < 2 else plane


@dataclass(frozen=True)
class Thumbnail:
    """A small grayscale slice of a scan. ``labels`` is None unless scan and label map have the same shape."""

    image: NDArray[np.uint8]
    labels: NDArray[Any] | None
    aspect: float


def thumbnail_of(
    image: NDArray[Any], labels: NDArray[Any] | None, geometry: Geometry, voxel: tuple[int, ...] | None = None
) -> Thumbnail:
    """Return a small copy of the slice that contains ``voxel``, or by default the most foreground."""
    cut = Cut.across_largest_spacing(geometry)
    maps = [labels] if labels is not None and labels.shape == image.shape else []
    index = cut.index_of(voxel) if maps and voxel is not None else cut.fullest(*maps)
    plane = cut.plane(image, index)
    step = -(-max(plane.shape) // MAX_THUMBNAIL_PIXELS)
    gray = to_gray(plane[::step, ::step], gray_window(image))
    shown = np.ascontiguousarray(cut.plane(maps[0], index)[::step, ::step]) if maps else None
    return Thumbnail(gray, shown, cut.aspect)
