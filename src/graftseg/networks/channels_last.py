"""Tensors whose channels are stored last.

PyTorch computes slowly if the tensors of an operation have different layouts. The layout is lost in two places: at
images of one channel, whose strides fit both layouts, and at the gradient of the logits.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def to_unambiguous_channels_last(x: Tensor) -> Tensor:
    """Return ``(B, C, *space)`` with channels last. Also for C = 1, the strides fit only this layout."""
    if x.shape[1] == 1:
        x = x.contiguous()
        return x.as_strided(x.shape, (x.stride(0), 1, *x.stride()[2:]))
    return to_channels_last(x)


def to_channels_last(x: Tensor) -> Tensor:
    """Return ``(B, C, *space)`` with channels last. For C = 1, the strides may fit both layouts."""
    return x.contiguous(memory_format=_layout(x.dim()))


def empty_channels_last(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return an empty tensor ``(B, C, *space)`` with channels last, with the device and precision of ``like``."""
    return torch.empty(tuple(shape), device=like.device, dtype=like.dtype, memory_format=_layout(len(shape)))


def keep_gradient_channels_last(x: Tensor) -> Tensor:
    """Convert the gradient of ``x`` to channels last when it is computed on a CPU. Return ``x``."""
    if x.requires_grad and not x.is_cuda:
        x.register_hook(to_unambiguous_channels_last)  # type: ignore[no-untyped-call]
    return x


def _layout(axes: int) -> torch.memory_format:
    return torch.channels_last if axes == 4 else torch.channels_last_3d
