"""Heads from features to logits, computed in the precision of the weights even under autocast.

In bfloat16 the logits of two classes often round to the same value, and argmax then selects the first class, the
background. Pseudo-labels from such logits would lose foreground in every step.

The 2-D head uses our kernels on a GPU. cuDNN pads the classes to many more channels, and its float32 convolution needs
a float32 copy of the features at full resolution. Our kernels read bfloat16 features directly, and one kernel computes
all three gradients. Results are equal up to rounding: if TF32 is allowed, products are computed in TF32, as in cuDNN;
sums are in float32. Second derivatives are not supported.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated, tf32_allowed
from graftseg.networks.channels_last import empty_channels_last, to_channels_last
from graftseg.networks.convolution import HAS_TRITON, MAX_ELEMENTS, save_inputs, suits_kernels
from graftseg.networks.layers import autocast_disabled

MAX_COLUMNS = 128  # maximum number of pairs of tap and class of our kernels
MAX_CHANNELS = 64  # maximum number of channels of the features


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


def can_use_logits(x: Tensor, weight: Tensor) -> bool:
    """Return whether ``logits`` supports these features and this weight."""
    is_small = 9 * weight.shape[0] <= MAX_COLUMNS and x.dim() == 4 and x.shape[1] <= MAX_CHANNELS
    return accelerated(x) and HAS_TRITON and is_small and 0 < x.numel() < MAX_ELEMENTS and weight.dtype == torch.float32


@torch.library.custom_op("graftseg::logits", mutates_args=())
def logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve zero-padded bfloat16 or float32 ``(B, C, H, W)`` to channels-last float32 ``(B, classes, H, W)``."""
    if _uses_triton(x):
        from graftseg.networks import logits_triton

        return logits_triton.logits(x, weight, bias)
    return to_channels_last(F.conv2d(x.to(weight.dtype), weight, bias, padding=1))


@torch.library.custom_op("graftseg::logits_gradients", mutates_args=())
def logits_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of features (in their precision), weight and bias."""
    if _uses_triton(x):
        from graftseg.networks import logits_triton

        return logits_triton.logits_gradients(dy, x, weight)
    dx, dw, db = torch.ops.aten.convolution_backward(
        dy, x.to(weight.dtype), weight, [weight.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
    )
    return to_channels_last(dx.to(x.dtype)), torch.empty_like(weight).copy_(dw), db


def _uses_triton(x: Tensor) -> bool:
    return HAS_TRITON and tf32_allowed() and suits_kernels(x, x.shape[1])


def _fake_logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return empty_channels_last(weight, (x.shape[0], weight.shape[0], *x.shape[2:]))


def _fake_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.channels_last)
    return dx, torch.empty_like(weight), weight.new_empty(weight.shape[0])


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    gradients: tuple[Tensor, Tensor, Tensor] = logits_gradients(dy, x, weight)
    return gradients


logits.register_fake(_fake_logits)
logits_gradients.register_fake(_fake_gradients)
logits.register_autograd(_backward, setup_context=save_inputs)
