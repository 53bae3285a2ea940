"""Linear upsampling of images and volumes by an integer factor."""

from math import prod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated
from graftseg.networks.layers import autocast_disabled

Upsampling = Literal["transposed", "linear", "nearest"]


class Interpolation2d(nn.Module):
    """Bilinear upsampling by 2 with aligned corners.

    On a GPU this uses two matrix products: the gradient of PyTorch's interpolation needs slow atomic additions.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, C, H, W)`` to ``(B, C, 2 H, 2 W)``."""
        if not accelerated(x):
            return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
        return upsample_2d_by_matmul(x)


def upsample_2d_by_matmul(x: Tensor) -> Tensor:
    """Interpolate by matrix products, equal to PyTorch's result up to rounding; channels-last images are not copied."""
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, height, width * channels)
    vertical = _interpolation_matrix(height, 2, x, align_corners=True)
    rows = torch.matmul(vertical, rows).view(batch * 2 * height, width, channels)
    horizontal = _interpolation_matrix(width, 2, x, align_corners=True)
    return torch.matmul(horizontal, rows).view(batch, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)


class Interpolation3d(nn.Module):
    """Trilinear upsampling by ``factor``, with or without aligned corners.

    On a GPU this uses three matrix products: PyTorch's interpolation loses the channels-last format, and its gradient
    needs atomic additions, which are slow.
    """

    def __init__(self, factor: int = 2, *, align_corners: bool) -> None:
        super().__init__()
        self.factor, self.align_corners = factor, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, C, *space)`` to ``(B, C, *space * factor)``."""
        if not accelerated(x):
            factor = float(self.factor)
            return F.interpolate(x, scale_factor=factor, mode="trilinear", align_corners=self.align_corners)
        return upsample_3d_by_matmul(x, self.factor, align_corners=self.align_corners)


def upsample_3d_by_matmul(x: Tensor, factor: int, *, align_corners: bool) -> Tensor:
    """Interpolate by matrix products, equal to PyTorch's result up to rounding; channels-last volumes are not copied.

    The last axis is interpolated first, while the volume is smallest. The precision of the volume is kept: float32
    logits stay float32, bfloat16 features stay bfloat16.
    """
    rows = x.movedim(1, -1)
    shape = list(rows.shape)
    for axis in range(len(shape) - 2, 0, -1):
        size = shape[axis]
        lines = rows.reshape(prod(shape[:axis]), size, prod(shape[axis + 1 :]))
        with autocast_disabled(x):
            rows = torch.matmul(_interpolation_matrix(size, factor, x, align_corners=align_corners), lines)
        shape[axis] = factor * size
    return rows.reshape(shape).movedim(-1, 1)


def _interpolation_matrix(size: int, factor: int, like: Tensor, *, align_corners: bool) -> Tensor:
    """Return the matrix ``(factor * size, size)`` that interpolates along an axis of ``size`` voxels."""
    position = torch.arange(factor * size, device=like.device, dtype=torch.float32)
    if align_corners:
        position = position * ((size - 1) / (factor * size - 1))
    else:
        position = ((position + 0.5) / factor - 0.5).clamp(0, size - 1)
    distance = (position[:, None] - torch.arange(size, device=like.device)).abs()
    return (1 - distance).clamp(min=0).to(like.dtype)
