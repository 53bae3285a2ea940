"""Patches of a batch exchanged among its images, cell by cell, and put back."""

from collections.abc import Sequence

import torch
from torch import Tensor


def draw_permutations(cells: Sequence[int], images: int, device: torch.device | str = "cpu") -> Tensor:
    """For each cell of a grid a permutation of the images, ``(*cells, images)``, drawn on the device."""
    return torch.rand(*cells, images, device=device).argsort(-1)


def inverse(permutations: Tensor) -> Tensor:
    """The permutations that undo those."""
    return permutations.argsort(-1)


def exchange(tensor: Tensor, permutations: Tensor) -> Tensor:
    """``(N, C, *space)``: in each cell, image n of the result is image ``permutations[cell, n]``.

    The grid is stretched over the space: voxel x of n along an axis lies in cell ``x * cells // n``. A patch keeps its
    place in the image. ``exchange(exchange(x, s), inverse(s))`` is x.
    """
    cells, space = permutations.shape[:-1], tensor.shape[2:]
    check_cells(cells, space)
    lines = [torch.arange(n, device=tensor.device) * c // n for n, c in zip(space, cells, strict=True)]
    source = permutations[torch.meshgrid(*lines, indexing="ij")].movedim(-1, 0).unsqueeze(1)
    return tensor.gather(0, source.expand_as(tensor))


def check_cells(cells: Sequence[int], space: Sequence[int]) -> None:
    """Raise a ValueError if a grid has more cells along an axis than there are voxels."""
    if any(c > n for c, n in zip(cells, space, strict=True)):
        raise ValueError(f"a grid of {list(cells)} cells has more of them than {list(space)} has voxels")
