"""A network with several decoders on one encoder, for MC-Net."""

from torch import Tensor, nn

from graftseg.networks.encoder_decoder import EncoderDecoder, Extensible


class MultiDecoder(EncoderDecoder):
    """A network with decoders of different upsampling. The first decoder and head belong to the original network.

    Of two decoders, one has transposed convolutions and one linear interpolation. A third decoder, as in MC-Net+, has
    nearest-neighbor interpolation. With two and three decoders, ``vnet-bn`` has 12,347,716 and 15,246,566 parameters,
    ``unet-2d`` has 2,577,624 and 3,210,924.
    """

    def __init__(self, network: Extensible, decoders: int) -> None:
        super().__init__(network.encoder, network.decoder, network.head, network.stride)
        added = network.upsamplings[1:decoders]
        self.decoders = nn.ModuleList(network.another_decoder(upsampling) for upsampling in added)
        self.heads = nn.ModuleList(network.another_head(network.width) for _ in added)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | list[Tensor]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` of the first decoder or, with ``all_outputs``, of every decoder."""
        skips = self.encode(images)
        logits: Tensor = self.head(self.decode(skips))
        if not all_outputs:
            return logits
        added = zip(self.decoders, self.heads, strict=True)
        return [logits, *(head(decoder(skips)) for decoder, head in added)]
