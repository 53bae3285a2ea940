"""Features of scans: how unusual a scan is, distances between scans, and an order that spreads out similar scans."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_SPREADS = (0.02, 0.25, 1.0, 1.0)
"""Lower limits for the spread of each measure (uncertainty, unlike, size, specks), so that noise does not stand out."""
SIMILAR = 0.25  # fraction of the median distance below which two scans are similar
CLIP = 3.0  # features are clipped at this many spreads from the median before their covariance is computed


def scale_measures(measures: Floats) -> Floats:
    """Scale measures ``(N, M)`` to ``z / (1 + z)``, where z is the distance above the median in units of the spread.

    Each column has its own median and spread. Values below the median become 0.
    """
    centered = measures - np.median(measures, axis=0)
    z = np.maximum(centered, 0) / np.maximum(_spread(centered), MIN_SPREADS)
    return np.asarray(z / (1 + z))


def _spread(centered: Floats) -> Floats:
    """Return the median absolute value of each column, scaled to the standard deviation of a normal distribution."""
    return np.asarray(1.4826 * np.median(np.abs(centered), axis=0))


def whitened(features: Floats) -> Floats:
    """Transform features ``(N, D)`` so that their Euclidean distances are Mahalanobis distances.

    Each feature is first divided by its spread. The covariance is shrunk as by Ledoit and Wolf, because there are
    rarely more scans than features. It is computed from clipped features, so that outliers do not widen it.
    """
    centered = features - np.median(features, axis=0)
    spread = _spread(centered)
    spread = np.where(spread > 0, spread, centered.std(axis=0))
    varied = centered[:, spread > 0] / spread[spread > 0]
    if not varied.size:
        return np.zeros((len(features), 1))
    clipped = varied.clip(-CLIP, CLIP)
    values, vectors = np.linalg.eigh(shrunken_covariance(clipped - clipped.mean(axis=0)))
    return np.asarray(varied @ (vectors / np.sqrt(np.maximum(values, 1e-9))) / np.sqrt(varied.shape[1]))


def shrunken_covariance(centered: Floats) -> Floats:
    """Return the Ledoit-Wolf covariance of centered values ``(N, D)``."""
    count, width = centered.shape
    covariance = centered.T @ centered / count
    sphere = np.trace(covariance) / width * np.eye(width)
    distance = float(((covariance - sphere) ** 2).sum())
    noise = float(((centered**2).sum(axis=1) ** 2).sum() - count * (covariance**2).sum()) / count**2
    weight = min(1.0, noise / distance) if distance > 0 else 1.0
    return np.asarray((1 - weight) * covariance + weight * sphere)


def distance_to_labeled(unlabeled: Floats, labeled: Floats) -> Floats:
    """Return the distance to the nearest labeled scan. The unit is the median of this distance among labeled scans.

    With a single labeled scan, the unit is the median among the unlabeled scans.
    """
    nearest = np.linalg.norm(unlabeled[:, None] - labeled[None], axis=2).min(axis=1)
    if len(labeled) > 1:
        among_labeled = np.linalg.norm(labeled[:, None] - labeled[None], axis=2)
        np.fill_diagonal(among_labeled, np.inf)
        unit = float(np.median(among_labeled.min(axis=1)))
    else:
        unit = float(np.median(nearest))
    return np.asarray(nearest / unit if unit > 0 else nearest)


def spread_out(scores: Floats, points: Floats) -> tuple[list[int], Floats]:
    """Order scans greedily by reduced score. Return the order and the reduced scores.

    Each score is multiplied by min(1, d / m). d is the distance to the nearest earlier scan. m is the median distance.
    The reduced scores never increase along the order, because d only decreases while scans are added.
    """
    count = len(scores)
    median = _median_distance(points)
    nearest = np.full(count, np.inf)
    is_unranked, order, reduced = np.ones(count, dtype=bool), [], np.zeros(count)
    for _ in range(count):
        factors = np.minimum(nearest / median, 1) if median > 0 else np.ones(count)
        candidates = np.where(is_unranked, scores * factors, -1.0)
        best = int(candidates.argmax())
        order.append(best)
        is_unranked[best], reduced[best] = False, candidates[best]
        nearest = np.minimum(nearest, distances_to(points[best], points))
    return order, reduced


def similar_above(order: Sequence[int], points: Floats) -> list[int | None]:
    """Return for each scan the nearest scan before it in the order, or None if that scan is not similar."""
    limit = SIMILAR * _median_distance(points)
    nearest, above = np.full(len(points), np.inf), np.full(len(points), -1)
    is_later = np.ones(len(points), dtype=bool)
    for index in order:
        is_later[index] = False
        distances = distances_to(points[index], points)
        is_closer = is_later & (distances < nearest)
        nearest[is_closer], above[is_closer] = distances[is_closer], index
    return [int(above[i]) if nearest[i] < limit else None for i in range(len(points))]


def distances_to(point: Floats, points: Floats) -> Floats:
    """Return the Euclidean distance of each of the points ``(N, D)`` to a point ``(D,)``."""
    return np.asarray(np.linalg.norm(points - point, axis=1))


def _median_distance(points: Floats) -> float:
    """Return the median distance between pairs of scans. Only the first 400 scans are used, to limit the memory."""
    first = points[:400]
    upper = np.triu_indices(len(first), 1)
    distances = np.linalg.norm(first[:, None] - first[None], axis=2)[upper]
    return float(np.median(distances)) if len(distances) else 0.0
