"""Intensity augmentation: drawn on the CPU, applied to a whole batch on the device.

An operation changes only the images for which it was drawn. All others keep their values, bit for bit. Noise is
computed from a drawn seed and the voxel index, so a batch depends on no random state of the device.
"""

from collections.abc import Callable
from math import pi, prod

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.settings import Settings
from graftseg.data.augment import Table

COLUMNS = 7  # columns per image: blur, low resolution, brightness, contrast, gamma, noise, and the seed of the noise
RADIUS = 3  # radius of the blur in voxels
EPSILON = 1e-6


class IntensityAugmentSettings(Settings):
    """Probabilities of the operations. The comments describe their ranges, which are those of nnU-Net."""

    noise: float = Field(0.1, ge=0, le=1)  # Gaussian noise with a variance of up to 0.1
    blur: float = Field(0.2, ge=0, le=1)  # a Gaussian with a standard deviation of 0.5 to 1 voxel
    brightness: float = Field(0.15, ge=0, le=1)  # a factor of 0.75 to 1.25
    contrast: float = Field(0.15, ge=0, le=1)  # a factor of 0.75 to 1.25 for differences from the mean
    low_resolution: float = Field(0.25, ge=0, le=1)  # sampling at 0.5 to 1 times the resolution
    gamma: float = Field(0.4, ge=0, le=1)  # an exponent of 0.7 to 1.5; in a quarter of the images of inverted values


def draw_intensities(rng: np.random.Generator, count: int, settings: IntensityAugmentSettings) -> Table:
    """Draw the parameters of ``count`` images, one row each; the neutral values are 0, 1, 1, 1, 1, 0."""

    def drawn(probability: float, low: float, high: float, neutral: float) -> Table:
        chosen = rng.random(count) < probability
        return np.where(chosen, rng.uniform(low, high, count), neutral)

    blur = drawn(settings.blur, 0.5, 1.0, 0.0)
    resolution = drawn(settings.low_resolution, 0.5, 1.0, 1.0)
    brightness = drawn(settings.brightness, 0.75, 1.25, 1.0)
    contrast = drawn(settings.contrast, 0.75, 1.25, 1.0)
    # a negative exponent means inverted values
    gamma = drawn(settings.gamma, 0.7, 1.5, 1.0) * np.where(rng.random(count) < 0.25, -1.0, 1.0)
    gamma = np.where(gamma == -1.0, 1.0, gamma)
    noise = np.sqrt(drawn(settings.noise, 0.0, 0.1, 0.0))
    seed = rng.integers(2**31, size=count)
    return np.stack([blur, resolution, brightness, contrast, gamma, noise, seed], axis=1).astype(np.float64)


def augment_intensities(images: Tensor, table: Tensor, *, everywhere: bool | None = None) -> Tensor:
    """Return augmented images ``(B, C, *space)``; the table has a row per image.

    ``everywhere`` applies an operation to all images and then selects those for which it was drawn. This is the default
    on a GPU, because shapes in a CUDA graph must not depend on drawn values. Both ways give the same result.
    """
    if everywhere is None:
        everywhere = images.device.type != "cpu"
    for column, (operation, neutral) in enumerate(OPERATIONS):
        drawn = table[:, column] != neutral
        if everywhere:
            images = torch.where(_per_image(drawn, images), operation(images, table), images)
        elif drawn.any():
            chosen = drawn.nonzero().flatten()
            images = images.index_copy(0, chosen, operation(images[chosen], table[chosen]))
    return images


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.view(-1, *[1] * (images.dim() - 1))


