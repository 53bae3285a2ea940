"""Batch norms that do not count their batches.

PyTorch's own add one to a number in every forward pass in training, which nothing here reads: on a GPU a kernel for
each layer of student and teacher in every step. The number stays among the weights, at zero.
"""

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm


class _Uncounted(_BatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        """The same shape, by the batch's statistics in training and by the kept ones otherwise."""
        kept = (self.running_mean, self.running_var)
        mean, var = kept if self.track_running_stats or not self.training else (None, None)
        # PyTorch's own would average over all batches without a momentum, which is never asked for here
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.momentum or 0.0, self.eps)


class BatchNorm2d(_Uncounted, nn.BatchNorm2d):
    """Of images ``(B, C, H, W)``."""


class BatchNorm3d(_Uncounted, nn.BatchNorm3d):
    """Of volumes ``(B, C, *space)``."""
