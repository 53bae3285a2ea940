"""Volumes made larger by a whole factor, linearly along each axis."""

from math import prod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks.acceleration import accelerated
from graftseg.networks.layers import autocast_disabled

Upsampling = Literal["transposed", "linear", "nearest"]


class Interpolation3d(nn.Module):
    """``factor`` times the size, trilinear, with the corners of both grids on each other or not.

    On a GPU as three products with small matrices: the gradient of PyTorch's own needs atomic additions, which are
    slow, and it gives up channels-last.
    """

    def __init__(self, factor: int = 2, *, align_corners: bool) -> None:
        super().__init__()
        self.factor, self.align_corners = factor, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, *space)`` to ``(B, C, *space * factor)``."""
        if not accelerated(x):
            factor = float(self.factor)
            return F.interpolate(x, scale_factor=factor, mode="trilinear", align_corners=self.align_corners)
        return enlarge_by_matmul(x, self.factor, align_corners=self.align_corners)


def enlarge_by_matmul(x: Tensor, factor: int, *, align_corners: bool) -> Tensor:
    """The same up to rounding, for channels-last volumes without a copy; the last axis first, while there is little.

    In the precision of the volume: logits in float32 stay what they are, features in bfloat16 are as cheap as before.
    """
    rows = x.movedim(1, -1)
    shape = list(rows.shape)
    for axis in range(len(shape) - 2, 0, -1):
        size = shape[axis]
        lines = rows.reshape(prod(shape[:axis]), size, prod(shape[axis + 1 :]))
        with autocast_disabled(x):
            rows = torch.matmul(_enlarging(size, factor, x, align_corners=align_corners), lines)
        shape[axis] = factor * size
    return rows.reshape(shape).movedim(-1, 1)


def _enlarging(size: int, factor: int, like: Tensor, *, align_corners: bool) -> Tensor:
    """The matrix ``(factor n, n)`` that interpolates along an axis of n voxels."""
    place = torch.arange(factor * size, device=like.device, dtype=torch.float32)
    if align_corners:
        place = place * ((size - 1) / (factor * size - 1))
    else:
        place = ((place + 0.5) / factor - 0.5).clamp(0, size - 1)
    distance = (place[:, None] - torch.arange(size, device=like.device)).abs()
    return (1 - distance).clamp(min=0).to(like.dtype)