def blur(images: Tensor, table: Tensor) -> Tensor:
    """Blur by a Gaussian; the image is continued by its border voxels."""
    std = table[:, 0].float().clamp(min=EPSILON)
    distance = torch.arange(-RADIUS, RADIUS + 1, device=images.device, dtype=torch.float32)
    weights = (-0.5 * (distance / std[:, None]) ** 2).exp()
    weights = weights / weights.sum(dim=1, keepdim=True)
    for axis in range(2, images.dim()):
        sizes = [0, 0] * (images.dim() - 2)
        sizes[2 * (images.dim() - 1 - axis)] = sizes[2 * (images.dim() - 1 - axis) + 1] = RADIUS
        wide, n = F.pad(images, sizes, mode="replicate"), images.shape[axis]
        parts = (wide.narrow(axis, k, n) * _per_image(weights[:, k], images) for k in range(2 * RADIUS + 1))
        images = sum(parts, start=torch.zeros((), device=images.device))
    return images


def lower_resolution(images: Tensor, table: Tensor) -> Tensor:
    """Sample the nearest voxels at a lower resolution, then interpolate linearly."""
    resolution = table[:, 1].float()
    for axis in range(2, images.dim()):
        n = images.shape[axis]
        position = torch.arange(n, device=images.device, dtype=torch.float32) * resolution[:, None]
        cell = position.floor()
        sides = [((cell + side) / resolution[:, None]).round().clamp(max=n - 1).long() for side in (0, 1)]
        shape = [len(images), *[n if other == axis else 1 for other in range(1, images.dim())]]
        below, above = (images.gather(axis, side.view(shape).expand(images.shape)) for side in sides)
        images = below + (above - below) * (position - cell).view(shape)
    return images


def brighten(images: Tensor, table: Tensor) -> Tensor:
    """Multiply each image by a factor."""
    return images * _per_image(table[:, 2].float(), images)


def change_contrast(images: Tensor, table: Tensor) -> Tensor:
    """Multiply differences from the mean of each channel by a factor; clip the result to the original range."""
    space = tuple(range(2, images.dim()))
    mean, low, high = (f(dim=space, keepdim=True) for f in (images.mean, images.amin, images.amax))
    changed = (images - mean) * _per_image(table[:, 3].float(), images) + mean
    return changed.maximum(low).minimum(high)


def change_gamma(images: Tensor, table: Tensor) -> Tensor:
    """Raise values, scaled to 0 to 1, to a power; restore mean and standard deviation of each channel."""
    gamma, space = _per_image(table[:, 4].float(), images), tuple(range(2, images.dim()))
    signed = torch.where(gamma < 0, -images, images)
    low, high = signed.amin(dim=space, keepdim=True), signed.amax(dim=space, keepdim=True)
    powered = ((signed - low) / (high - low).clamp(min=EPSILON)).clamp(min=EPSILON) ** gamma.abs()
    powered = torch.where(gamma < 0, -powered, powered)
    (std, mean), (powered_std, powered_mean) = (
        torch.std_mean(part, dim=space, correction=0, keepdim=True) for part in (images, powered)
    )
    return (powered - powered_mean) * (std / powered_std.clamp(min=EPSILON)) + mean


def add_noise(images: Tensor, table: Tensor) -> Tensor:
    """Add Gaussian noise that is a function of the drawn seed and the position of a voxel."""
    count = prod(images.shape[1:])
    index = torch.arange(2 * count, device=images.device).view(2, count)
    first, second = (_uniform(part + table[:, 6].long()[:, None] * 2**25) for part in index)
    noise = (-2 * first.log()).sqrt() * (2 * pi * second).cos()
    return images + noise.view(images.shape) * _per_image(table[:, 5].float(), images)


def _uniform(numbers: Tensor) -> Tensor:
    """Return a pseudo-random value above 0 and at most 1 for every integer (a hash of 32 bits)."""
    x = (numbers ^ (numbers >> 32)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return ((x ^ (x >> 16)).float() + 1) / 2**32


Operation = Callable[[Tensor, Tensor], Tensor]
OPERATIONS: tuple[tuple[Operation, float], ...] = (
    (blur, 0.0),
    (lower_resolution, 1.0),
    (brighten, 1.0),
    (change_contrast, 1.0),
    (change_gamma, 1.0),
    (add_noise, 0.0),
)
"""The operations in their order, each with the neutral value of its column."""
