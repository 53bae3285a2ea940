"""Evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """No dropout, and running statistics, which stay as they are; afterwards every part is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def autocast_disabled(x: Tensor) -> AbstractContextManager[object]:
    """Compute in the types that the operands have."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


class _UncountedBatchNorm(_BatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        """The same shape, by the batch's statistics in training and by the kept ones otherwise."""
        kept = (self.running_mean, self.running_var)
        mean, var = kept if self.track_running_stats or not self.training else (None, None)
        # PyTorch's own would average over all batches without a momentum, which is never asked for here
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.momentum or 0.0, self.eps)


class BatchNorm2d(_UncountedBatchNorm, nn.BatchNorm2d):
    """Of images ``(B, C, H, W)``."""


class BatchNorm3d(_UncountedBatchNorm, nn.BatchNorm3d):
    """Of volumes ``(B, C, *space)``."""


def prefers_written_out(x: Tensor) -> bool:
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
