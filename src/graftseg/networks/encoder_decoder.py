"""The seam that the networks share: encode, decode, head."""

from typing import ClassVar

from torch import Tensor, nn

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

    ``ways`` are the ways up that its decoders can have, its own first. Level ``l`` has ``width * 2**l`` channels.
    """

    dimensions: ClassVar[int]
    ways: ClassVar[tuple[Upsampling, ...]]
    decoder: LevelDecoder

    @property
    def width(self) -> int:
        """Channels at full resolution."""
        raise NotImplementedError

    def another_decoder(self, way: Upsampling) -> LevelDecoder:
        """A fresh decoder of the same size, with another way up."""
        raise NotImplementedError

    def another_head(self, channels: int) -> nn.Module:
        """A fresh head for features of so many channels."""
        raise NotImplementedError
