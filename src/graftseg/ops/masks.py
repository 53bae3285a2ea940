"""Copy-paste masks and the mixing of two images or label maps by a mask."""

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
"""Cells of the grid of random cubes along each axis."""


class Box(Settings):
    """One box of ``beta`` times the size: the paper's mask."""

    name: Literal["box"] = "box"

    def check(self, space: Sequence[int], beta: float) -> None:
        """A box fits into any space."""

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str) -> Tensor:
        """A mask ``(*space)``, drawn on the device."""
        return copy_paste_mask(space, beta, device)


class RandomCubes(Settings):
    """A cube in every cell of a grid of three along each axis.

    ``sizes`` of a cube and numbers of ``starts`` to choose from along each axis; None: as ``random_cubes_mask`` says.
    """

    name: Literal["random"] = "random"
    sizes: tuple[Voxels, ...] | None = None
    starts: tuple[Voxels, ...] | None = None

    def check(self, space: Sequence[int], beta: float) -> None:
        """Raise a ValueError if the sizes are those of another number of axes, or the cubes do not fit."""
        for name, values in (("sizes", self.sizes), ("starts", self.starts)):
            if values is not None and len(values) != len(space):
                raise ValueError(f"mask.{name} has {len(values)} numbers and there are {len(space)} axes")
        self.draw(space, beta, "meta")

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str) -> Tensor:
        """A mask ``(*space)``, drawn on the device."""
        return random_cubes_mask(space, beta, device, sizes=self.sizes, starts=self.starts)


class ContactSlab(Settings):
    """A slab across the whole space, so that background and foreground touch in two planes.

    Its ``axis``, its ``thickness`` along it and the number of ``starts``; None: as ``contact_mask`` says.
    """

    name: Literal["contact"] = "contact"
    axis: int = Field(0, ge=0, le=2)
    thickness: Voxels | None = None
    starts: Voxels | None = None

    def check(self, space: Sequence[int], beta: float) -> None:
        """Raise a ValueError if there is no such axis, or the slab does not fit along it."""
        if self.axis >= len(space):
            raise ValueError(f"mask.axis is {self.axis}, counted from 0, and there are only {len(space)} axes")
        self.draw(space, beta, "meta")

    def draw(self, space: Sequence[int], beta: float, device: torch.device | str) -> Tensor:
        """A mask ``(*space)``, drawn on the device."""
        return contact_mask(space, beta, device, axis=self.axis, thickness=self.thickness, starts=self.starts)


MaskSettings = Annotated[Box | RandomCubes | ContactSlab, Field(discriminator="name")]


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
    return _draw_box_mask(space, size, _start_counts(space, size), device)


