"""Coverage: an order in which the first scans represent the later ones (facility location)."""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np

from graftseg.inference.ranking.features import Floats, distances_to


@dataclass(frozen=True)
class Place:
    """The place of a scan in an order."""

    index: int
    score: float  # from 0 to 1, highest for the first scan
    represented: int = 0  # number of later scans that are nearer to it than to labeled and earlier scans


def cover(points: Floats, labeled: Floats, weights: Floats) -> list[Place]:
    """Order points ``(N, D)`` so that each point removes as much as possible of the remaining cost (facility location).

    The cost is the sum over all points of the weight times the distance to the nearest labeled or earlier point.
    Without labeled points, this distance is at first twice the largest distance to the mean of all points. Ties are
    sorted by index.

    The gain of a point is the cost that it removes, and its score is the share of the initial cost. Gains never
    increase while points are added. An outdated gain is therefore an upper bound, and only gains at the top of the heap
    are computed again, without a matrix of distances.
    """

    def gain_of(index: int) -> float:
        return float(weights @ np.maximum(nearest - distances_to(points[index], points), 0.0))

    nearest = _initial_distances(points, labeled)
    cost = float(weights @ nearest)
    # heap entries are (-gain, index, number of points that were chosen when the gain was computed)
    heap = [(-gain_of(index), index, 0) for index in range(len(points))]
    heapify(heap)
    places: list[Place] = []
    while heap:
        negative, index, chosen = heap[0]
        if chosen < len(places):
            heapreplace(heap, (-gain_of(index), index, len(places)))
            continue
        distances = distances_to(points[index], points)
        is_nearer = distances < nearest
        is_nearer[[index, *(place.index for place in places)]] = False
        nearest = np.minimum(nearest, distances)
        share = -negative / cost if cost > 0 else 0.0
        # rounding must not make a share larger than the share before it
        share = min([share, *(place.score for place in places[-1:])])
        places.append(Place(index, share, int(is_nearer.sum())))
        heappop(heap)
    return places


def _initial_distances(points: Floats, labeled: Floats) -> Floats:
    """Return the distance of every point to the nearest labeled point."""
    if not len(labeled):
        center = points.mean(axis=0)
        return np.full(len(points), 2 * distances_to(center, points).max(initial=0.0))
    nearest = np.full(len(points), np.inf)
    for point in labeled:
        nearest = np.minimum(nearest, distances_to(point, points))
    return nearest
