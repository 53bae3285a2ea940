"""Crops around a label map, by the rules of the published preparations."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)
Bounds = tuple[tuple[int, int], ...]
"""Start and stop voxel along each axis; the stop voxel is not included."""


def label_box(label: NDArray[Any]) -> Bounds | None:
    """Return the bounding box of the foreground, or None without foreground."""
    bounds = []
    for axis in range(label.ndim):
        others = tuple(other for other in range(label.ndim) if other != axis)
        inside = np.flatnonzero(label.any(axis=others))
        if not len(inside):
            return None
        bounds.append((int(inside[0]), int(inside[-1]) + 1))
    return tuple(bounds)


def widened(box: Bounds, shape: Sequence[int], margin: int, least: int) -> Bounds:
    """Add a margin to a box, then grow it evenly to at least ``least`` voxels per axis, within the image."""
    return tuple(
        _widened(start - margin, stop + margin, size, least) for (start, stop), size in zip(box, shape, strict=True)
    )


def _widened(start: int, stop: int, size: int, least: int) -> tuple[int, int]:
    start, stop = max(start, 0), min(stop, size)
    missing = least - (stop - start)
    if missing <= 0:
        return start, stop
    start = min(max(start - missing // 2, 0), max(size - least, 0))
    return start, min(start + least, size)


def cropped(array: NDArray[Number], box: Bounds, least: int) -> NDArray[Number]:
    """Return the voxels in the box, padded with zeros to at least ``least`` voxels per axis."""
    inside = array[tuple(slice(start, stop) for start, stop in box)]
    missing = [max(least - size, 0) for size in inside.shape]
    return np.pad(inside, [(lack // 2, lack - lack // 2) for lack in missing])
