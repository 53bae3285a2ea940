"""Greedy facility location: an order of points in which each point represents as many later points as possible."""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Covering:
    """A greedy order of points. All fields are in this order."""

    order: tuple[int, ...]  # index of each point
    shares: tuple[float, ...]  # fraction of the initial cost that each point removes, which never increases
    represented: tuple[int, ...]  # number of later points that are nearer to it than to labeled and earlier points


def cover(points: Floats, labeled: Floats, weights: Floats) -> Covering:
    """Order points ``(N, D)`` so that each point removes as much as possible of the remaining cost.

    The cost is the sum over all points of the weight times the distance to the nearest labeled or earlier point.
    Without labeled points, this distance is at first twice the largest distance to the mean of all points. Ties are
    sorted by index.

    The gain of a point is the cost that it removes. Gains never increase while points are added. An outdated gain is
    therefore an upper bound, and only gains at the top of the heap are computed again, without a matrix of distances.
    """
    nearest = _initial_distances(points, labeled)
    cost = float(weights @ nearest)
    # heap entries are (-gain, index, number of points that were chosen when the gain was computed)
    heap = [(-_gain(points, index, nearest, weights), index, 0) for index in range(len(points))]
    heapify(heap)
    order: list[int] = []
    gains: list[float] = []
    represented: list[int] = []
    while heap:
        negative, index, chosen = heap[0]
        if chosen < len(order):
            heapreplace(heap, (-_gain(points, index, nearest, weights), index, len(order)))
            continue
        distances = _distances(points, points[index])
        is_nearer = distances < nearest
        is_nearer[[index, *order]] = False
        nearest = np.minimum(nearest, distances)
        # rounding must not make a gain larger than the gain before it
        gains.append(min([-negative, *gains[-1:]]))
        order.append(index)
        represented.append(int(is_nearer.sum()))
        heappop(heap)
    shares = tuple(gain / cost if cost > 0 else 0.0 for gain in gains)
    return Covering(tuple(order), shares, tuple(represented))


def _initial_distances(points: Floats, labeled: Floats) -> Floats:
    """Return the distance of every point to the nearest labeled point."""
    if not len(labeled):
        center = points.mean(axis=0)
        return np.full(len(points), 2 * _distances(points, center).max(initial=0.0))
    nearest = np.full(len(points), np.inf)
    for point in labeled:
        nearest = np.minimum(nearest, _distances(points, point))
    return nearest


def _gain(points: Floats, index: int, nearest: Floats, weights: Floats) -> float:
    """Return the decrease of the cost if a point is added."""
    return float(weights @ np.maximum(nearest - _distances(points, points[index]), 0.0))


def _distances(points: Floats, point: Floats) -> Floats:
    return np.asarray(np.linalg.norm(points - point, axis=1))
