"""Fill polygons on a pixel grid by the even-odd rule."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CROSSINGS = 2**21
"""About the number of crossings of edges and rows that are computed at once."""
DECIMALS = 4
"""Polygons are equal if their points are equal when rounded to this many decimals of a pixel."""


def edges_of(points: NDArray[np.float64]) -> bytes:
    """Return the edges of a closed polygon. The start, the direction and repeated points do not change the result."""
    rounded = points.round(DECIMALS) + 0.0  # without -0.0
    ends = np.stack([rounded, np.roll(rounded, -1, axis=0)], axis=1)
    ends = ends[(ends[:, 0] != ends[:, 1]).any(axis=1)]
    x, y = (ends[:, 1] - ends[:, 0]).T
    is_backward = (x < 0) | ((x == 0) & (y < 0))
    ends[is_backward] = ends[is_backward][:, ::-1]
    edges = ends.reshape(-1, 4)
    ordered: NDArray[np.float64] = edges[np.lexsort(edges.T)]
    return ordered.tobytes()


def fill_polygons(polygons: Sequence[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels ``(columns, rows)`` whose centers lie inside an odd number of closed polygons.

    The points of a polygon are (column, row) coordinates. The center of the first pixel is (0, 0). A center exactly on
    an edge is inside if the inside is toward higher columns or rows. Polygons with a common edge thus share no pixel.
    """
    columns, rows = shape
    x0, y0 = np.concatenate(polygons).T
    x1, y1 = np.concatenate([np.roll(points, -1, axis=0) for points in polygons]).T
    # an edge crosses the rows from ceil(lower end) up to, but not including, ceil(upper end)
    first = np.clip(np.ceil(np.minimum(y0, y1)), 0, rows).astype(np.int64)
    count = np.clip(np.ceil(np.maximum(y0, y1)), 0, rows).astype(np.int64) - first
    crossings = np.zeros((columns + 1, rows), np.int32)
    # edges in groups, to limit the memory for their crossings
    groups = np.searchsorted(np.cumsum(count), np.arange(CROSSINGS, count.sum(), CROSSINGS))
    for edges in np.split(np.arange(len(count)), groups):
        edge = np.repeat(edges, count[edges])
        row = np.arange(len(edge)) - np.repeat(np.cumsum(count[edges]) - count[edges], count[edges]) + first[edge]
        crossing = x0[edge] + (row - y0[edge]) * (x1 - x0)[edge] / (y1 - y0)[edge]
        column = np.clip(np.ceil(crossing), 0, columns).astype(np.int64)
        np.add.at(crossings, (column, row), 1)
    # a pixel is inside if the number of crossings at or before it in its row is odd
    inside: NDArray[np.bool_] = crossings[:columns].cumsum(axis=0) % 2 == 1
    return inside