def random_cubes_mask(
    space: Sequence[int],
    beta: float,
    device: torch.device | str = "cpu",
    *,
    sizes: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
) -> Tensor:
    """Draw a mask that is False in one cube in every cell of a grid of 3 along each axis.

    A cell has ``floor(n / 3)`` voxels along an axis; what remains at the end of the axis is background. A cube is
    ``beta`` times as large as its cell unless ``sizes`` are given, so that all of them hold about as many voxels as
    the one box. Its place is drawn for every cell by itself, among all but the last or among the first ``starts``.
    """
    cells = [max(1, n // CELLS) for n in space]
    sizes = box_size(cells, beta) if sizes is None else sizes
    starts = _start_counts(cells, sizes) if starts is None else starts
    _check_fit("a cube", cells, sizes, starts)
    index = [torch.arange(n, device=device) for n in space]
    cell = [(along // n).clamp(max=CELLS - 1) for along, n in zip(index, cells, strict=True)]
    drawn = torch.rand(*[CELLS] * len(cells), len(cells), device=device)
    of_voxels = drawn[torch.meshgrid(*cell, indexing="ij")]
    inside = torch.ones((), dtype=torch.bool, device=device)
    for axis, (n, size, choice) in enumerate(zip(cells, sizes, starts, strict=True)):
        within = _view_along(index[axis] - n * cell[axis], axis, len(cells))
        start = (of_voxels[..., axis] * choice).long()
        inside = inside & (within >= start) & (within < start + size)
    return ~inside


def contact_mask(
    space: Sequence[int],
    beta: float,
    device: torch.device | str = "cpu",
    *,
    axis: int = 0,
    thickness: int | None = None,
    starts: int | None = None,
) -> Tensor:
    """Draw a mask that is False in a slab across the whole space.

    Its thickness along ``axis`` is ``floor(beta ** d * n)``, d the number of axes, unless it is given: about as many
    voxels as the box holds. Its place is drawn among all but the last, or among the first ``starts``.
    """
    n = space[axis]
    (thickness,) = box_size([n], beta ** len(space)) if thickness is None else (thickness,)
    (choice,) = _start_counts([n], [thickness]) if starts is None else (starts,)
    _check_fit("a slab", [n], [thickness], [choice])
    size = [thickness if a == axis else m for a, m in enumerate(space)]
    return _draw_box_mask(space, size, [choice if a == axis else 1 for a in range(len(space))], device)


def box_mask(space: Sequence[int], corner: Tensor, size: Sequence[int]) -> Tensor:
    """The mask that is False in the box of ``size`` at ``corner`` (a tensor of indices) and True elsewhere."""
    inside = torch.ones((), dtype=torch.bool, device=corner.device)
    for axis, (n, s) in enumerate(zip(space, size, strict=True)):
        index = torch.arange(n, device=corner.device)
        along = (index >= corner[axis]) & (index < corner[axis] + s)
        inside = inside & _view_along(along, axis, len(space))
    return ~inside


def mix(background: Tensor, foreground: Tensor, M: Tensor) -> Tensor:
    """Eqs. (1), (2), (4), (5): ``background * M + foreground * (1 - M)``, for images as for label maps."""
    return torch.where(M, background, foreground)


class Mixture(NamedTuple):
    """Images whose crops are pasted and those they are pasted onto, with the weights of background and foreground."""

    background: Labeled
    foreground: Labeled
    weights: tuple[float, float]


def mixtures(direction: Direction, labeled: Labeled, unlabeled: Labeled, alpha: float) -> dict[str, Mixture]:
    """The mixtures of a step by name; ``unlabeled`` comes with its pseudo-labels, whose voxels count ``alpha``.

    ``both``: X_in and X_out of Eqs. (1) and (2) with the weights of Eqs. (6) and (7). ``in`` and ``out``: the same
    pairs, one of the two. ``within``: crops of labeled images pasted onto labeled ones, of unlabeled ones onto
    unlabeled ones. ``none``: every image by itself, for a mask that is 1 everywhere.
    """
    if direction == "none":
        return {
            "labeled": Mixture(labeled, labeled, (1.0, 0.0)),
            "unlabeled": Mixture(unlabeled, unlabeled, (alpha, 0.0)),
        }
    (i, j), (p, q) = labeled.halves(), unlabeled.halves()
    if direction == "within":
        return {"labeled": Mixture(i, j, (1.0, 1.0)), "unlabeled": Mixture(p, q, (alpha, alpha))}
    both = {"in": Mixture(j, p, (1.0, alpha)), "out": Mixture(q, i, (alpha, 1.0))}
    return both if direction == "both" else {direction: both[direction]}


def _start_counts(space: Sequence[int], size: Sequence[int]) -> list[int]:
    """How many places are drawn from along each axis: all but the last, but at least one."""
    return [max(n - s, 1) for n, s in zip(space, size, strict=True)]


def _check_fit(what: str, space: Sequence[int], size: Sequence[int], starts: Sequence[int]) -> None:
    if any(s + choice - 1 > n for n, s, choice in zip(space, size, starts, strict=True)):
        raise ValueError(
            f"mask: {what} of {list(size)} with {list(starts)} starts does not fit into {list(space)} voxels"
        )


def _draw_box_mask(
    space: Sequence[int], size: Sequence[int], starts: Sequence[int], device: torch.device | str
) -> Tensor:
    drawn = torch.rand(len(size), device=device)
    # axis by axis, since a tensor made of ``starts`` would be copied from the host, which a capture forbids
    corner = torch.stack([(u * n).long() for u, n in zip(drawn, starts, strict=True)])
    return box_mask(space, corner, size)


def _view_along(line: Tensor, axis: int, axes: int) -> Tensor:
    """A line of values as a tensor of so many axes that extends along one of them."""
    return line.view([-1 if a == axis else 1 for a in range(axes)])
