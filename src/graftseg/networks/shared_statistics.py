"""Batch norm over the images of all ranks, on any device.

PyTorch's ``SyncBatchNorm`` exists only for GPUs. The statistics here are equal to the statistics of a single process
except for rounding.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg.core.ranks import count, own_rows, sum_now


def shared_batch_norm(norm: _BatchNorm, x: Tensor) -> Tensor:
    """Normalize ``(B, C, *space)`` with the statistics of all ranks, and update the running statistics."""
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
