"""Discriminators between predictions of labeled and unlabeled images."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.errors import Code, UserError
from graftseg.networks.layers import eval_mode

WIDTH = 64  # channels of the first convolution
MIN_SIDE = 16  # smallest patch size along each axis, in voxels
SLOPE = 0.2  # slope of the leaky ReLU for negative values
DROPOUT = 0.5  # dropout probability


class Discriminator(nn.Module):
    """Two logits for a predicted map and its image: unlabeled (class 0) or labeled (class 1).

    Map and image are convolved separately and added. Three more convolutions each halve the size and double the
    channels. In 3-D, as in SASSNet, the sum passes an activation and a dropout before these convolutions, and the
    final features are averaged over all voxels. In 2-D, as in SSL4MIS, the sum enters these convolutions directly, and
    the final features are averaged in each of 2x2 windows.

    Number of parameters: 11,020,290 in 3-D with one map channel, 11,024,386 with two, 2,762,754 in 2-D with four.
    """

    def __init__(self, map_channels: int, image_channels: int, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.map_entry = _strided_convolution(map_channels, WIDTH, dimensions)
        self.image_entry = _strided_convolution(image_channels, WIDTH, dimensions)
        layers = [nn.LeakyReLU(SLOPE), _channel_dropout(dimensions)] if dimensions == 3 else []
        for width in (WIDTH, 2 * WIDTH, 4 * WIDTH):
            convolution = _strided_convolution(width, 2 * width, dimensions)
            layers += [convolution, nn.LeakyReLU(SLOPE), _channel_dropout(dimensions)]
        self.stages = nn.Sequential(*layers[:-1])
        self.head = nn.Linear(8 * WIDTH * (1 if dimensions == 3 else 4), 2)

    def forward(self, maps: Tensor, images: Tensor) -> Tensor:
        """Convert maps ``(B, C_map, *space)`` and images ``(B, C, *space)`` to ``(B, 2)``."""
        _check_sides(maps)
        features = self.stages(self.map_entry(maps) + self.image_entry(images))
        pooled = features.mean((2, 3, 4)) if self.dimensions == 3 else pool_to_2x2(features).flatten(1)
        logits: Tensor = self.head(pooled)
        return logits


class EntropyDiscriminator(nn.Module):
    """Logits for regions of an entropy map, as in ADVENT.

    Four convolutions with 64 to 512 channels each halve the size. A fifth convolution also halves the size and returns
    one channel. For maps with a side below 32 voxels, the input of the fifth convolution is zero-padded.
    """

    def __init__(self, map_channels: int, dimensions: int) -> None:
        super().__init__()
        widths = [map_channels, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
        units = (
            nn.Sequential(_strided_convolution(in_channels, out_channels, dimensions), nn.LeakyReLU(SLOPE))
            for in_channels, out_channels in pairwise(widths)
        )
        self.stages = nn.Sequential(*units)
        self.head = _strided_convolution(8 * WIDTH, 1, dimensions)

    def forward(self, maps: Tensor) -> Tensor:
        """Convert maps ``(B, C_map, *space)`` to logits ``(B, 1, *space / 32)``, with at least one logit per axis."""
        _check_sides(maps)
        features = self.stages(maps)
        padding = [end for size in reversed(features.shape[2:]) for end in (0, max(2 - size, 0))]
        logits: Tensor = self.head(F.pad(features, padding) if any(padding) else features)
        return logits


def pool_to_2x2(features: Tensor) -> Tensor:
    """Average features ``(B, C, H, W)`` to ``(B, C, 2, 2)`` over windows of 7/16 of each side, starting at index 0.

    At 16x16 this is 7x7 pooling, which ignores the last two rows and columns. If a side has only one pixel,
    both windows contain this pixel.
    """
    height, width = (max(7 * size // 16, 1) for size in features.shape[2:])
    pooled = F.avg_pool2d(features[..., : 2 * height, : 2 * width], (height, width))
    return pooled.expand(-1, -1, 2, 2)


@contextmanager
def frozen_discriminator(discriminator: nn.Module) -> Iterator[None]:
    """Use a discriminator in eval mode without gradients of its parameters; gradients pass to its inputs."""
    with eval_mode(discriminator):
        discriminator.requires_grad_(False)
        try:
            yield
        finally:
            discriminator.requires_grad_(True)


def verdict_loss(verdict: Tensor, *, labeled: int) -> Tensor:
    """Return the cross-entropy of logits ``(B, 2)`` if the first ``labeled`` images count as labeled, others do not."""
    targets = (torch.arange(len(verdict), device=verdict.device) < labeled).long()
    return F.cross_entropy(verdict.float(), targets)


def _strided_convolution(in_channels: int, out_channels: int, dimensions: int) -> nn.Module:
    convolution = nn.Conv3d if dimensions == 3 else nn.Conv2d
    return convolution(in_channels, out_channels, 4, stride=2, padding=1)


def _channel_dropout(dimensions: int) -> nn.Module:
    return nn.Dropout3d(DROPOUT) if dimensions == 3 else nn.Dropout2d(DROPOUT)


def _check_sides(maps: Tensor) -> None:
    if min(maps.shape[2:]) < MIN_SIDE:
        patch = "x".join(str(size) for size in maps.shape[2:])
        finding = f"a patch of {patch} is too small for a discriminator"
        remedy = f"use patches of at least {MIN_SIDE} voxels along each axis"
        raise UserError(Code.RECIPE_MISMATCH, "batches.patch", finding, remedy)
