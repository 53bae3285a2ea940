"""A network whose tail, the last stage of the decoder and the head, stands several times on the same rest."""

from typing import cast

from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder


class Tail(nn.Module):
    """The last stage of a decoder, its dropout and the head."""

    def __init__(self, network: EncoderDecoder) -> None:
        """Take these parts out of a network, whose decoder then ends before its last stage."""
        super().__init__()
        self.stage = _take_out(network.decoder, "stages")
        self.dropout = _take_out(network.decoder, "dropouts" if hasattr(network.decoder, "dropouts") else "dropout")
        self.logits = network.head

    def forward(self, joined: Tensor) -> Tensor:
        """What the last stage is given, to logits."""
        logits: Tensor = self.logits(self.dropout(self.stage(joined)))
        return logits


class Branches(EncoderDecoder):
    """The main branch is the network's head, the others stand beside it; three on vnet-in make 9,457,190 parameters.

    The decoder ends before its last stage, which each branch has for itself.
    """

    def __init__(self, network: EncoderDecoder, others: list[EncoderDecoder]) -> None:
        """Take a network over, and of others of its kind the tails."""
        super().__init__(network.encoder, network.decoder, Tail(network), network.stride)
        self.others = nn.ModuleList(Tail(other) for other in others)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | tuple[Tensor, ...]:  # type: ignore[override]
        """Logits ``(B, K, *space)`` of the main branch; with ``all_outputs`` those of every branch, it first."""
        joined = self.decode(self.encode(images))
        main: Tensor = self.head(joined)
        return (main, *(tail(joined) for tail in self.others)) if all_outputs else main


def build_branches(networks: Networks, count: int = 3) -> Branches:
    """The recipe's network with so many branches, each initialised by itself."""
    network, *others = (cast(EncoderDecoder, networks.build()) for _ in range(count))
    return Branches(network, others)


def _take_out(decoder: nn.Module, name: str) -> nn.Module:
    """A part of the decoder, of a list of them the last, which no longer does anything there."""
    part: nn.Module | None = getattr(decoder, name, None)
    if isinstance(part, nn.ModuleList):
        last = part[-1]
        part[-1] = nn.Identity()
        return last
    if part is not None:
        setattr(decoder, name, nn.Identity())
    return nn.Identity() if part is None else part
