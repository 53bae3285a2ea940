"""A 3x3 convolution of one channel, written out, for the compiler to fuse with what stands around it."""

import torch
from torch import Tensor
from torch.nn import functional as F


def written_out(x: Tensor) -> bool:
    """Whether that pays: within a compiled network in reduced precision; kernel by kernel it would be slow."""
    return x.shape[1] == 1 and torch.compiler.is_compiling() and torch.is_autocast_enabled(x.device.type)


def convolve_one_channel(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """``(B, 1, H, W)`` by ``(C, 1, 3, 3)`` to channels-last ``(B, C, H, W)`` of ``dtype``, zeros around the image.

    Factors are rounded to ``dtype``, as autocast does; their products are summed in the weight's precision.
    """
    height, width = x.shape[-2:]
    around = F.pad(x[:, 0].to(dtype), (1, 1, 1, 1))
    taps = weight[:, 0].to(dtype).to(weight.dtype)
    y = bias.to(weight.dtype)
    for row in range(3):
        for column in range(3):
            shifted = around[:, row : row + height, column : column + width, None]
            y = y + shifted.to(weight.dtype) * taps[:, row, column]
    return y.to(dtype).permute(0, 3, 1, 2)
