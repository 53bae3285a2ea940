"""The head of the 2-D network on a GPU: a 3x3 convolution from features to a few classes by our kernels.

cuDNN pads the classes to many more channels, and its float32 convolution needs a float32 copy of the features at full
resolution. Our kernels read bfloat16 features directly, and one kernel computes all three gradients. Results are equal
up to rounding: if TF32 is allowed, products are computed in TF32, as in cuDNN; sums are in float32. Second derivatives
are not supported.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated, tf32_allowed
from graftseg.networks.convolution import HAS_TRITON, MAX_ELEMENTS, suits_kernels

MAX_COLUMNS = 128  # maximum number of pairs of tap and class
MAX_CHANNELS = 64  # maximum number of channels of the features


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
    return _channels_last(F.conv2d(x.to(weight.dtype), weight, bias, padding=1))


@torch.library.custom_op("graftseg::logits_gradients", mutates_args=())
def logits_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of features (in their precision), weight and bias."""
    if _uses_triton(x):
        from graftseg.networks import logits_triton

        return logits_triton.logits_gradients(dy, x, weight)
    dx, dw, db = torch.ops.aten.convolution_backward(
        dy, x.to(weight.dtype), weight, [weight.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
    )
    return _channels_last(dx.to(x.dtype)), torch.empty_like(weight).copy_(dw), db


def _uses_triton(x: Tensor) -> bool:
    return HAS_TRITON and tf32_allowed() and suits_kernels(x, x.shape[1])


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _fake_logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    shape = (x.shape[0], weight.shape[0], *x.shape[2:])
    return torch.empty(shape, device=x.device, dtype=weight.dtype, memory_format=torch.channels_last)


def _fake_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.channels_last)
    return dx, torch.empty_like(weight), weight.new_empty(weight.shape[0])


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    dx, dw, db = logits_gradients(dy, x, weight)
    return dx, dw, db


logits.register_fake(_fake_logits)
logits_gradients.register_fake(_fake_gradients)
logits.register_autograd(_backward, setup_context=_save_inputs)
