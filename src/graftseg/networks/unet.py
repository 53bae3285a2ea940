"""The 2-D U-Net of the cardiac (ACDC) benchmark."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated
from graftseg.networks.encoder_decoder import Extensible, LevelDecoder, LevelEncoder
from graftseg.networks.heads import Head2d
from graftseg.networks.interpolation import Upsampling
from graftseg.networks.layers import BatchNorm2d, convolve_one_channel, prefers_written_out

PUBLISHED_DROPOUT = (0.05, 0.1, 0.2, 0.3, 0.5)


class UNet2d(Extensible):
    """An encoder, a decoder joined to it by concatenation, and a 3x3 head.

    A block is twice convolution, batch norm, leaky ReLU, with a dropout between the two in the encoder. Level
    ``l`` (0 is full resolution) has ``width * 2**l`` channels. The way down is by max pooling, the way up by
    a 1x1 convolution and bilinear interpolation that aligns corners. ``dropout`` gives a probability for each
    level; the last one stands for all levels below it. The defaults make 1,813,764 parameters.

    ``encode``, ``decode`` and ``head`` are the three parts of ``forward``, so that others can build on them.
    """

    dimensions = 2
    upsamplings = ("linear", "transposed", "nearest")
    encoder: "Encoder"
    decoder: "Decoder"
    head: Head2d

    def __init__(
        self,
        in_channels: int = 1,
        classes: int = 4,
        *,
        width: int = 16,
        levels: int = 5,
        dropout: Sequence[float] = PUBLISHED_DROPOUT,
    ) -> None:
        """Build the three parts with PyTorch's default initialisation."""
        encoder = Encoder(in_channels, width=width, levels=levels, dropout=dropout)
        decoder = partial(Decoder, width=width, levels=levels)
        super().__init__(encoder, decoder, partial(Head2d, classes=classes), width)


class Encoder(LevelEncoder):
    """The way down: at each level max pooling (none at the first), then a block."""

    def __init__(self, in_channels: int, *, width: int, levels: int, dropout: Sequence[float]) -> None:
        """Build one pooling and one block for each level."""
        channels = [width << level for level in range(levels)]
        probabilities = [dropout[min(level, len(dropout) - 1)] for level in range(levels)]
        halvings = [nn.MaxPool2d(2) for _ in channels[1:]]
        super().__init__(halvings, map(_block, [in_channels, *channels[:-1]], channels, probabilities))


class Decoder(LevelDecoder):
    """The way up: at each level half the channels, twice the size, the encoder's features in front.

    Both by a transposed convolution of kernel 2, or by a 1x1 convolution and an interpolation, ``linear`` with corners
    aligned or ``nearest``.
    """

    def __init__(self, *, width: int, levels: int, upsampling: Upsampling = "linear") -> None:
        """Build one step up and one block for each level but the coarsest."""
        super().__init__()
        channels = [width << level for level in range(levels - 2, -1, -1)]
        self.ups = nn.ModuleList(_double(fine, upsampling) for fine in channels)
        self.stages = nn.ModuleList(_block(2 * fine, fine, 0.0) for fine in channels)

    def pyramid(self, skips: list[Tensor]) -> list[Tensor]:
        """Features of every level but the coarsest, finest first."""
        *finer, x = skips
        upwards = []
        for up, stage, skip in zip(self.ups, self.stages, reversed(finer), strict=True):
            x = stage(torch.cat([skip, up(x)], dim=1))
            upwards.append(x)
        return upwards[::-1]


def _block(in_channels: int, channels: int, dropout: float) -> nn.Sequential:
    between = nn.Dropout(dropout) if dropout else nn.Identity()
    return nn.Sequential(_unit(in_channels, channels), between, _unit(channels, channels))


def _unit(in_channels: int, channels: int) -> nn.Sequential:
    return nn.Sequential(Convolution2d(in_channels, channels), BatchNorm2d(channels), nn.LeakyReLU(0.01, inplace=True))


def _double(fine: int, upsampling: Upsampling) -> nn.Module:
    if upsampling == "transposed":
        return nn.ConvTranspose2d(2 * fine, fine, 2, stride=2)
    larger = Interpolation() if upsampling == "linear" else nn.Upsample(scale_factor=2.0)
    # The 1x1 convolution and the interpolation commute; at low resolution the convolution costs a quarter.
    return nn.Sequential(nn.Conv2d(2 * fine, fine, 1), larger)


class Convolution2d(nn.Conv2d):
    """3x3, zeros around the image, before a norm.

    On a GPU the bias gets no gradient: the norm takes the mean away again, so that it is zero but for rounding.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, in, H, W)`` to ``(B, out, H, W)``."""
        if self.bias is None or not accelerated(x):
            return super().forward(x)
        if prefers_written_out(x):
            return convolve_one_channel(x, self.weight, self.bias.detach(), torch.get_autocast_dtype(x.device.type))
        return F.conv2d(x, self.weight, self.bias.detach(), padding=1)


class Interpolation(nn.Module):
    """Twice the size, bilinear, corners aligned.

    On a GPU as two products with small matrices: the gradient of PyTorch's own needs atomic additions, which are slow.
    """

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to ``(B, C, 2 H, 2 W)``."""
        if not accelerated(x):
            return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
        return interpolate_by_matmul(x)


def interpolate_by_matmul(x: Tensor) -> Tensor:
    """The same up to rounding, for channels-last images without a copy."""
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, height, width * channels)
    rows = torch.matmul(_doubling_matrix(height, x), rows).view(batch * 2 * height, width, channels)
    return (
        torch.matmul(_doubling_matrix(width, x), rows).view(batch, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)
    )


def _doubling_matrix(size: int, like: Tensor) -> Tensor:
    """The matrix ``(2 n, n)`` that interpolates along an axis of n pixels."""
    place = torch.arange(2 * size, device=like.device, dtype=torch.float32)[:, None] * ((size - 1) / (2 * size - 1))
    distance = (place - torch.arange(size, device=like.device)).abs()
    return (1 - distance).clamp(min=0).to(like.dtype)
