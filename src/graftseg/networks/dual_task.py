"""A network with two heads: classes and signed distances."""

import torch
from torch import Tensor, nn

from graftseg.networks.encoder_decoder import EncoderDecoder
from graftseg.networks.heads import Head2d, Head3d


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
