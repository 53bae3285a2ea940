"""Settings of the segmentation networks, and the table of their builders.

Only the builders import torch, so that reading a recipe stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from graftseg.core.errors import Code, UserError
from graftseg.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn

    from graftseg.networks.encoder_decoder import Extensible
    from graftseg.networks.layers import Norm

NetworkName = Literal["vnet-bn", "vnet-in", "unet-3d", "unet-2d", "unet-2d-in"]


class NetworkSettings(Settings):
    """Name and size of a network. The defaults are the published sizes."""

    name: NetworkName = Field(description="vnet-bn, vnet-in and unet-3d are 3-D, unet-2d and unet-2d-in are 2-D")
    width: int = Field(
        default=16, ge=1, le=4096, description="channels at full resolution; doubled at each coarser level"
    )
    levels: int = Field(default=5, ge=2, le=6, description="number of levels; each next level has half the resolution")
    dropout: bool = Field(default=True, description="use the published dropout (vnet-in and unet-2d-in have none)")
    leaky: bool = Field(default=False, description="leaky ReLU instead of ReLU (unet-2d and unet-2d-in always use it)")
    channels_last: bool = Field(
        default=False, description="store channels last, which is faster on a CPU and changes only the rounding"
    )
    deep_supervision: bool = Field(
        default=False, description="heads at coarser decoder levels, for the losses of supervised and graft"
    )


class NetworkEntry(NamedTuple):
    """An entry of ``NETWORKS``: number of spatial axes, and ``builder(settings, in_channels, classes)``."""

    dimensions: int
    builder: Callable[[NetworkSettings, int, int], Extensible]


@dataclass(frozen=True)
class Networks:
    """Builder of the networks of a method. ``in_channels`` and ``classes`` depend on the data."""

    settings: NetworkSettings
    in_channels: int
    classes: int

    @property
    def dimensions(self) -> int:
        """Number of spatial axes, 2 or 3."""
        return dimensions_of(self.settings.name)

    def build(self) -> Extensible:
        """Build a new network that turns images into logits."""
        return build_network(self.settings, self.in_channels, self.classes)


def build_network(settings: NetworkSettings, in_channels: int, classes: int) -> Extensible:
    """Build a new network that turns images ``(B, in_channels, *space)`` into logits ``(B, classes, *space)``."""
    network = _entry(settings.name).builder(settings, in_channels, classes)
    if settings.deep_supervision:
        network.add_coarse_heads()
    if settings.leaky:
        network.use_leaky_relu()
    if settings.channels_last:
        network.store_channels_last()
    return network


def dimensions_of(name: str) -> int:
    """Return the number of spatial axes of a network, 2 or 3."""
    return _entry(name).dimensions


def stride_of(settings: NetworkSettings) -> int:
    """Return the total stride of all levels. Every input size must be a multiple of this stride."""
    return 1 << (settings.levels - 1)


def check_sizes(sizes: Sequence[int], stride: int) -> None:
    """Raise a ValueError unless all input sizes are multiples of the stride."""
    if any(size % stride for size in sizes):
        input_size = "x".join(str(size) for size in sizes)
        raise ValueError(f"input size {input_size} is invalid; every size must be a multiple of {stride}")


def parameter_count(module: nn.Module) -> int:
    """Return the number of parameters, trainable and frozen, without buffers."""
    return sum(parameter.numel() for parameter in module.parameters())


def _vnet(settings: NetworkSettings, in_channels: int, classes: int) -> Extensible:
    from graftseg.networks.vnet import VNet

    norm: Norm = "batch" if settings.name == "vnet-bn" else "instance"
    dropout = 0.5 if norm == "batch" and settings.dropout else 0.0
    return VNet(in_channels, classes, width=settings.width, levels=settings.levels, norm=norm, dropout=dropout)


def _unet_3d(settings: NetworkSettings, in_channels: int, classes: int) -> Extensible:
    from graftseg.networks.unet3d import UNet3d

    return UNet3d(in_channels, classes, width=settings.width, levels=settings.levels, dropout=settings.dropout)


def _unet_2d(settings: NetworkSettings, in_channels: int, classes: int) -> Extensible:
    from graftseg.networks.unet import PUBLISHED_DROPOUT, UNet2d

    norm: Norm = "batch" if settings.name == "unet-2d" else "instance"
    dropout = PUBLISHED_DROPOUT if norm == "batch" and settings.dropout else (0.0,)
    return UNet2d(in_channels, classes, width=settings.width, levels=settings.levels, dropout=dropout, norm=norm)


NETWORKS: dict[str, NetworkEntry] = {
    "vnet-bn": NetworkEntry(3, _vnet),
    "vnet-in": NetworkEntry(3, _vnet),
    "unet-3d": NetworkEntry(3, _unet_3d),
    "unet-2d": NetworkEntry(2, _unet_2d),
    "unet-2d-in": NetworkEntry(2, _unet_2d),
}


def _entry(name: str) -> NetworkEntry:
    if name not in NETWORKS:
        finding = f"unknown network {name!r}"
        raise UserError(Code.RECIPE_MISMATCH, "network", finding, f"choose one of {', '.join(NETWORKS)}")
    return NETWORKS[name]
