"""A network with logits at every decoder level, for URPC."""

import torch
from torch import Tensor, nn

from graftseg.networks.encoder_decoder import EncoderDecoder, Extensible, LevelDecoder
from graftseg.networks.interpolation import Interpolation3d

NOISE = 0.3  # largest relative change by feature noise
LOW, HIGH = 0.7, 0.9  # limits of the threshold of feature dropout


class Pyramid(EncoderDecoder):
    """A network with a head at every decoder level. Logits of the coarser levels are upsampled.

    - ``unet-3d`` is the published network for the left atrium: 1x1x1 heads, trilinear upsampling, and dropout in the
      decoder as the only perturbation (5,884,504 parameters). V-Nets with the same heads are our generalization.
    - ``unet-2d`` is the published network for ACDC: 3x3 heads, nearest-neighbor upsampling, and perturbed features for
      the coarser heads in training (1,831,060 parameters). As published, it has an unused head for the coarsest level.

    A network with two levels has a single decoder level. The second head then uses the coarsest encoder features.
    """

    decoder: LevelDecoder

    def __init__(self, network: Extensible) -> None:
        super().__init__(network.encoder, network.decoder, network.head, network.stride)
        flat = network.dimensions == 2
        coarsest = network.stride.bit_length() - 1
        heads = range(1, coarsest + 1 if flat else max(coarsest, 2))
        self.heads = nn.ModuleList(network.another_head(network.width << level) for level in heads)
        self.perturbations = nn.ModuleList(_perturbation(level) if flat else nn.Identity() for level in heads)
        self.upsampling_layers = nn.ModuleList(_upsampling_layer(1 << level, flat=flat) for level in heads)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | list[Tensor]:  # type: ignore[override]
        """Return logits ``(B, classes, *space)`` of the finest level or, with ``all_outputs``, of every head."""
        skips = self.encode(images)
        finest, *coarser = self.decoder.pyramid(skips)
        logits: Tensor = self.head(finest)
        if not all_outputs:
            return logits
        # in 2-D with more than two levels, the last head gets no features and is skipped
        parts = zip(coarser or skips[-1:], self.perturbations, self.heads, self.upsampling_layers, strict=False)
        return [logits, *(upsample(head(perturb(features))) for features, perturb, head, upsample in parts)]


class FeatureNoise(nn.Module):
    """In training, multiply features by ``1 + n``; n is uniform in [-0.3, 0.3] and equal for all samples."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the perturbed features, of the same shape."""
        if not self.training:
            return x
        n = (2 * torch.rand(x.shape[1:], device=x.device, dtype=x.dtype) - 1) * NOISE
        return x * (1 + n)


class FeatureDropout(nn.Module):
    """In training, set features to zero where their mean over channels is at least r times the sample's largest mean.

    r is drawn between 0.7 and 0.9 for every batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the perturbed features, of the same shape."""
        if not self.training:
            return x
        attention = x.float().mean(1, keepdim=True)
        r = LOW + (HIGH - LOW) * torch.rand((), device=x.device)
        return x * (attention < r * attention.amax(tuple(range(1, x.dim())), keepdim=True))


def _perturbation(level: int) -> nn.Module:
    """Return the perturbation of a level: noise (level 1), feature dropout (level 2) or plain dropout (others)."""
    if level == 1:
        return FeatureNoise()
    return FeatureDropout() if level == 2 else nn.Dropout(0.5)


def _upsampling_layer(factor: int, *, flat: bool) -> nn.Module:
    return nn.Upsample(scale_factor=float(factor)) if flat else Interpolation3d(factor, align_corners=False)
