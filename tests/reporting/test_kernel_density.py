"""Kernel density estimates agree with scipy, and overlaps with known Gaussians."""

import math

import numpy as np
import pytest
from scipy import stats

from graftseg.reporting.figures.density import MIN_BANDWIDTH, bandwidth, density, overlap

NORMAL = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)


def test_density_agrees_with_scipy() -> None:
    values, at = np.random.default_rng(0).gamma(2.0, size=300), np.linspace(-2, 12, 101)
    assert density(values, at) == pytest.approx(stats.gaussian_kde(values)(at), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.0, 3.0])
def test_overlap_of_two_gaussians(distance: float) -> None:
    """Two normal densities at a distance d overlap by 2 Φ(-d / 2σ); the kernel adds its variance to σ²."""
    sigma = math.sqrt(1 + bandwidth(NORMAL) ** 2)
    expected = 2 * stats.norm.cdf(-distance / (2 * sigma))
    assert overlap(NORMAL, NORMAL + distance) == pytest.approx(expected, abs=2e-3)


def test_overlap_is_symmetric_and_between_0_and_1() -> None:
    assert overlap(NORMAL, NORMAL * 2 + 1) == pytest.approx(overlap(NORMAL * 2 + 1, NORMAL), abs=1e-12)
    assert overlap(NORMAL, NORMAL) <= 1.0
    assert overlap(NORMAL, NORMAL + 100) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.07])
def test_a_narrow_density_overlaps_a_wide_one(shift: float) -> None:
    """The wide density is constant where the narrow one is above it, at distances of less than x."""
    wide = stats.norm(0, 100 * math.sqrt(1 + bandwidth(NORMAL) ** 2)).pdf(shift)
    peak = 1 / (MIN_BANDWIDTH * math.sqrt(2 * math.pi))
    x = MIN_BANDWIDTH * math.sqrt(2 * math.log(peak / wide))
    expected = 2 * x * wide + 2 * stats.norm.cdf(-x / MIN_BANDWIDTH)
    assert overlap(np.full(20, shift), 100 * NORMAL) == pytest.approx(expected, rel=0.02)


def test_equal_values_have_the_smallest_bandwidth() -> None:
    assert bandwidth(np.zeros(5)) == bandwidth(np.zeros(1)) == MIN_BANDWIDTH
