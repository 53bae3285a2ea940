"""Whether volumes are stacks of slices, and along which axis they are stacked."""

from collections.abc import Sequence
from statistics import median

from graftseg.data.checks.sets import THICK_SLICES

LEAST_SLICES = 16
"""Volumes of fewer voxels along an axis are too thin for 3-D patches."""

Shapes = Sequence[Sequence[int]]
Spacings = Sequence[Sequence[float]]


def coarseness(spacings: Spacings) -> float:
    """How many times as long as wide voxels are, in a usual scan."""
    return median(_length(spacing) for spacing in spacings)


def _length(spacing: Sequence[float]) -> float:
    """Of a voxel, in widths; without the rounding of an affine, which would decide about slices of 1 x 1 x 3 mm."""
    return round(max(spacing) / min(spacing), 3)


def thinness(shapes: Shapes) -> float:
    """Voxels along the shortest axis, in a usual scan."""
    return median(min(shape) for shape in shapes)


def is_sliced(shapes: Shapes, spacings: Spacings) -> bool:
    """Whether volumes are rather slices: their voxels are long, or there are too few of them along an axis."""
    return len(shapes[0]) == 3 and (coarseness(spacings) > THICK_SLICES or thinness(shapes) < LEAST_SLICES)


def stacked_axis(shape: Sequence[int], spacing: Sequence[float]) -> int:
    """The axis of the largest spacing where voxels are long, else that of the fewest; of equal ones the last."""
    long = _length(spacing) > THICK_SLICES
    sizes = list(spacing) if long else [-voxels for voxels in shape]
    return max(range(len(sizes)), key=lambda axis: (sizes[axis], axis))
