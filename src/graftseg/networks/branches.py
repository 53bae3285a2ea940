"""Networks with several outputs: branches, decoders or heads on the same features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder, Extensible
from graftseg.networks.heads import Head2d, Head3d


class Tail(nn.Module):
    """The last decoder stage of a network, its dropout and the head. Stage and dropout are removed from the decoder."""

    def __init__(self, network: Extensible) -> None:
        super().__init__()
        self.stage = _take_out_last(network.decoder.stages)
        self.dropout = _take_out_last(network.decoder.dropouts)
        self.logits = network.head

    def forward(self, joined: Tensor) -> Tensor:
        """Convert the input of the last stage to logits."""
        logits: Tensor = self.logits(self.dropout(self.stage(joined)))
        return logits


class Branches(EncoderDecoder):
    """A network with several branches on the same features: its own tail and the tails of ``others``.

    Each branch has a separate last decoder stage and head. ``vnet-in`` with three branches has 9,457,190 parameters.
    """

    def __init__(self, network: Extensible, others: Sequence[Extensible]) -> None:
        super().__init__(network.encoder, network.decoder, Tail(network), network.stride)
        self.others = nn.ModuleList(Tail(other) for other in others)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | tuple[Tensor, ...]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` of the main branch or, with ``all_outputs``, of every branch."""
        joined = self.decode(self.encode(images))
        main: Tensor = self.head(joined)
        return (main, *(tail(joined) for tail in self.others)) if all_outputs else main


def build_branches(networks: Networks) -> Branches:
    """Build the recipe's network with three branches, which are initialized separately."""
    network, *others = (networks.build() for _ in range(3))
    return Branches(network, others)


def _take_out_last(parts: nn.ModuleList) -> nn.Module:
    """Replace the last part by an identity, and return the part."""
    last, parts[-1] = parts[-1], nn.Identity()
    return last


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


class DualTask(EncoderDecoder):
    """A network with a second head for signed distances between -1 and 1.

    For two classes, the distance head returns a distance for the foreground only, and the segmentation head returns a
    single logit ``z``. The logits of the classes are then ``(0, z)``, so that their softmax is a sigmoid of ``z``. For
    more classes, the distance head returns a distance for every class. With both heads, the left atrium network for two
    classes has 9,448,866 parameters, and the 2-D U-Net for four classes has 1,814,344.
    """

    def __init__(self, network: EncoderDecoder, classes: int) -> None:
        head = _head_like(network.head, 1) if classes == 2 else network.head
        super().__init__(network.encoder, network.decoder, head, network.stride)
        self.classes = classes
        self.distance_head = _head_like(network.head, 1 if classes == 2 else classes)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` and, if ``all_outputs``, distances ``(B, 1 or classes, *space)``."""
        features = self.decode(self.encode(images))
        logits: Tensor = self.head(features)
        if self.classes == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        if not all_outputs:
            return logits
        return logits, torch.tanh(self.distance_head(features).float())


def _head_like(head: nn.Module, channels: int) -> nn.Module:
    """Build another head for the same features, with ``channels`` output channels."""
    if isinstance(head, nn.Conv3d):
        return Head3d(head.in_channels, channels)
    assert isinstance(head, nn.Conv2d)
    return Head2d(head.in_channels, channels)
