"""Decide whether volumes are stacks of slices, and along which axis."""

from collections.abc import Sequence
from statistics import median

from graftseg.data.checks.sets import THICK_SLICES

LEAST_SLICES = 16
"""Volumes with fewer voxels along an axis are too thin for 3-D patches."""

Shapes = Sequence[Sequence[int]]
Spacings = Sequence[Sequence[float]]


def coarseness(spacings: Spacings) -> float:
    """Return the median ratio of the longest to the shortest side of a voxel."""
    return median(_length(spacing) for spacing in spacings)


def _length(spacing: Sequence[float]) -> float:
    """Return the ratio of the sides of a voxel, rounded so that float errors of an affine do not matter."""
    return round(max(spacing) / min(spacing), 3)


def thinness(shapes: Shapes) -> float:
    """Return the median number of voxels along the shortest axis."""
    return median(min(shape) for shape in shapes)


def is_sliced(shapes: Shapes, spacings: Spacings) -> bool:
    """Return whether volumes are treated as slices: voxels are long, or there are few along an axis."""
    return len(shapes[0]) == 3 and (coarseness(spacings) > THICK_SLICES or thinness(shapes) < LEAST_SLICES)


def stacked_axis(shape: Sequence[int], spacing: Sequence[float]) -> int:
    """Return the axis with the largest spacing if voxels are long, else with the fewest voxels; the last of equals."""
    long = _length(spacing) > THICK_SLICES
    sizes = list(spacing) if long else [-voxels for voxels in shape]
    return max(range(len(sizes)), key=lambda axis: (sizes[axis], axis))
