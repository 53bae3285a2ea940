"""The 2-D U-Net of the cardiac (ACDC) benchmark."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated
from graftseg.networks.encoder_decoder import Extensible, LevelDecoder, LevelEncoder
from graftseg.networks.heads import Head2d
from graftseg.networks.interpolation import Interpolation2d, Upsampling
from graftseg.networks.layers import BatchNorm2d, Norm, convolve_one_channel, prefers_convolve_one_channel

PUBLISHED_DROPOUT = (0.05, 0.1, 0.2, 0.3, 0.5)  # dropout probability of each encoder level, finest first


class UNet2d(Extensible):
    """An encoder, a decoder that concatenates encoder features, and a 3x3 head.

    A block is convolution, norm and leaky ReLU, twice. The published norm is ``batch``. In encoder blocks, dropout
    follows the first ReLU. Level ``l`` (0 is full resolution) has ``width * 2**l`` channels. Downsampling is max
    pooling. Upsampling is a 1x1 convolution and bilinear interpolation with aligned corners, or in further decoders a
    transposed convolution of kernel 2 or nearest-neighbor interpolation. The defaults give 1,813,764 parameters.

    ``dropout`` contains the probability of each encoder level, finest first. The last value applies to all coarser
    levels.
    """

    dimensions = 2
    upsamplings = ("linear", "transposed", "nearest")
    head: Head2d

    def __init__(
        self,
        in_channels: int = 1,
        classes: int = 4,
        *,
        width: int = 16,
        levels: int = 5,
        dropout: Sequence[float] = PUBLISHED_DROPOUT,
        norm: Norm = "batch",
    ) -> None:
        channels = [width << level for level in range(levels)]
        probabilities = [dropout[min(level, len(dropout) - 1)] for level in range(levels)]
        blocks = map(partial(_block, norm=norm), [in_channels, *channels[:-1]], channels, probabilities)
        encoder = LevelEncoder([nn.MaxPool2d(2) for _ in channels[1:]], blocks)
        decoder = partial(_decoder, channels[-2::-1], norm)
        super().__init__(encoder, decoder, partial(Head2d, classes=classes), width)


def _decoder(channels: Sequence[int], norm: Norm, upsampling: Upsampling) -> LevelDecoder:
    ups = [_double(fine, upsampling) for fine in channels]
    return LevelDecoder(ups, [_block(2 * fine, fine, 0.0, norm) for fine in channels])


def _block(in_channels: int, channels: int, dropout: float, norm: Norm) -> nn.Sequential:
    dropout_layer = nn.Dropout(dropout) if dropout else nn.Identity()
    return nn.Sequential(_unit(in_channels, channels, norm), dropout_layer, _unit(channels, channels, norm))


def _unit(in_channels: int, channels: int, norm: Norm) -> nn.Sequential:
    layer = BatchNorm2d(channels) if norm == "batch" else nn.InstanceNorm2d(channels)
    return nn.Sequential(Convolution2d(in_channels, channels), layer, nn.LeakyReLU(0.01, inplace=True))


def _double(fine: int, upsampling: Upsampling) -> nn.Module:
    if upsampling == "transposed":
        return nn.ConvTranspose2d(2 * fine, fine, 2, stride=2)
    interpolation = Interpolation2d() if upsampling == "linear" else nn.Upsample(scale_factor=2.0)
    # the order does not change the result, but the 1x1 convolution is four times faster at low resolution
    return nn.Sequential(nn.Conv2d(2 * fine, fine, 1), interpolation)


class Convolution2d(nn.Conv2d):
    """3x3 convolution with zero padding, for use before a norm.

    On a GPU the bias gets no gradient: the norm subtracts the mean, so the gradient is zero up to rounding.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, H, W)`` to ``(B, out, H, W)``."""
        if self.bias is None or not accelerated(x):
            return super().forward(x)
        if prefers_convolve_one_channel(x):
            return convolve_one_channel(x, self.weight, self.bias.detach(), torch.get_autocast_dtype(x.device.type))
        return F.conv2d(x, self.weight, self.bias.detach(), padding=1)
