"""The seam that the networks share: encode, decode, head."""

from torch import Tensor, nn


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
