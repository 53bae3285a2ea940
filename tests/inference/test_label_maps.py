"""Labels, probabilities and uncertainty of one scan, compared with dense definitions and exact numbers."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, plan_grid
from graftseg.inference.label_maps import (
    LEVELS,
    MIN_FOREGROUND,
    ExtraMaps,
    PreparedMaps,
    entropy,
    to_levels,
)
from graftseg.inference.predictor import Predictor
from graftseg.inference.sliding_window import Fit
from graftseg.recipes.settings import InferenceSettings

CPU = torch.device("cpu")
ALL = ExtraMaps(probabilities=True, uncertainty=True)
PLAIN = InferenceSettings()


def softmax(images: Tensor) -> Tensor:
    """Return the softmax over channels: a network that sees one voxel at a time."""
    return images.softmax(dim=1)


def image_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_levels_are_rounded_to_the_nearest() -> None:
    assert to_levels(torch.tensor([0.0, 0.5 / 255, 0.6 / 255, 0.5, 1.0, 1.0001, -0.1])).tolist() == [
        0,
        0,
        1,
        128,
        255,
        255,
        0,
    ]


def test_entropy_is_a_fraction_of_its_maximum() -> None:
    columns = [[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0], [0.7, 0.2, 0.1]]
    shares = entropy(torch.tensor(columns).T)
    assert shares.tolist() == pytest.approx([stats.entropy(column, base=3) for column in columns], abs=1e-6)
    assert shares[:2].tolist() == pytest.approx([0, 1])


def collect(slabs: list[tuple[int, Tensor]], shape: list[int], extras: ExtraMaps = ALL) -> PreparedMaps:
    return Predictor(softmax, (1, 1), PLAIN, len(slabs[0][1]), CPU).collect(iter(slabs), shape, extras)


def test_the_mean_is_over_the_voxels_that_may_be_foreground() -> None:
    foreground = torch.tensor([0.0, MIN_FOREGROUND / 2, 0.5, 1.0, 0.25])
    slab = torch.stack([1 - foreground, foreground])[..., None]
    maps = collect([(0, slab)], [5, 1])
    expected = [stats.entropy([1 - p, p], base=2) for p in (0.5, 1.0, 0.25)]
    assert maps.mean_uncertainty == pytest.approx(np.mean(expected), abs=1e-6)
    assert maps.uncertainty is not None and maps.probabilities is not None
    assert maps.uncertainty[:, 0].tolist() == [0, round(255 * stats.entropy([0.975, 0.025], base=2)), 255, 0, 207]
    assert maps.probabilities[1, :, 0].tolist() == [0, 6, 128, 255, 64]
    sure = collect([(0, slab[:, :1])], [1, 1])
    assert sure.mean_uncertainty is None, "nothing may be foreground"


def test_extra_maps_are_computed_only_on_request() -> None:
    slab = softmax(image_of(1, 3, 4, 5))[0]
    maps = collect([(0, slab)], [4, 5], ExtraMaps())
    assert (maps.probabilities, maps.uncertainty, maps.mean_uncertainty) == (None, None, None)
    assert torch.equal(maps.labels, slab.argmax(0).to(torch.uint8))


@given(cuts=st.lists(st.integers(1, 9), max_size=4, unique=True))
@settings(deadline=None, max_examples=30)
def test_slabs_of_any_thickness_give_the_same_maps(cuts: list[int]) -> None:
    """The maps are bit-identical."""
    whole = softmax(image_of(1, 3, 10, 4, 3))[0]
    edges = [0, *sorted(cuts), 10]
    slabs = [(start, whole[:, start:end]) for start, end in pairwise(edges)]
    apart, together = collect(slabs, [10, 4, 3]), collect([(0, whole)], [10, 4, 3])
    for name in ("labels", "probabilities", "uncertainty"):
        one, other = getattr(apart, name), getattr(together, name)
        assert one is not None and other is not None and torch.equal(one, other)
    assert apart.mean_uncertainty == pytest.approx(together.mean_uncertainty, rel=1e-12)


@pytest.mark.parametrize("patch", [(4, 4, 4), (6, 5)])
@pytest.mark.parametrize("spacing", [None, (0.7, 1.0, 1.4)])
def test_extra_maps_have_the_axes_of_the_label_map(patch: tuple[int, ...], spacing: tuple[float, ...] | None) -> None:
    affine = ((0.0, 0.0, -2.0, 5.0), (1.5, 0.0, 0.0, -7.0), (0.0, -1.0, 0.0, 3.0), (0.0, 0.0, 0.0, 1.0))
    grid = plan_grid(Geometry((9, 7, 5), affine), orientation="RAS", spacing=spacing)
    image = image_of(3, *grid.prepared_shape)
    maps = Predictor(softmax, patch, PLAIN, 3, CPU).maps(image, grid, ALL)
    assert maps.probabilities is not None and maps.uncertainty is not None
    assert (maps.probabilities.shape, maps.uncertainty.shape) == ((3, 9, 7, 5), (9, 7, 5))
    shares = maps.probabilities / LEVELS
    best = np.sort(shares, axis=0)
    clear = best[-1] - best[-2] > 2 / LEVELS
    np.testing.assert_array_equal(shares.argmax(0)[clear], maps.labels[clear])
    assert clear.mean() > 0.9
    assert np.abs(shares.sum(0) - 1).max() <= 1.5 / LEVELS + 1e-9
    expected = -(shares * np.log(np.maximum(shares, 1e-12))).sum(0) / math.log(3)
    assert np.abs(maps.uncertainty / LEVELS - expected).max() < 0.03


def test_the_largest_component_changes_labels_only() -> None:
    image = torch.zeros(1, 1, 7)
    image[0, 0, [0, 2, 3]] = 1

    def segment(images: Tensor) -> Tensor:
        return torch.cat([1 - images, images], dim=1)

    chosen = InferenceSettings(largest_component=True)
    maps = Predictor(segment, (1, 7), chosen, 2, CPU).maps(image, Grid.identity((1, 7)), ALL)
    assert maps.labels[0].tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert maps.probabilities is not None
    assert maps.probabilities[1, 0].tolist() == [255, 0, 255, 255, 0, 0, 0]


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
def test_maps_of_stretched_slices(shape: tuple[int, ...]) -> None:
    image = image_of(3, *shape)
    predictor = Predictor(softmax, (8, 6), PLAIN, 3, CPU, "stretch")
    maps = predictor.maps(image, Grid.identity(shape), ALL)
    probabilities = softmax(image[None])[0]
    assert maps.probabilities is not None and maps.uncertainty is not None
    np.testing.assert_array_equal(maps.labels, probabilities.argmax(0).numpy())
    np.testing.assert_array_equal(maps.probabilities, to_levels(probabilities).numpy())
    np.testing.assert_array_equal(maps.uncertainty, to_levels(entropy(probabilities)).numpy())


def test_flips_are_a_setting() -> None:
    def first_column(images: Tensor) -> Tensor:
        share = torch.zeros_like(images)
        share[..., 0] = 1
        return torch.cat([1 - share, share], dim=1)

    def foreground(**chosen: bool) -> list[int]:
        predictor = Predictor(first_column, (4, 4), InferenceSettings(**chosen), 2, CPU)
        maps = predictor.maps(torch.zeros(1, 4, 4), Grid.identity((4, 4)), ExtraMaps(probabilities=True))
        assert maps.probabilities is not None
        return [int(value) for value in maps.probabilities[1, 0]]

    assert foreground() == [255, 0, 0, 0]
    assert foreground(flips=True) == [128, 0, 0, 128]


@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_the_uncertainty_segment_changes_uncertainty_only(fit: Fit) -> None:
    def unsure(images: Tensor) -> Tensor:
        return torch.full_like(images, 1 / images.shape[1])

    image, grid = image_of(3, 4, 6), Grid.identity((4, 6))
    plain = Predictor(softmax, (4, 6), PLAIN, 3, CPU, fit)
    alone, doubted = plain.maps(image, grid, ALL), replace(plain, uncertainty_segment=unsure).maps(image, grid, ALL)
    np.testing.assert_array_equal(alone.labels, doubted.labels)
    np.testing.assert_array_equal(np.asarray(alone.probabilities), np.asarray(doubted.probabilities))
    assert doubted.uncertainty is not None and set(doubted.uncertainty.flat) == {LEVELS}
    assert doubted.mean_uncertainty == pytest.approx(1)
    assert replace(plain, uncertainty_segment=unsure).maps(image, grid).uncertainty is None


@pytest.mark.parametrize(
    ("shape", "patch", "fit", "windows"),
    [
        ((9, 4), (4, 4), "crop", 4),
        ((9, 4, 3), (4, 4), "crop", 12),
        ((4, 4, 9), (4, 4, 4), "crop", 4),
        ((9, 4, 3), (4, 4), "stretch", 3),
        ((9, 4), (4, 4), "stretch", 1),
    ],
)
def test_every_window_is_reported(shape: tuple[int, ...], patch: tuple[int, ...], fit: Fit, windows: int) -> None:
    counts: list[int] = []
    chosen = InferenceSettings(windows_per_forward=3, flips=True)
    predictor = Predictor(softmax, patch, chosen, 2, CPU, fit, on_windows=counts.append)
    predictor.maps(torch.zeros(2, *shape), Grid.identity(shape))
    assert predictor.windows_in(shape) == sum(counts) == windows
    assert max(counts) <= 3
