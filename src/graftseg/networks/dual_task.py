"""A network with two heads: classes, and signed distances to their boundaries."""

from typing import Literal, overload

import torch
from torch import Tensor, nn

from graftseg.networks import Networks
from graftseg.networks.encoder_decoder import EncoderDecoder
from graftseg.networks.heads import Head2d, Head3d


class DualTask(EncoderDecoder):
    """A network whose features a second head turns into signed distances, between -1 and 1.

    The segmentation head of two classes makes one logit ``z``, which stands for the pair ``(0, z)``: softmax then is
    a sigmoid. There is one distance then, of the foreground, and otherwise one for each class. 9,448,866 parameters
    with the left atrium network and two classes, 1,814,344 with the 2-D U-Net and four.
    """

    def __init__(self, network: EncoderDecoder, classes: int) -> None:
        """Take a network's parts, the head of more than two classes too, and add what is missing."""
        head = _head_like(network.head, 1) if classes == 2 else network.head
        super().__init__(network.encoder, network.decoder, head, network.stride)
        self.classes = classes
        self.distance_head = _head_like(network.head, 1 if classes == 2 else classes)

    @overload
    def forward(self, images: Tensor, all_outputs: Literal[False] = ...) -> Tensor: ...

    @overload
    def forward(self, images: Tensor, all_outputs: Literal[True]) -> tuple[Tensor, Tensor]: ...

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Images to logits ``(B, K, *space)``, and with ``all_outputs`` to signed distances ``(B, C, *space)`` too."""
        features = self.decode(self.encode(images))
        logits: Tensor = self.head(features)
        if self.classes == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        if not all_outputs:
            return logits
        return logits, torch.tanh(self.distance_head(features).float())


def dual_task(networks: Networks) -> DualTask:
    """The recipe's network with both heads."""
    network = networks.build()
    assert isinstance(network, EncoderDecoder)
    return DualTask(network, networks.classes)


def _head_like(head: nn.Module, channels: int) -> nn.Module:
    """Another head on the same features, with so many channels."""
    if isinstance(head, nn.Conv3d):
        return Head3d(head.in_channels, channels)
    assert isinstance(head, nn.Conv2d)
    return Head2d(head.in_channels, channels)
