"""Euclidean distance transforms and signed distance maps, in voxels."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.ops.losses import SupervisedDice, one_hot, supervised_dice

MAX_BLOCK_ELEMENTS = 1 << 26  # maximum number of elements of a temporary array in ``_min_along_last_axis``


def distance_to(masks: Tensor) -> Tensor:
    """Return the distance of every voxel to the nearest True voxel of its mask, float32; infinite for an empty mask.

    ``masks`` is ``(N, *space)``. A GPU runs a fixed sequence of kernels without a transfer to the host. A CPU uses
    scipy.
    """
    if masks.is_cuda:
        return squared_distance_to(masks).sqrt()
    distances: Tensor = _scipy_distance_to(masks)
    return distances


def squared_distance_to(masks: Tensor) -> Tensor:
    """Return squared distances, computed one axis after the other: ``d²(i) <- min_j [d²(j) + (i - j)²]``.

    Squared distances are integers, which float32 represents exactly in images of up to two thousand voxels per axis.
    """
    squared = torch.zeros(masks.shape, device=masks.device).masked_fill(~masks, torch.inf)
    for axis in range(1, masks.dim()):
        squared = _min_along_last_axis(squared.movedim(axis, -1)).movedim(-1, axis)
    return squared


def _min_along_last_axis(squared: Tensor) -> Tensor:
    """Return ``min_j [d²(j) + (i - j)²]`` along the last axis, for blocks of ``i``, so that the sums fit in memory."""
    size = squared.shape[-1]
    j = torch.arange(size, device=squared.device, dtype=torch.float32)
    # compiled code fuses the sums into the minimum and needs no memory for them
    block = size if torch.compiler.is_compiling() else max(1, MAX_BLOCK_ELEMENTS // squared.numel())
    parts = [(squared.unsqueeze(-2) + (i.unsqueeze(-1) - j).square()).amin(-1) for i in torch.split(j, block)]
    return torch.cat(parts, dim=-1)


@torch.library.custom_op("graftseg::distance_to", mutates_args=())
def _scipy_distance_to(masks: Tensor) -> Tensor:
    """Compute distances with scipy, as an operator that ``torch.compile`` does not trace."""
    from scipy import ndimage  # imported here because it takes 18 MiB and only some methods need it

    distances = torch.full(masks.shape, torch.inf)
    for mask, distance in zip(masks.cpu().numpy(), distances.numpy(), strict=True):
        if mask.any():
            distance[...] = ndimage.distance_transform_edt(np.logical_not(mask))
    return distances.to(masks.device)


@_scipy_distance_to.register_fake
def _(masks: Tensor) -> Tensor:
    return masks.new_empty(masks.shape, dtype=torch.float32)


def distance_channels(classes: int) -> int:
    """Return the number of distance maps: one per class, or one for the foreground if there are two classes."""
    return 1 if classes == 2 else classes


@torch.no_grad()
def signed_distance(labels: Tensor, classes: int, absent: float = 0.0) -> Tensor:
    """Convert label maps ``(B, *space)`` to signed distances in [-1, 1], float32, with ``distance_channels`` channels.

    ``S = d_out / max d_out - d_in / max d_in``. d_out is the distance of a voxel to the class (0 inside), d_in the
    distance to the outside (0 outside). Maxima are over the image. S is 0 at voxels of the inner boundary.
    S is ``absent`` everywhere if the image has no voxel of the class, and ``-absent`` if the class fills the image. The
    published value of ``absent`` is 0, the value at the boundary.
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
    """Return the voxels of masks ``(B, C, *space)`` with a face neighbor outside the mask; image edges do not count."""
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
    """Return the supervised terms of a network with two heads: Dice loss, and squared error of the distances."""
    S = signed_distance(labels, logits.shape[1], absent)
    return {"dice": supervised_dice(logits, labels, dice), "distance": F.mse_loss(distances.float(), S)}
