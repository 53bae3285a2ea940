"""One slice of a scan as a person wants to see it: turned like in radiology, cut across the thickest spacing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, plan_grid

RADIOLOGICAL = "LPS"


@dataclass(frozen=True)
class Cut:
    """How slices are taken out of arrays ``(*space)``; a 2-D scan is its own only slice, and its axis is None.

    A transverse slice shows the patient's right on the left and the front on top; in the others the head is on top.
    """

    grid: Grid
    axis: int | None

    @classmethod
    def through(cls, geometry: Geometry) -> "Cut":
        """Across the widest spacing of a volume; of equal ones across the last."""
        grid = plan_grid(geometry, orientation=RADIOLOGICAL, spacing=None)
        if len(geometry.shape) == 2:
            return cls(grid, None)
        spacing = grid.prepared_spacing
        return cls(grid, max(range(3), key=lambda axis: (round(spacing[axis], 2), axis)))

    @classmethod
    def across(cls, geometry: Geometry, axis: int) -> "Cut":
        """Across one axis of the array, whatever the spacing is."""
        grid = plan_grid(geometry, orientation=RADIOLOGICAL, spacing=None)
        return cls(grid, grid.order.index(axis))

    @classmethod
    def as_stored(cls, geometry: Geometry) -> "Cut":
        """Across the last axis of a volume, the others as they lie in the array: for one of no known orientation."""
        grid = plan_grid(geometry, orientation=None, spacing=None)
        return cls(grid, None if len(geometry.shape) == 2 else 2)

    @property
    def aspect(self) -> float:
        """How high a pixel of the slice is by its width."""
        width, height = (step for axis, step in enumerate(self.grid.prepared_spacing) if axis != self.axis)
        return height / width

    def index_of(self, voxel: tuple[int, ...]) -> int:
        """The slice that holds a voxel of the array."""
        if self.axis is None:
            return 0
        source = self.grid.order[self.axis]
        return self.grid.source_shape[source] - 1 - voxel[source] if self.grid.flips[self.axis] else voxel[source]

    def turned(self, array: NDArray[Any]) -> NDArray[Any]:
        """A view of the array ``(*space)`` with its axes as they are shown."""
        flipped = tuple(axis for axis, flip in enumerate(self.grid.flips) if flip)
        return np.flip(array.transpose(self.grid.order), flipped)

    def fullest(self, *label_maps: NDArray[Any]) -> int:
        """The slice with most foreground of the first label map that has any, or the middle one."""
        if self.axis is None:
            return 0
        source = self.grid.order[self.axis]
        others = tuple(axis for axis in range(3) if axis != source)
        for labels in label_maps:
            counts = np.count_nonzero(labels, axis=others)
            if counts.any():
                counts = counts[::-1] if self.grid.flips[self.axis] else counts
                return int(counts.argmax())
        return int(self.grid.source_shape[source] // 2)

    def plane(self, array: NDArray[Any], index: int) -> NDArray[Any]:
        """A slice as a picture ``(H, W)``."""
        if self.axis is None:
            return array.T
        plane: NDArray[Any] = self.turned(array).take(index, self.axis).T
        return plane[::-1] if self.axis < 2 else plane


@dataclass(frozen=True)
class Thumbnail:
    """A small picture of a case: a slice in grey, with its label map where there is one on the same grid."""

    image: NDArray[np.uint8]
    labels: NDArray[Any] | None
    aspect: float


SIDE = 192


def thumbnail_of(
    image: NDArray[Any], labels: NDArray[Any] | None, geometry: Geometry, at: tuple[int, ...] | None = None
) -> Thumbnail:
    """The slice of ``(*space)`` through a voxel, or with most foreground, at most ``SIDE`` pixels high and wide."""
    cut = Cut.through(geometry)
    fitting = labels if labels is not None and labels.shape == image.shape else None
    index = cut.index_of(at) if at is not None else cut.fullest(*([] if fitting is None else [fitting]))
    plane = cut.plane(image, index).astype(np.float64)
    step = -(-max(plane.shape) // SIDE)
    low, high = np.percentile(plane, (0.5, 99.5))
    grey = np.clip((plane[::step, ::step] - low) / max(high - low, np.finfo(np.float64).tiny), 0.0, 1.0)
    shown = None if fitting is None else np.ascontiguousarray(cut.plane(fitting, index)[::step, ::step])
    return Thumbnail(np.rint(grey * 255).astype(np.uint8), shown, cut.aspect)
