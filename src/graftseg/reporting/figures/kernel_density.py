"""Gaussian kernel density estimates of one variable, and their overlap."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
MARGIN = 8.0
"""Margin of the integration grid beyond the smallest and largest value, in bandwidths."""
GRID_POINTS = 2048
MIN_BANDWIDTH = 1e-3
"""Lower limit of the bandwidth, for values that are almost equal."""


def bandwidth(values: Floats) -> float:
    """Return the standard deviation of the kernel by Scott's rule, but at least ``MIN_BANDWIDTH``.

    The rule is ``n ** (-1 / 5)`` times the standard deviation of the n values.
    """
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return max(spread / float(np.power(len(values), 0.2)), MIN_BANDWIDTH)


def density(values: Floats, at: Floats) -> Floats:
    """Return the estimated density of values ``(n,)`` at the points ``at``."""
    width = bandwidth(values)
    scaled = (np.asarray(at)[:, None] - np.asarray(values)[None, :]) / width
    return np.asarray(np.exp(-0.5 * scaled**2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))


def overlap(first: Floats, second: Floats) -> float:
    """Return the overlap coefficient of two estimated densities, the integral of their minimum.

    It is 1 for equal densities and almost 0 for densities that are far apart.
    """
    grid = np.union1d(_grid(first), _grid(second))
    smaller = np.minimum(density(first, grid), density(second, grid))
    return float(min(((smaller[1:] + smaller[:-1]) / 2 * np.diff(grid)).sum(), 1.0))


def _grid(values: Floats) -> Floats:
    """Return points at which to integrate one density. They are closer together than its bandwidth."""
    margin = MARGIN * bandwidth(values)
    return np.linspace(values.min() - margin, values.max() + margin, GRID_POINTS)
