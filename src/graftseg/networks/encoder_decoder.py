"""Base classes of the networks: encoder, decoder and head."""

from collections.abc import Callable, Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from graftseg.networks import check_sizes
from graftseg.networks.channels_last import keep_gradient_channels_last, to_unambiguous_channels_last
from graftseg.networks.interpolation import Upsampling
from graftseg.networks.layers import replace_relus


class EncoderDecoder(nn.Module):
    """A network of three parts that methods can recombine. Every input size must be a multiple of ``stride``.

    The encoder returns features of every level, finest first. The decoder turns the features of all levels into
    features at full resolution, which the head turns into logits.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, head: nn.Module, stride: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head, self.stride = encoder, decoder, head, stride

    def encode(self, images: Tensor) -> list[Tensor]:
        """Return features of every level, finest first."""
        skips: list[Tensor] = self.encoder(images)
        return skips

    def decode(self, skips: list[Tensor]) -> Tensor:
        """Return features ``(B, width, *space)`` at full resolution."""
        features: Tensor = self.decoder(skips)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Convert images ``(B, C, *space)`` to logits ``(B, classes, *space)``."""
        logits: Tensor = self.head(self.decode(self.encode(images)))
        return logits


class LevelEncoder(nn.Module):
    """An encoder with one stage per level; before each stage except the first, the size is halved.

    ``dropout`` follows the coarsest stage.
    """

    def __init__(
        self, halvings: Iterable[nn.Module], stages: Iterable[nn.Module], dropout: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.downs = nn.ModuleList([nn.Identity(), *halvings])
        self.stages = nn.ModuleList(stages)
        self.dropout = dropout or nn.Identity()
        self.stride = 1 << (len(self.stages) - 1)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Convert images ``(B, C, *space)`` to features of every level, finest first."""
        check_sizes(images.shape[2:], self.stride)
        x, skips = images, []
        for down, stage in zip(self.downs, self.stages, strict=True):
            x = stage(down(x))
            skips.append(x)
        return [*skips[:-1], self.dropout(x)]


class LevelDecoder(nn.Module):
    """A decoder with an upsampling step, a stage and an optional dropout for each level except the coarsest.

    A stage gets encoder features followed by upsampled features, or their sum if ``adds`` is true.
    """

    def __init__(
        self,
        ups: Iterable[nn.Module],
        stages: Iterable[nn.Module],
        dropouts: Iterable[nn.Module] = (),
        *,
        adds: bool = False,
    ) -> None:
        super().__init__()
        self.ups, self.stages = nn.ModuleList(ups), nn.ModuleList(stages)
        self.dropouts = nn.ModuleList(dropouts) or nn.ModuleList(nn.Identity() for _ in self.stages)
        self.adds = adds

    def pyramid(self, skips: list[Tensor]) -> list[Tensor]:
        """Convert encoder features to features of every level except the coarsest, finest first."""
        *finer, x = skips
        upwards = []
        for up, stage, dropout, skip in zip(self.ups, self.stages, self.dropouts, reversed(finer), strict=True):
            x = up(x) + skip if self.adds else torch.cat([skip, up(x)], dim=1)
            x = dropout(stage(x))
            upwards.append(x)
        return upwards[::-1]

    def forward(self, skips: list[Tensor]) -> Tensor:
        """Convert features of every level, finest first, to features ``(B, width, *space)``."""
        return self.pyramid(skips)[0]


class Extensible(EncoderDecoder):
    """A network that can build more decoders and heads of the same kind.

    ``upsamplings`` lists the kinds of upsampling that the decoders support, the default first. Level ``l`` (0 is full
    resolution) has ``width * 2**l`` channels.
    """

    dimensions: ClassVar[int]
    upsamplings: ClassVar[tuple[Upsampling, ...]]
    encoder: LevelEncoder
    decoder: LevelDecoder
    coarse_heads: nn.ModuleList

    def __init__(
        self,
        encoder: LevelEncoder,
        decoder: Callable[[Upsampling], LevelDecoder],
        head: Callable[[int], nn.Module],
        width: int,
    ) -> None:
        super().__init__(encoder, decoder(self.upsamplings[0]), head(width), encoder.stride)
        self._decoder, self._head, self.width = decoder, head, width
        self._is_leaky = self._is_channels_last = False

    def encode(self, images: Tensor) -> list[Tensor]:
        """Return features of every level, finest first."""
        return super().encode(to_unambiguous_channels_last(images) if self._is_channels_last else images)

    def decode(self, skips: list[Tensor]) -> Tensor:
        """Return features ``(B, width, *space)`` at full resolution."""
        features = super().decode(skips)
        return keep_gradient_channels_last(features) if self._is_channels_last else features

    def add_coarse_heads(self) -> None:
        """Add a head at every decoder level below full resolution, for deep supervision."""
        coarsest = self.stride.bit_length() - 1
        self.coarse_heads = nn.ModuleList(self.another_head(self.width << level) for level in range(1, coarsest))

    def forward(self, images: Tensor, all_levels: bool = False) -> Tensor | list[Tensor]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` or, with ``all_levels``, the logits of every decoder level.

        ``all_levels`` needs coarse heads. Level ``l`` has the size of the images divided by ``2**l``, finest first.
        """
        if not all_levels:
            return super().forward(images)
        finest, *coarser = self.decoder.pyramid(self.encode(images))
        return [self.head(finest), *(head(x) for head, x in zip(self.coarse_heads, coarser, strict=True))]

    def use_leaky_relu(self) -> None:
        """Replace every ReLU by a leaky ReLU, also in decoders that are built later."""
        self._is_leaky = True
        replace_relus(self)

    def store_channels_last(self) -> None:
        """Store weights with channels last, and compute features and gradients in the same layout."""
        self._is_channels_last = True
        layout = torch.channels_last if self.dimensions == 2 else torch.channels_last_3d
        for parameter in self.parameters():
            if parameter.dim() == self.dimensions + 2:
                parameter.data = parameter.data.contiguous(memory_format=layout)

    def another_decoder(self, upsampling: Upsampling) -> LevelDecoder:
        """Build a new decoder of the network's size with the given upsampling."""
        decoder = self._decoder(upsampling)
        if self._is_leaky:
            replace_relus(decoder)
        return decoder

    def another_head(self, channels: int) -> nn.Module:
        """Build a new head for features of ``channels`` channels."""
        return self._head(channels)
