"""``scipy.ndimage.zoom`` of order 0 without its rounding error in the last row or column.

SciPy fills a voxel with 0 if its coordinate ``i * (n - 1) / (m - 1)`` is rounded to a value beyond the last voxel. At
some sizes this affects the whole last row or column.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Plane = tuple[int, int]


def zoomed(plane: npt.NDArray[Any], size: Plane) -> npt.NDArray[Any]:
    """Return the plane that SciPy zooms to this size, with the lost last row and column restored."""
    factors = [m / n for m, n in zip(size, plane.shape, strict=True)]
    result: npt.NDArray[Any] = ndimage.zoom(plane, factors, order=0)
    assert result.shape == size
    lost = [is_lost(n, m) for n, m in zip(plane.shape, size, strict=True)]
    rows, columns = (slice(-1, None) if gone else slice(0, 0) for gone in lost)
    assert not result[rows].any() and not result[:, columns].any()
    whole = np.pad(result[: -1 if lost[0] else None, : -1 if lost[1] else None], [(0, int(gone)) for gone in lost])
    for axis, gone in enumerate(lost):
        if gone:
            other = size[1 - axis]
            line = zoomed(np.take(plane, [-1], axis), (1, other) if axis == 0 else (other, 1))
            whole[(slice(None),) * axis + (slice(-1, None),)] = line
    return whole


def is_lost(n: int, m: int) -> bool:
    """Return whether the last of ``m`` coordinates is rounded to more than ``n - 1``."""
    return m > 1 and (m - 1) * ((n - 1) / (m - 1)) > n - 1
