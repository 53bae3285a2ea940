"""Copy-paste masks, and mixing of images or label maps by a mask.

A mask is 1 (True) where a voxel comes from the background image, 0 (False) where it comes from the pasted foreground.
"""

from collections.abc import Sequence
from math import floor
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import Settings, Voxels
from graftseg.core.types import Labeled

Direction = Literal["both", "in", "out", "within", "none"]
CELLS = 3
"""Number of grid cells of random cubes along each axis."""


class Box(Settings):
    """One box of ``beta`` times the image size: the paper's mask."""

    name: Literal["box"] = "box"

    def check(self, space: Sequence[int], beta: float) -> None:
        """Do nothing: a box fits any image."""

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str) -> Tensor:
        """Draw a mask ``(*space)`` on the device."""
        return copy_paste_mask(space, beta, device)


class RandomCubes(Settings):
    """One cube in every cell of a grid with three cells along each axis.

    A cell has ``floor(n / 3)`` voxels along an axis of n voxels. The remaining voxels at the end of the axis are
    background. The position of each cube is drawn independently.

    - ``sizes``: size of a cube along each axis. By default, it is ``beta`` times the size of a cell, so that all cubes
      together have about the volume of the single box.
    - ``starts``: number of start positions along each axis, by default all except the last.
    """

    name: Literal["random"] = "random"
    sizes: tuple[Voxels, ...] | None = None
    starts: tuple[Voxels, ...] | None = None

    def check(self, space: Sequence[int], beta: float) -> None:
        """Raise a ValueError if the sizes do not fit the number of axes, or the cubes do not fit their cells."""
        for name, values in (("sizes", self.sizes), ("starts", self.starts)):
            if values is not None and len(values) != len(space):
                raise ValueError(f"mask.{name} has {len(values)} numbers, but images have {len(space)} axes")
        self.draw(space, beta, "meta")

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str = "cpu") -> Tensor:
        """Draw a mask ``(*space)`` on the device, False inside the cubes."""
        axes = len(space)
        cell_sizes = [max(1, n // CELLS) for n in space]
        sizes = self.sizes or box_size(cell_sizes, beta)
        starts = self.starts or _start_counts(cell_sizes, sizes)
        _check_fit("a cube", cell_sizes, sizes, starts)
        index = [torch.arange(n, device=device) for n in space]
        cell_of = [(i // n).clamp(max=CELLS - 1) for i, n in zip(index, cell_sizes, strict=True)]
        drawn = torch.rand(*[CELLS] * axes, axes, device=device)
        drawn_per_voxel = drawn[torch.meshgrid(*cell_of, indexing="ij")]
        inside = torch.ones((), dtype=torch.bool, device=device)
        for axis, (n, size, start_count) in enumerate(zip(cell_sizes, sizes, starts, strict=True)):
            index_in_cell = _view_along(index[axis] - n * cell_of[axis], axis, axes)
            start = (drawn_per_voxel[..., axis] * start_count).long()
            inside = inside & (index_in_cell >= start) & (index_in_cell < start + size)
        return ~inside


class ContactSlab(Settings):
    """A slab across the whole image, so that background and foreground touch in at most two planes.

    - ``axis``: normal of the slab.
    - ``thickness``: size of the slab along this axis. By default, it is ``floor(beta ** d * n)`` for images of d axes
      with n voxels along the normal, so that the slab has about the volume of the single box.
    - ``starts``: number of start positions, by default all except the last.
    """

    name: Literal["contact"] = "contact"
    axis: int = Field(0, ge=0, le=2)
    thickness: Voxels | None = None
    starts: Voxels | None = None

    def check(self, space: Sequence[int], beta: float) -> None:
        """Raise a ValueError if the axis does not exist, or if the slab is too thick for the axis."""
        if self.axis >= len(space):
            raise ValueError(f"mask.axis is {self.axis}, but the last axis of the images is {len(space) - 1}")
        self.draw(space, beta, "meta")

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str = "cpu") -> Tensor:
        """Draw a mask ``(*space)`` on the device, False inside the slab."""
        n = space[self.axis]
        thickness = self.thickness or box_size([n], beta ** len(space))[0]
        starts = self.starts or _start_counts([n], [thickness])[0]
        _check_fit("a slab", [n], [thickness], [starts])
        size, start_counts = list(space), [1] * len(space)
        size[self.axis], start_counts[self.axis] = thickness, starts
        return _draw_box_mask(space, size, start_counts, device)


MaskSettings = Annotated[Box | RandomCubes | ContactSlab, Field(discriminator="name")]


def box_size(space: Sequence[int], beta: float) -> tuple[int, ...]:
    """Return the size of the pasted box: ``floor(beta * n)`` along an axis of n voxels, at least one voxel."""
    # 1e-9 prevents rounding from lowering an exact product such as 3 * (1/3)
    return tuple(max(1, floor(n * beta + 1e-9)) for n in space)


def copy_paste_mask(space: Sequence[int], beta: float, device: torch.device | str = "cpu") -> Tensor:
    """Draw the mask M: ``(*space)`` bool, False inside a box of ``beta`` times the image size.

    As in the public code, the position of the box is uniform, but never the last possible position. (The paper's text
    calls the mask zero-centered.) The corner is drawn on ``device``, so that a CUDA graph can capture the step.
    """
    size = box_size(space, beta)
    return _draw_box_mask(space, size, _start_counts(space, size), device)


def box_mask(space: Sequence[int], corner: Tensor, size: Sequence[int]) -> Tensor:
    """Return the mask that is False in the box of ``size`` at ``corner`` (a tensor of indices), True elsewhere."""
    inside = torch.ones((), dtype=torch.bool, device=corner.device)
    for axis, (n, s) in enumerate(zip(space, size, strict=True)):
        index = torch.arange(n, device=corner.device)
        along = (index >= corner[axis]) & (index < corner[axis] + s)
        inside = inside & _view_along(along, axis, len(space))
    return ~inside


def mix(background: Tensor, foreground: Tensor, M: Tensor) -> Tensor:
    """Return ``background * M + foreground * (1 - M)`` for images or label maps, Eqs. (1), (2), (4) and (5)."""
    return torch.where(M, background, foreground)


class Mixture(NamedTuple):
    """Background and foreground images of a mixture, and the loss weights of background and foreground voxels."""

    background: Labeled
    foreground: Labeled
    weights: tuple[float, float]


def mixtures(direction: Direction, labeled: Labeled, unlabeled: Labeled, alpha: float) -> dict[str, Mixture]:
    """Return the mixtures of a step by name. Voxels of unlabeled images, with pseudo-labels, have weight ``alpha``.

    - ``both``: X_in and X_out of Eqs. (1) and (2) with the weights of Eqs. (6) and (7).
    - ``in``: only X_in.
    - ``out``: only X_out.
    - ``within``: labeled crops pasted onto labeled images, and unlabeled crops onto unlabeled images.
    - ``none``: unmixed images, for a mask that is 1 everywhere.
    """
    if direction == "none":
        unmixed = Mixture(unlabeled, unlabeled, (alpha, 0.0))
        return {"labeled": Mixture(labeled, labeled, (1.0, 0.0)), "unlabeled": unmixed}
    (i, j), (p, q) = labeled.halves(), unlabeled.halves()
    if direction == "within":
        return {"labeled": Mixture(i, j, (1.0, 1.0)), "unlabeled": Mixture(p, q, (alpha, alpha))}
    both = {"in": Mixture(j, p, (1.0, alpha)), "out": Mixture(q, i, (alpha, 1.0))}
    return both if direction == "both" else {direction: both[direction]}


def _start_counts(space: Sequence[int], size: Sequence[int]) -> list[int]:
    """Return the number of start positions along each axis: all except the last, at least one."""
    return [max(n - s, 1) for n, s in zip(space, size, strict=True)]


def _check_fit(what: str, space: Sequence[int], size: Sequence[int], starts: Sequence[int]) -> None:
    if any(s + start_count - 1 > n for n, s, start_count in zip(space, size, starts, strict=True)):
        drawn = f"{what} of {list(size)} with {list(starts)} start positions"
        raise ValueError(f"mask: {drawn} does not fit into {list(space)} voxels")


def _draw_box_mask(
    space: Sequence[int], size: Sequence[int], starts: Sequence[int], device: torch.device | str
) -> Tensor:
    drawn = torch.rand(len(size), device=device)
    # axis by axis: a tensor of all starts would be copied from the host, which CUDA graph capture forbids
    corner = torch.stack([(u * n).long() for u, n in zip(drawn, starts, strict=True)])
    return box_mask(space, corner, size)


def _view_along(line: Tensor, axis: int, axes: int) -> Tensor:
    """Reshape a 1-D tensor to ``axes`` axes, extending along ``axis``."""
    return line.view([-1 if a == axis else 1 for a in range(axes)])
