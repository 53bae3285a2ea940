"""Networks that tell predictions of labeled images from predictions of unlabeled ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.errors import Code, UserError
from graftseg.networks.layers import eval_mode

WIDTH = 64
MIN_SIDE = 16
SLOPE = 0.2
DROPOUT = 0.5


class Discriminator(nn.Module):
    """Two logits for a map and the image it belongs to: 1 says that the map is of a labeled image, 0 that it is not.

    Map and image enter by convolutions of their own, whose results are added; three more halve the size and double the
    channels. In 3-D, as in SASSNet, an activation and a dropout follow the sum, and the features are averaged over
    space. In 2-D, as in SSL4MIS, nothing follows the sum, and the features are averaged over a grid of 2x2.

    11,020,290 parameters for volumes and a map of one channel, 11,024,386 for two; 2,762,754 for 2-D and four.
    """

    def __init__(self, map_channels: int, image_channels: int, dimensions: int) -> None:
        """Build for maps and images in two or three axes of space."""
        super().__init__()
        self.dimensions = dimensions
        self.map_entry = _strided_convolution(map_channels, WIDTH, dimensions)
        self.image_entry = _strided_convolution(image_channels, WIDTH, dimensions)
        after_sum = [nn.LeakyReLU(SLOPE), _channel_dropout(dimensions)] if dimensions == 3 else []
        self.stages = nn.Sequential(
            *after_sum,
            _strided_convolution(WIDTH, 2 * WIDTH, dimensions),
            nn.LeakyReLU(SLOPE),
            _channel_dropout(dimensions),
            _strided_convolution(2 * WIDTH, 4 * WIDTH, dimensions),
            nn.LeakyReLU(SLOPE),
            _channel_dropout(dimensions),
            _strided_convolution(4 * WIDTH, 8 * WIDTH, dimensions),
            nn.LeakyReLU(SLOPE),
        )
        self.head = nn.Linear(8 * WIDTH * (1 if dimensions == 3 else 4), 2)

    def forward(self, maps: Tensor, images: Tensor) -> Tensor:
        """Maps ``(B, C_map, *space)`` and images ``(B, C, *space)``, 16 voxels a side at least, to ``(B, 2)``."""
        _check_sides(maps)
        features = self.stages(self.map_entry(maps) + self.image_entry(images))
        pooled = features.mean((2, 3, 4)) if self.dimensions == 3 else pool_to_2x2(features).flatten(1)
        logits: Tensor = self.head(pooled)
        return logits


class EntropyDiscriminator(nn.Module):
    """A map of logits, one for each region of a map of entropies, as in ADVENT.

    Four convolutions that halve the size, 64 to 512 channels, and a fifth that makes one channel. Features that are
    too small for the fifth, those of sides under 32 voxels, are filled up with zeros.
    """

    def __init__(self, map_channels: int, dimensions: int) -> None:
        """Build for maps in two or three axes of space."""
        super().__init__()
        widths = [map_channels, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
        units = (
            nn.Sequential(_strided_convolution(entry, width, dimensions), nn.LeakyReLU(SLOPE))
            for entry, width in pairwise(widths)
        )
        self.stages = nn.Sequential(*units)
        self.head = _strided_convolution(8 * WIDTH, 1, dimensions)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps ``(B, C_map, *space)``, 16 voxels a side at least, to logits ``(B, 1, *space / 32)``."""
        _check_sides(maps)
        features = self.stages(maps)
        missing = [end for size in reversed(features.shape[2:]) for end in (0, max(2 - size, 0))]
        logits: Tensor = self.head(F.pad(features, missing) if any(missing) else features)
        return logits


def pool_to_2x2(features: Tensor) -> Tensor:
    """Averages ``(B, C, 2, 2)`` of features ``(B, C, H, W)``, over windows of 7/16 of each size, from the first on.

    At 16x16 that is a pooling of 7x7, which leaves the last two rows and columns out; a side of one pixel counts for
    both halves.
    """
    height, width = (max(7 * size // 16, 1) for size in features.shape[2:])
    pooled = F.avg_pool2d(features[..., : 2 * height, : 2 * width], (height, width))
    return pooled.expand(-1, -1, 2, 2)


@contextmanager
def frozen_discriminator(discriminator: nn.Module) -> Iterator[None]:
    """A discriminator in evaluation mode that gradients pass through, to what it judges, but do not stay in."""
    with eval_mode(discriminator):
        discriminator.requires_grad_(False)
        try:
            yield
        finally:
            discriminator.requires_grad_(True)


def labeled_first_targets(labeled: int, total: int, device: torch.device) -> Tensor:
    """What a discriminator should say of a batch: ``labeled`` ones, then zeros, ``(total,)`` int64."""
    return (torch.arange(total, device=device) < labeled).long()


def _strided_convolution(in_channels: int, out_channels: int, dimensions: int) -> nn.Module:
    convolution = nn.Conv3d if dimensions == 3 else nn.Conv2d
    return convolution(in_channels, out_channels, 4, stride=2, padding=1)


def _channel_dropout(dimensions: int) -> nn.Module:
    return nn.Dropout3d(DROPOUT) if dimensions == 3 else nn.Dropout2d(DROPOUT)


def _check_sides(maps: Tensor) -> None:
    if min(maps.shape[2:]) < MIN_SIDE:
        shown = "x".join(str(size) for size in maps.shape[2:])
        raise UserError(
            Code.RECIPE_MISMATCH,
            "batches.patch",
            f"a map of {shown} is too small for a discriminator",
            f"choose patches of {MIN_SIDE} voxels a side at least",
        )
