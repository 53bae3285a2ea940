"""Layers and contexts shared by the networks: eval mode, precision, norms, one-channel convolution."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from graftseg.core.ranks import count, own_rows, sum_now
from graftseg.networks.acceleration import accelerated

Norm = Literal["batch", "instance"]


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Set a module to eval mode inside the block, then restore the mode of every sub-module."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def autocast_disabled(x: Tensor) -> AbstractContextManager[object]:
    """Return a context that disables autocast on the device of ``x``."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


class _SharedStatistics(_BatchNorm):
    """A batch norm whose batch statistics include the images of all ranks, unless ``is_local`` is set."""

    is_local = False

    @property
    def is_shared(self) -> bool:
        """Whether the next batch is normalized together with the batches of other ranks."""
        return self.training and not self.is_local and count() > 1


class _UncountedBatchNorm(_SharedStatistics):
    def forward(self, x: Tensor) -> Tensor:
        """Normalize with batch statistics in training mode, with running statistics in eval mode."""
        if self.is_shared:
            return shared_batch_norm(self, x)
        running = (self.running_mean, self.running_var)
        mean, var = running if self.track_running_stats or not self.training else (None, None)
        # PyTorch also counts batches, but only a momentum of None needs the count, and no network here has it
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.momentum or 0.0, self.eps)


class BatchNorm2d(_UncountedBatchNorm, nn.BatchNorm2d):
    """Batch norm of images ``(B, C, H, W)`` that does not count batches."""


class BatchNorm3d(_UncountedBatchNorm, nn.BatchNorm3d):
    """Batch norm of volumes ``(B, C, *space)`` that does not count batches."""


class RowNorm(_SharedStatistics, nn.BatchNorm1d):
    """Batch norm of rows ``(N, C)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize with batch statistics in training mode, with running statistics in eval mode."""
        if not self.is_shared:
            return super().forward(x)
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return shared_batch_norm(self, x)


def use_local_statistics(module: nn.Module) -> None:
    """Exclude the images of other ranks from the batch statistics of all batch norms of a module."""
    for part in module.modules():
        if isinstance(part, _SharedStatistics):
            part.is_local = True


class InstanceNorm(nn.InstanceNorm3d):
    """Normalize each channel of each volume to mean 0 and standard deviation 1, without parameters.

    On a GPU this uses ``normalize_over_space``: PyTorch's instance norm loses the channels-last format.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized volume, of the same shape."""
        return normalize_over_space(x, self.eps) if accelerated(x) else super().forward(x)


def replace_relus(module: nn.Module) -> None:
    """Replace every ReLU of a module by a leaky ReLU, which also passes gradients of negative features."""
    for name, part in module.named_children():
        if isinstance(part, nn.ReLU):
            setattr(module, name, nn.LeakyReLU(0.01, inplace=True))
        else:
            replace_relus(part)


def disable_dropout(module: nn.Module) -> None:
    """Set the probability of every dropout layer to 0, so that the module keeps all features in training mode."""
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0


def normalize_over_space(x: Tensor, epsilon: float) -> Tensor:
    """Return ``(x - mean) / sqrt(var + ε)`` over space; computed in float32, returned in the precision of ``x``."""
    wide = x.float()
    var, mean = torch.var_mean(wide, (2, 3, 4), correction=0, keepdim=True)
    return ((wide - mean) * torch.rsqrt(var + epsilon)).to(x.dtype)


def prefers_convolve_one_channel(x: Tensor) -> bool:
    """Return whether ``convolve_one_channel`` is faster: for one channel, in compiled code under autocast."""
    return x.shape[1] == 1 and torch.compiler.is_compiling() and torch.is_autocast_enabled(x.device.type)


def convolve_one_channel(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Convolve zero-padded ``(B, 1, H, W)`` with ``(C, 1, 3, 3)``; return channels-last ``(B, C, H, W)`` of ``dtype``.

    Image and weight are rounded to ``dtype``, as in autocast. Products are summed in the precision of the weight.
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


def shared_batch_norm(norm: _BatchNorm, x: Tensor) -> Tensor:
    """Normalize ``(B, C, *space)`` with the statistics of all ranks, and update the running statistics.

    PyTorch's ``SyncBatchNorm`` exists only for GPUs. The statistics here are equal to the statistics of a single
    process except for rounding.
    """
    y, mean, var = _SharedBatchNorm.apply(x, norm.weight, norm.bias, norm.eps)  # type: ignore[no-untyped-call]
    if norm.track_running_stats and norm.running_mean is not None and norm.running_var is not None:
        n = count() * x.numel() // x.shape[1]
        momentum = norm.momentum or 0.0
        norm.running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        norm.running_var.mul_(1 - momentum).add_(var, alpha=momentum * n / max(n - 1, 1))
    normalized: Tensor = y
    return normalized


class _SharedBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean, var = _statistics(x)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps))
        ctx.mark_non_differentiable(mean, var)
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps), mean, var

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *unused: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, scale = ctx.saved_tensors
        summed_axes, shape = (0, *range(2, x.dim())), (1, -1, *[1] * (x.dim() - 2))
        g, x = gradient.float(), x.float()
        g_sum = g.sum(summed_axes)
        g_bias, g_weight = g_sum, ((g * x).sum(summed_axes) - mean * g_sum) * scale
        sums = torch.stack([g_bias, g_weight])
        sum_now(sums)
        bias_mean, weight_mean = sums * (x.shape[1] / (count() * x.numel()))
        # w s (g - mean(g) - x̂ mean(g x̂)) with x̂ = s (x - mean), as a g + b x + c
        a = weight * scale
        b = -a * scale * weight_mean
        c = -a * bias_mean - b * mean
        g_x = torch.addcmul(c.view(shape), x, b.view(shape)).addcmul_(g, a.view(shape))
        return g_x.to(gradient.dtype), g_weight, g_bias, None


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of each channel over all ranks, from the statistics of each rank."""
    mean, var = torch.batch_norm_update_stats(x.float(), None, None, 0.0)
    rank_statistics = mean.new_zeros(count(), 2, len(mean))
    own_rows(rank_statistics).copy_(torch.stack([mean, var])[None])
    sum_now(rank_statistics)
    means, variances = rank_statistics.unbind(1)
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)
