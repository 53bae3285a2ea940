"""Copy-paste masks and the mixing of two images or label maps by a mask."""

from collections.abc import Sequence
from math import floor

import torch
from torch import Tensor


def box_size(space: Sequence[int], beta: float) -> tuple[int, ...]:
    """Size of the pasted box: ``floor(beta * n)`` along each axis, at least one voxel."""
    # 1e-9 keeps an exact product such as 3 * (1/3) from falling below its integer by rounding
    return tuple(max(1, floor(n * beta + 1e-9)) for n in space)


def copy_paste_mask(space: Sequence[int], beta: float, device: torch.device | str = "cpu") -> Tensor:
    """Draw the mask M: ``(*space)`` bool, False inside a box of ``beta`` times the size, True around it.

    M is 1 where a voxel comes from the background image and 0 where it comes from the pasted foreground. The box
    lies at a uniformly drawn place. As in the public code, the last possible position is never drawn (the paper's
    text calls the mask zero-centered). The corner is drawn on ``device``, so that a step can be captured.
    """
    size = box_size(space, beta)
    free = [max(n - s, 1) for n, s in zip(space, size, strict=True)]
    drawn = torch.rand(len(size), device=device)
    # axis by axis, since a tensor made of ``free`` would be copied from the host, which a capture forbids
    corner = torch.stack([(u * n).long() for u, n in zip(drawn, free, strict=True)])
    return box_mask(space, corner, size)


def box_mask(space: Sequence[int], corner: Tensor, size: Sequence[int]) -> Tensor:
    """The mask that is False in the box of ``size`` at ``corner`` (a tensor of indices) and True elsewhere."""
    inside = torch.ones((), dtype=torch.bool, device=corner.device)
    for axis, (n, s) in enumerate(zip(space, size, strict=True)):
        index = torch.arange(n, device=corner.device)
        along = (index >= corner[axis]) & (index < corner[axis] + s)
        inside = inside & along.view([-1 if a == axis else 1 for a in range(len(space))])
    return ~inside


def mix(background: Tensor, foreground: Tensor, M: Tensor) -> Tensor:
    """Eqs. (1), (2), (4), (5): ``background * M + foreground * (1 - M)``, for images as for label maps."""
    return torch.where(M, background, foreground)
