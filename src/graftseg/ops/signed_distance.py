"""Signed distance maps of label maps: how far a voxel is from the boundary of a class, negative inside of it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.ops.distance_transform import distance_to
from graftseg.ops.losses import SupervisedDice, one_hot, supervised_dice


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
