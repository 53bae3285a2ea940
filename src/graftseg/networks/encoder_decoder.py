"""The seam that the networks share: encode, decode, head."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from torch import Tensor, nn

from graftseg.networks import check_sizes
from graftseg.networks.interpolation import Upsampling


class EncoderDecoder(nn.Module):
    """A network in three parts, which methods can recombine: other heads on ``decode``, other decoders on ``encode``.

    The encoder turns images into the features of every level, finest first; the decoder turns these into features at
    full resolution; the head turns those into logits.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, head: nn.Module, stride: int) -> None:
        """Join the parts; every size of an input must be a multiple of ``stride``."""
        super().__init__()
        self.encoder, self.decoder, self.head, self.stride = encoder, decoder, head, stride

    def encode(self, images: Tensor) -> list[Tensor]:
        """Features of every level, finest first."""
        skips: list[Tensor] = self.encoder(images)
        return skips

    def decode(self, skips: list[Tensor]) -> Tensor:
        """Features ``(B, width, *space)`` at full resolution."""
        features: Tensor = self.decoder(skips)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(B, C, *space)`` to logits ``(B, K, *space)``."""
        logits: Tensor = self.head(self.decode(self.encode(images)))
        return logits


class LevelEncoder(nn.Module):
    """A way down: at each level a step that halves the size (none at the first), then that level's stage."""

    def __init__(self, halvings: Iterable[nn.Module], stages: Iterable[nn.Module]) -> None:
        """Join the parts; there is one halving less than there are stages."""
        super().__init__()
        self.downs = nn.ModuleList([nn.Identity(), *halvings])
        self.stages = nn.ModuleList(stages)
        self.stride = 1 << (len(self.stages) - 1)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Images ``(B, C, *space)`` to the features of every level, finest first."""
        check_sizes(images.shape[2:], self.stride)
        x, skips = images, []
        for down, stage in zip(self.downs, self.stages, strict=True):
            x = stage(down(x))
            skips.append(x)
        return skips


class LevelDecoder(nn.Module):
    """A way up whose features can be had at every level."""

    def pyramid(self, skips: list[Tensor]) -> list[Tensor]:
        """Features of every level but the coarsest, finest first, from the encoder's."""
        raise NotImplementedError

    def forward(self, skips: list[Tensor]) -> Tensor:
        """Features of every level, finest first, to features ``(B, width, *space)``."""
        return self.pyramid(skips)[0]


class Extensible(EncoderDecoder):
    """A network that can give more parts of its own kind, for students with several decoders or heads.

    ``upsamplings`` lists the kinds of upsampling its decoders can have, its own kind first. Level ``l`` has
    ``width * 2**l`` channels.
    """

    dimensions: ClassVar[int]
    upsamplings: ClassVar[tuple[Upsampling, ...]]
    decoder: LevelDecoder

    def __init__(
        self, encoder: LevelEncoder, decoder: Callable[..., LevelDecoder], head: Callable[[int], nn.Module], width: int
    ) -> None:
        """Join an encoder, a decoder with its own way up and a head for features of ``width`` channels."""
        super().__init__(encoder, decoder(), head(width), encoder.stride)
        self._decoder, self._head, self.width = decoder, head, width

    def another_decoder(self, upsampling: Upsampling) -> LevelDecoder:
        """A fresh decoder of the same size, with another way up."""
        return self._decoder(upsampling=upsampling)

    def another_head(self, channels: int) -> nn.Module:
        """A fresh head for features of so many channels."""
        return self._head(channels)
