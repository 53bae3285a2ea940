"""The 3-D U-Net of URPC for the left atrium."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from torch import nn

from graftseg.networks.convolution import Convolution3d, Doubling3d
from graftseg.networks.encoder_decoder import Extensible, LevelDecoder, LevelEncoder
from graftseg.networks.heads import Head3d
from graftseg.networks.interpolation import Interpolation3d, Upsampling
from graftseg.networks.layers import InstanceNorm

# dropout probability of each decoder level, finest first; the last value is used for all coarser levels
PUBLISHED_DROPOUT = (0.1, 0.2, 0.3, 0.5)
Part = TypeVar("Part", bound=nn.Module)


class UNet3d(Extensible):
    """An encoder, a decoder that concatenates encoder features, and a 1x1x1 head.

    A block is convolution, instance norm and ReLU, twice. Level ``l`` (0 is full resolution) has ``width * 2**l``
    channels. Downsampling is max pooling. Upsampling is trilinear interpolation without aligned corners, or in further
    decoders nearest-neighbor interpolation or a transposed convolution that keeps the number of channels, with norm and
    ReLU. Channel dropout follows every decoder level. Weights are initialized by Kaiming normal for ReLU.

    The defaults give 5,884,050 parameters, or 5,884,504 with heads on the three other decoder levels, as published.
    """

    dimensions = 3
    upsamplings = ("linear", "transposed", "nearest")
    head: Head3d

    def __init__(
        self, in_channels: int = 1, classes: int = 2, *, width: int = 16, levels: int = 5, dropout: bool = True
    ) -> None:
        channels = [width << level for level in range(levels)]
        halvings = [nn.MaxPool3d(2) for _ in channels[1:]]
        encoder = LevelEncoder(halvings, map(_block, [in_channels, *channels[:-1]], channels))
        decoder = partial(_decoder, channels[-2::-1], dropout)
        super().__init__(encoder, decoder, partial(Head3d, classes=classes), width)
        _draw_weights(self)

    def another_decoder(self, upsampling: Upsampling) -> LevelDecoder:
        """Build a new decoder of the network's size with the given upsampling."""
        return _draw_weights(super().another_decoder(upsampling))

    def another_head(self, channels: int) -> nn.Module:
        """Build a new head for features of ``channels`` channels."""
        return _draw_weights(super().another_head(channels))


def _decoder(channels: Sequence[int], dropout: bool, upsampling: Upsampling) -> LevelDecoder:
    ups = [_double(2 * fine, upsampling) for fine in channels]
    stages = [_block(3 * fine, fine) for fine in channels]
    probabilities = [PUBLISHED_DROPOUT[min(level, len(PUBLISHED_DROPOUT) - 1)] for level in range(len(channels))]
    return LevelDecoder(ups, stages, map(nn.Dropout3d, reversed(probabilities)) if dropout else ())


def _block(in_channels: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        _unit(Convolution3d(in_channels, channels), channels), _unit(Convolution3d(channels, channels), channels)
    )


def _unit(convolution: nn.Module, channels: int) -> nn.Sequential:
    return nn.Sequential(convolution, InstanceNorm(channels), nn.ReLU(inplace=True))


def _double(channels: int, upsampling: Upsampling) -> nn.Module:
    if upsampling == "transposed":
        return _unit(Doubling3d(channels, channels), channels)
    return Interpolation3d(align_corners=False) if upsampling == "linear" else nn.Upsample(scale_factor=2.0)


def _draw_weights(part: Part) -> Part:
    for module in part.modules():
        if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
            nn.init.kaiming_normal_(module.weight)
    return part
