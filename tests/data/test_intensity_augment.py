"""Intensity augmentation: every operation against plain numpy and scipy, and neutral values that change no bit."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage
from store_fakes import NEVER, build, same
from torch import Tensor

from graftseg.data import intensity_augment as module
from graftseg.data.batches import Batches, BatchSettings
from graftseg.data.disk_batches import DiskBatches
from graftseg.data.intensity_augment import (
    COLUMNS,
    OPERATIONS,
    IntensityAugmentSettings,
    augment_intensities,
    draw_intensities,
)

NEUTRAL = [0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 7.0]
ALL = IntensityAugmentSettings(noise=1, blur=1, brightness=1, contrast=1, low_resolution=1, gamma=1)
NONE = IntensityAugmentSettings(noise=0, blur=0, brightness=0, contrast=0, low_resolution=0, gamma=0)


def images_of(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=shape).astype(np.float32))


def table_with(column: int, *values: float) -> Tensor:
    table = torch.tensor([NEUTRAL] * len(values), dtype=torch.float64)
    table[:, column] = torch.tensor(values, dtype=torch.float64)
    return table


def test_neutral_values_change_no_bit() -> None:
    images = images_of(3, 2, 9, 8, 7)
    assert torch.equal(augment_intensities(images, torch.tensor([NEUTRAL] * 3)), images)


def test_only_drawn_images_change() -> None:
    images = images_of(3, 1, 9, 8)
    for column, value in enumerate((0.8, 0.6, 1.2, 0.8, 1.4, 0.2)):
        table = table_with(column, NEUTRAL[column], value, NEUTRAL[column])
        changed = augment_intensities(images, table)
        assert torch.equal(changed[0], images[0]) and torch.equal(changed[2], images[2])
        assert not torch.equal(changed[1], images[1])


@pytest.mark.parametrize("space", [(9, 8), (9, 8, 7)])
def test_a_gpu_selects_the_same_values(space: tuple[int, ...]) -> None:
    images = images_of(12, 2, *space)
    table = torch.from_numpy(draw_intensities(np.random.default_rng(2), 12, IntensityAugmentSettings(noise=0.4)))
    chosen, everywhere = (augment_intensities(images, table, everywhere=way) for way in (False, True))
    assert torch.equal(chosen, everywhere) and torch.isfinite(everywhere).all()


def test_drawing_none_gives_neutral_values() -> None:
    table = draw_intensities(np.random.default_rng(0), 50, NONE)
    assert table.shape == (50, COLUMNS) and (table[:, :6] == NEUTRAL[:6]).all()


def test_drawn_values_are_in_range() -> None:
    blur, share, bright, contrast, gamma, noise, seed = draw_intensities(np.random.default_rng(0), 2000, ALL).T
    for values, low, high in ((blur, 0.5, 1), (share, 0.5, 1), (bright, 0.75, 1.25), (contrast, 0.75, 1.25)):
        assert low <= values.min() < low + 0.02 and high - 0.02 < values.max() <= high
    assert abs(gamma).min() >= 0.7 and abs(gamma).max() <= 1.5 and 0.2 < (gamma < 0).mean() < 0.3
    assert noise.min() >= 0 and noise.max() <= np.sqrt(0.1) and len(set(seed)) > 1990


def test_blur_is_that_of_scipy() -> None:
    images = images_of(2, 1, 12, 9, 10)
    blurred = module.blur(images, table_with(0, 0.5, 1.0))
    for sample, spread in enumerate((0.5, 1.0)):
        expected = ndimage.gaussian_filter(images[sample, 0].numpy(), spread, radius=module.RADIUS, mode="nearest")
        np.testing.assert_allclose(blurred[sample, 0].numpy(), expected, atol=1e-5)


def coarse(values: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    """Sample a line at a lower resolution and interpolate, point by point."""
    result = []
    for index in range(len(values)):
        place = np.float32(index) * np.float32(share)
        ends = [min(round(float((np.floor(place) + side) / np.float32(share))), len(values) - 1) for side in (0, 1)]
        result.append(values[ends[0]] + (values[ends[1]] - values[ends[0]]) * (place - np.floor(place)))
    return np.array(result)


def test_low_resolution_point_by_point() -> None:
    images = images_of(2, 1, 11, 7)
    changed = module.lower_resolution(images, table_with(1, 0.5, 0.8))
    for sample, share in enumerate((0.5, 0.8)):
        expected = images[sample, 0].numpy()
        for axis in (0, 1):
            expected = np.apply_along_axis(coarse, axis, expected, share)
        np.testing.assert_allclose(changed[sample, 0].numpy(), expected, atol=1e-5)


def test_brightness_and_contrast() -> None:
    images = images_of(1, 2, 6, 5)
    assert torch.equal(module.brighten(images, table_with(2, 1.25)), images * 1.25)
    changed = module.change_contrast(images, table_with(3, 1.25))[0].numpy()
    for channel, own in zip(changed, images[0].numpy(), strict=True):
        expected = np.clip((own - own.mean()) * 1.25 + own.mean(), own.min(), own.max())
        np.testing.assert_allclose(channel, expected, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.7, 1.5, -0.7, -1.5])
def test_gamma_keeps_mean_deviation_and_order(gamma: float) -> None:
    images = images_of(1, 1, 20, 20)
    own, changed = images[0, 0].numpy(), module.change_gamma(images, table_with(4, gamma))[0, 0].numpy()
    np.testing.assert_allclose([changed.mean(), changed.std()], [own.mean(), own.std()], atol=1e-5)
    assert (np.argsort(own.ravel(), kind="stable") == np.argsort(changed.ravel(), kind="stable")).mean() > 0.99
    sign = np.sign(gamma)
    scaled = sign * own
    scaled = (scaled - scaled.min()) / (scaled.max() - scaled.min())
    powered = sign * np.clip(scaled, module.EPSILON, None) ** abs(gamma)
    expected = (powered - powered.mean()) / powered.std() * own.std() + own.mean()
    np.testing.assert_allclose(changed, expected, atol=1e-4)


def test_constant_images_stay_finite() -> None:
    images = torch.full((2, 1, 8, 8), 3.0)
    table = torch.from_numpy(draw_intensities(np.random.default_rng(3), 2, ALL))
    assert torch.isfinite(augment_intensities(images, table)).all()


def correlation(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
    return float(((one - one.mean()) * (two - two.mean())).mean() / (one.std() * two.std()))


def test_noise_is_normal_and_depends_on_the_seed_only() -> None:
    images = torch.zeros(2, 1, 64, 64, 16)
    table = table_with(5, 0.3, 0.3)
    table[1, 6] = 8
    noise = module.add_noise(images, table).flatten(1).numpy() / np.float32(0.3)
    assert abs(noise.mean()) < 0.01 and abs(noise.std() - 1) < 0.01
    assert abs((noise**4).mean() - 3) < 0.1 and abs(correlation(noise[0], noise[1])) < 0.02
    assert abs(correlation(noise[0, 1:], noise[0, :-1])) < 0.02
    assert torch.equal(module.add_noise(images[:1], table[:1]), module.add_noise(images, table)[:1])


def test_every_operation_has_a_column() -> None:
    assert len(OPERATIONS) == COLUMNS - 1 and [neutral for _, neutral in OPERATIONS] == NEUTRAL[:-1]


@pytest.mark.parametrize("kind", [Batches, DiskBatches])
def test_batches_keep_labels_and_plain_images(tmp_path: Path, kind: type[Batches]) -> None:
    store = build(tmp_path / "s", [(9, 7, 6)] * 2, [(9, 7, 6)] * 2)
    sizes = {"patch": (6, 6, 4), "labeled": 2, "unlabeled": 2, "augment": NEVER}
    plain, strong = (
        kind(store, BatchSettings.model_validate(sizes | {"intensity": intensity}), seed=5, device="cpu")
        for intensity in (None, ALL)
    )
    for step in range(4):
        one, two = plain.at(1, step), strong.at(1, step)
        assert torch.equal(one.labeled.labels, two.labeled.labels) and torch.equal(one.unlabeled, two.for_teacher)
        assert one.for_teacher is one.unlabeled
        assert not torch.equal(one.labeled.images, two.labeled.images) and not torch.equal(one.unlabeled, two.unlabeled)
        memory = Batches(store, strong.settings, seed=5, device="cpu").at(1, step)
        assert same(two, memory)
