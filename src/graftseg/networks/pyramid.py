"""A network that gives logits at every level of its way up, as URPC trains it."""

from typing import Literal, overload

import torch
from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder, Extensible, LevelDecoder
from graftseg.networks.interpolation import Interpolation3d


class Pyramid(EncoderDecoder):
    """The finest head is the network's own; every coarser level has one besides, and its logits are made larger.

    ``unet-3d`` is the published network of the left atrium: heads of 1x1x1, logits enlarged trilinearly, the dropout
    on the way up as the only perturbation; 5,884,504 parameters. The V-Nets get the same heads, which is a
    generalisation of ours.

    ``unet-2d`` is the published one of ACDC: heads of 3x3, logits repeated (nearest), and in training the features
    that a coarser head sees are perturbed, those of the decoder are not. The published network defines one more head,
    on the features of the coarsest level, and never uses it; it is here too, so that there are 1,831,060 parameters.

    A network of two levels has a single step up; its second map is that of the coarsest level.
    """

    decoder: LevelDecoder

    def __init__(self, network: Extensible) -> None:
        """Add heads to a network, whose parts keep their names."""
        super().__init__(network.encoder, network.decoder, network.head, network.stride)
        flat = network.dimensions == 2
        coarsest = network.stride.bit_length() - 1
        heads = range(1, coarsest + 1 if flat else max(coarsest, 2))
        self.heads = nn.ModuleList(network.another_head(network.width << level) for level in heads)
        self.perturbations = nn.ModuleList(_perturbation(level) if flat else nn.Identity() for level in heads)
        self.enlargings = nn.ModuleList(_enlarging(1 << level, flat=flat) for level in heads)

    @overload
    def forward(self, images: Tensor, all_outputs: Literal[False] = ...) -> Tensor: ...

    @overload
    def forward(self, images: Tensor, all_outputs: Literal[True]) -> list[Tensor]: ...

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | list[Tensor]:
        """Images to the finest logits ``(B, K, *space)``, and with ``all_outputs`` to all of them, finest first."""
        skips = self.encode(images)
        finest, *coarser = self.decoder.pyramid(skips)
        logits: Tensor = self.head(finest)
        if not all_outputs:
            return logits
        # the shortest is the features: the last head of a flat network may be without any
        parts = zip(coarser or skips[-1:], self.perturbations, self.heads, self.enlargings, strict=False)
        return [logits, *(enlarge(head(perturb(features))) for features, perturb, head, enlarge in parts)]


def pyramid(networks: Networks) -> Pyramid:
    """The recipe's network with a head at every level."""
    network = networks.build()
    assert isinstance(network, Extensible)
    return Pyramid(network)


class FeatureNoise(nn.Module):
    """In training, features times ``1 + n``, with n uniform up to ``size`` either way and the same for all samples."""

    def __init__(self, size: float = 0.3) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if not self.training:
            return x
        n = (2 * torch.rand(x.shape[1:], device=x.device, dtype=x.dtype) - 1) * self.size
        return x * (1 + n)


class FeatureDropout(nn.Module):
    """In training, features are zero where their mean over channels is at least r times its maximum in the sample.

    r is drawn anew for every batch, between ``low`` and ``high``.
    """

    def __init__(self, low: float = 0.7, high: float = 0.9) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if not self.training:
            return x
        attention = x.float().mean(1, keepdim=True)
        r = self.low + (self.high - self.low) * torch.rand((), device=x.device)
        return x * (attention < r * attention.amax(tuple(range(1, x.dim())), keepdim=True))


def _perturbation(level: int) -> nn.Module:
    """Noise at half the resolution, dropout of what stands out at a quarter, of any feature at the coarser levels."""
    if level == 1:
        return FeatureNoise()
    return FeatureDropout() if level == 2 else nn.Dropout(0.5)


def _enlarging(factor: int, *, flat: bool) -> nn.Module:
    return nn.Upsample(scale_factor=float(factor)) if flat else Interpolation3d(factor, align_corners=False)
