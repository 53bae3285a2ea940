"""The V-Net of the left atrium (batch norm) and pancreas (instance norm) benchmarks."""

from functools import partial

from torch import nn

from graftseg.networks.convolution import Convolution3d, Doubling3d, Halving3d
from graftseg.networks.encoder_decoder import Extensible, LevelDecoder, LevelEncoder
from graftseg.networks.heads import Head3d
from graftseg.networks.interpolation import Interpolation3d, Upsampling
from graftseg.networks.layers import BatchNorm3d, InstanceNorm, Norm

MAX_UNITS = 3  # maximum number of units in a stage


class VNet(Extensible):
    """An encoder, a decoder that adds encoder features, and a 1x1x1 head.

    A unit is convolution, norm, ReLU. Level ``l`` (0 is full resolution) has ``width * 2**l`` channels and
    ``min(l + 1, 3)`` units of kernel 3, in the encoder and in the decoder. Strided units of kernel 2 connect the
    levels. In further decoders, the upsampling unit has an interpolation (``linear`` with aligned corners, or
    ``nearest``) and a convolution of kernel 3. Channel dropout is applied after the coarsest level and before the head.

    ``norm="batch"`` with ``dropout=0.5`` is the left atrium network with 9,448,866 parameters. ``norm="instance"`` with
    ``dropout=0`` is the pancreas network with 9,443,266 parameters.
    """

    dimensions = 3
    upsamplings = ("transposed", "linear", "nearest")
    head: Head3d

    def __init__(
        self,
        in_channels: int = 1,
        classes: int = 2,
        *,
        width: int = 16,
        levels: int = 5,
        norm: Norm = "batch",
        dropout: float = 0.5,
    ) -> None:
        channels = [width << level for level in range(levels)]
        halvings = [_unit(Halving3d(fine, 2 * fine), 2 * fine, norm) for fine in channels[:-1]]
        entries = enumerate([in_channels, *channels[1:]])
        stages = (_stage(entry, channels[level], level, norm) for level, entry in entries)
        encoder = LevelEncoder(halvings, stages, _channel_dropout(dropout))
        decoder = partial(_decoder, width, levels - 1, norm, dropout)
        super().__init__(encoder, decoder, partial(Head3d, classes=classes), width)


def _decoder(width: int, levels: int, norm: Norm, dropout: float, upsampling: Upsampling) -> LevelDecoder:
    upwards = range(levels - 1, -1, -1)
    ups = [_double(width << level, norm, upsampling) for level in upwards]
    stages = [_stage(width << level, width << level, level, norm) for level in upwards]
    dropouts = [_channel_dropout(0.0 if level else dropout) for level in upwards]
    return LevelDecoder(ups, stages, dropouts, adds=True)


def _stage(in_channels: int, channels: int, level: int, norm: Norm) -> nn.Sequential:
    entries = [in_channels, *[channels] * (min(level + 1, MAX_UNITS) - 1)]
    units = (_unit(Convolution3d(entry, channels), channels, norm) for entry in entries)
    return nn.Sequential(*units)


def _double(fine: int, norm: Norm, upsampling: Upsampling) -> nn.Sequential:
    if upsampling == "transposed":
        return _unit(Doubling3d(2 * fine, fine), fine, norm)
    interpolation = Interpolation3d(align_corners=True) if upsampling == "linear" else nn.Upsample(scale_factor=2.0)
    return nn.Sequential(interpolation, *_unit(Convolution3d(2 * fine, fine), fine, norm))


def _unit(convolution: nn.Module, channels: int, norm: Norm) -> nn.Sequential:
    layer = BatchNorm3d(channels) if norm == "batch" else InstanceNorm(channels)
    return nn.Sequential(convolution, layer, nn.ReLU(inplace=True))


def _channel_dropout(probability: float) -> nn.Module:
    return nn.Dropout3d(probability) if probability else nn.Identity()
