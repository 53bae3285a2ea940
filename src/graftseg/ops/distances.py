"""The exact Euclidean distance transform of masks ``(N, *space)``, in voxels."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from graftseg.ops.losses import SupervisedDice, one_hot, supervised_dice

MAX_BLOCK_ELEMENTS = 1 << 26


def distance_to(masks: Tensor) -> Tensor:
    """Distance of every voxel to the nearest true voxel of its mask, float32; infinite where a mask has none.

    On a GPU this is a fixed sequence of kernels, and nothing is read back to the host; elsewhere it is scipy's.
    """
    if masks.is_cuda:
        return squared_distance_to(masks).sqrt()
    distances: Tensor = _scipy_distance_to(masks)
    return distances


def squared_distance_to(masks: Tensor) -> Tensor:
    """Its square, one axis after the other: ``d²(i) <- min_j d²(j) + (i - j)²``.

    Squared distances are whole numbers, which float32 holds exactly in images of up to two thousand voxels a side.
    """
    squared = torch.zeros(masks.shape, device=masks.device).masked_fill(~masks, torch.inf)
    for axis in range(1, masks.dim()):
        squared = _min_along_last_axis(squared.movedim(axis, -1)).movedim(-1, axis)
    return squared


def _min_along_last_axis(squared: Tensor) -> Tensor:
    """The minimum along the last axis, for a block of places at a time, so that the sums fit the memory."""
    size = squared.shape[-1]
    j = torch.arange(size, device=squared.device, dtype=torch.float32)
    # what is compiled never writes the sums down
    block = size if torch.compiler.is_compiling() else max(1, MAX_BLOCK_ELEMENTS // squared.numel())
    parts = [(squared.unsqueeze(-2) + (i.unsqueeze(-1) - j).square()).amin(-1) for i in torch.split(j, block)]
    return torch.cat(parts, dim=-1)


@torch.library.custom_op("graftseg::distance_to", mutates_args=())
def _scipy_distance_to(masks: Tensor) -> Tensor:
    """Kept whole by a compiler, which cannot see into scipy."""
    distances = torch.full(masks.shape, torch.inf)
    for mask, distance in zip(masks.cpu().numpy(), distances.numpy(), strict=True):
        if mask.any():
            distance[...] = ndimage.distance_transform_edt(np.logical_not(mask))
    return distances.to(masks.device)


@_scipy_distance_to.register_fake
def _(masks: Tensor) -> Tensor:
    return masks.new_empty(masks.shape, dtype=torch.float32)


def distance_channels(classes: int) -> int:
    """How many maps there are: one for each class, and of two classes the foreground alone."""
    return 1 if classes == 2 else classes


@torch.no_grad()
def signed_distance(labels: Tensor, classes: int, absent: float = 0.0) -> Tensor:
    """Label maps ``(B, *space)`` to signed distances ``(B, C, *space)`` between -1 and 1, float32.

    ``S = d_out / max d_out - d_in / max d_in``, with the distance of background voxels to the class and of its voxels
    to the background, each divided by the largest in its own image; 0 at voxels of the inner boundary. A class that
    an image does not hold is ``absent`` everywhere, one that fills the image ``-absent``: with 0, as published, as if
    every voxel were boundary; with 1 far from it.
    """
    inside = one_hot(labels, classes)[:, -distance_channels(classes) :]
    flat = inside.flatten(0, 1)
    d_out, d_in = distance_to(torch.cat([flat, ~flat])).view(2, *inside.shape)
    space = tuple(range(2, inside.dim()))
    S = d_out / d_out.amax(space, keepdim=True) - d_in / d_in.amax(space, keepdim=True)
    S = S.masked_fill(inner_boundary(inside), 0.0)
    has_boundary = inside.any(space, keepdim=True) & ~inside.all(space, keepdim=True)
    return torch.where(has_boundary, S, absent * (1 - 2 * inside.float()))


def inner_boundary(inside: Tensor) -> Tensor:
    """Voxels of a mask ``(B, C, *space)`` next to one outside of it, along an axis; the image's edge is no boundary."""
    boundary = torch.zeros_like(inside)
    for axis in range(2, inside.dim()):
        size = inside.shape[axis]
        lower, upper = inside.narrow(axis, 0, size - 1), inside.narrow(axis, 1, size - 1)
        boundary.narrow(axis, 0, size - 1).logical_or_(lower & ~upper)
        boundary.narrow(axis, 1, size - 1).logical_or_(upper & ~lower)
    return boundary


def dual_task_terms(
    logits: Tensor, distances: Tensor, labels: Tensor, *, dice: SupervisedDice, absent: float
) -> dict[str, Tensor]:
    """What a network with both heads learns from labeled images: the Dice loss, and the distances' squared error."""
    S = signed_distance(labels, logits.shape[1], absent)
    return {"dice": supervised_dice(logits, labels, dice), "distance": F.mse_loss(distances.float(), S)}
