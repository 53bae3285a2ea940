"""A network with several branches: the last decoder stage and the head are repeated."""

from collections.abc import Sequence

from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder, Extensible


class Tail(nn.Module):
    """The last decoder stage, its dropout and the head, taken out of a network, whose decoder then ends before them."""

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


def build_branches(networks: Networks, count: int = 3) -> Branches:
    """Build the recipe's network with ``count`` branches, which are initialized separately."""
    network, *others = (networks.build() for _ in range(count))
    return Branches(network, others)


def _take_out_last(parts: nn.ModuleList) -> nn.Module:
    """Replace the last part by an identity, and return the part."""
    last, parts[-1] = parts[-1], nn.Identity()
    return last
