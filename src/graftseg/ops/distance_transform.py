"""The exact Euclidean distance transform of masks ``(N, *space)``, in voxels."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

MOST_NUMBERS = 1 << 26


def distance_to(masks: Tensor) -> Tensor:
    """Distance of every voxel to the nearest true voxel of its mask, float32; infinite where a mask has none.

    On a GPU this is a fixed sequence of kernels, and nothing is read back to the host; elsewhere it is scipy's.
    """
    if masks.is_cuda:
        return squared_distance_to(masks).sqrt()
    distances: Tensor = _by_scipy(masks)
    return distances


def squared_distance_to(masks: Tensor) -> Tensor:
    """Its square, one axis after the other: ``d²(i) <- min_j d²(j) + (i - j)²``.

    Squared distances are whole numbers, which float32 holds exactly in images of up to two thousand voxels a side.
    """
    squared = torch.zeros(masks.shape, device=masks.device).masked_fill(~masks, torch.inf)
    for axis in range(1, masks.dim()):
        squared = _nearest_along(squared.movedim(axis, -1)).movedim(-1, axis)
    return squared


def _nearest_along(squared: Tensor) -> Tensor:
    """The minimum along the last axis, for a block of places at a time, so that the sums fit the memory."""
    size = squared.shape[-1]
    j = torch.arange(size, device=squared.device, dtype=torch.float32)
    # what is compiled never writes the sums down
    block = size if torch.compiler.is_compiling() else max(1, MOST_NUMBERS // squared.numel())
    parts = [(squared.unsqueeze(-2) + (i.unsqueeze(-1) - j).square()).amin(-1) for i in torch.split(j, block)]
    return torch.cat(parts, dim=-1)


@torch.library.custom_op("graftseg::distance_to", mutates_args=())
def _by_scipy(masks: Tensor) -> Tensor:
    """Kept whole by a compiler, which cannot see into scipy."""
    distances = torch.full(masks.shape, torch.inf)
    for mask, distance in zip(masks.cpu().numpy(), distances.numpy(), strict=True):
        if mask.any():
            distance[...] = ndimage.distance_transform_edt(np.logical_not(mask))
    return distances.to(masks.device)


@_by_scipy.register_fake
def _(masks: Tensor) -> Tensor:
    return masks.new_empty(masks.shape, dtype=torch.float32)
