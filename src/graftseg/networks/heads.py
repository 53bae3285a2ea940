"""Heads from features to logits, computed in the precision of the weights even under autocast.

In bfloat16 the logits of two classes often round to the same value, and argmax then selects the first class, the
background. Pseudo-labels from such logits would lose foreground in every step.
"""

import torch
from torch import Tensor, nn

from graftseg.networks.acceleration import accelerated
from graftseg.networks.layers import autocast_disabled
from graftseg.networks.logits import can_use_logits, logits


class Head2d(nn.Conv2d):
    """3x3 convolution with zero padding."""

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__(in_channels, classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, H, W)`` to ``(B, classes, H, W)``."""
        with autocast_disabled(x):
            if self.bias is not None and can_use_logits(x, self.weight):
                y: Tensor = logits(x, self.weight, self.bias)
                return y
            return super().forward(x.to(self.weight.dtype))


class Head3d(nn.Conv3d):
    """1x1x1 convolution.

    On a GPU, compiled code uses ``logits_by_products``, which the compiler fuses with the previous operations. cuDNN
    would pad the classes to eight channels at full resolution.
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__(in_channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, *space)`` to ``(B, classes, *space)``."""
        if self.bias is None or not (accelerated(x) and torch.compiler.is_compiling()):
            with autocast_disabled(x):
                return super().forward(x.to(self.weight.dtype))
        return logits_by_products(x, self.weight, self.bias)


def logits_by_products(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a 1x1x1 convolution as sums of products, in float32."""
    channels = [(x.float() * row.view(1, -1, 1, 1, 1)).sum(1) for row in weight]
    return torch.stack([channel + b for channel, b in zip(channels, bias, strict=True)], dim=1)
