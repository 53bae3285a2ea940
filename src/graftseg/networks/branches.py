"""A network with several branches: the last decoder stage and the head are repeated."""

from collections.abc import Sequence

from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder


class Tail(nn.Module):
    """The last decoder stage, its dropout and the head."""

    def __init__(self, network: EncoderDecoder) -> None:
        """Take these parts out of a network. The decoder of the network then ends before its last stage."""
        super().__init__()
        self.stage = _take_out(network.decoder, "stages")
        self.dropout = _take_out(network.decoder, "dropouts" if hasattr(network.decoder, "dropouts") else "dropout")
        self.logits = network.head

    def forward(self, joined: Tensor) -> Tensor:
        """Convert the input of the last stage to logits."""
        logits: Tensor = self.logits(self.dropout(self.stage(joined)))
        return logits


class Branches(EncoderDecoder):
    """A network with several branches on the same features.

    Each branch has a separate last decoder stage and head. ``vnet-in`` with three branches has 9,457,190 parameters.
    """

    def __init__(self, network: EncoderDecoder, others: Sequence[EncoderDecoder]) -> None:
        """Use a network as the main branch, and the tails of ``others`` as further branches."""
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


def _take_out(decoder: nn.Module, name: str) -> nn.Module:
    """Replace a part of the decoder, or the last item of a list of parts, by an identity, and return the part.

    If the decoder has no such part, return an identity.
    """
    part: nn.Module | None = getattr(decoder, name, None)
    if isinstance(part, nn.ModuleList):
        last = part[-1]
        part[-1] = nn.Identity()
        return last
    if part is not None:
        setattr(decoder, name, nn.Identity())
    return nn.Identity() if part is None else part
