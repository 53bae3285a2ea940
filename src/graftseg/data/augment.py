"""Crop, rotate-flip and small rotation: drawn on the host, then applied to a whole batch on its device.

All of them are one map from the voxels of a patch back to the voxels of a scan, so that a batch is a single gather:
with n the size of the scan in the plane of its first two axes and n' that size after the rotation,
``source = A (patch index + start - (n' - 1) / 2) + (n - 1) / 2``, rounded to the nearest voxel. The other axes are
only shifted. A voxel that falls outside the scan reads as zero, in the image as in the label map. Where a slice is
stretched to the patch instead of cropped, the patch index is first scaled by ``(n' - 1) / (patch - 1)`` and rounded.

What is drawn for a batch travels to the device as one table, so that a step needs a single upload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import MOST_VOXELS, Settings

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]
STRIDES = slice(10, 12)
"""The columns of a table that say how a scan lies in memory."""


class AugmentSettings(Settings):
    """Which augmentations are drawn, as probabilities.

    ``rotate_flip``: a rotation by 0, 90, 180 or 270 degrees in the plane of the first two axes, then always a flip
    along one of them. ``rotate``: where that was not drawn, a rotation by a whole number of degrees, at least
    ``-degrees`` and less than ``degrees``. ``margin``: where a scan is no larger than the patch along some axis, how
    many voxels of zeros beyond the need are put on each side before cropping.
    """

    rotate_flip: float = Field(1.0, ge=0, le=1)
    rotate: float = Field(0.0, ge=0, le=1)
    degrees: int = Field(20, ge=1, le=180)
    margin: int = Field(3, ge=0, le=MOST_VOXELS)


@dataclass(frozen=True)
class Draw:
    """What was drawn for a batch: ``linear`` is A, ``(B, 2, 2)``; ``start`` the crop's corner, ``(B, axes)``.

    ``scale`` ``(B, 2)`` stretches the plane to the patch; None leaves its size alone.
    """

    linear: Floats
    start: Integers
    scale: Table | None = None


def draw(
    rng: np.random.Generator,
    shapes: Integers,
    patch: Sequence[int],
    settings: AugmentSettings,
    *,
    stretch: bool = False,
) -> Draw:
    """Draw the augmentation of scans with these ``shapes``, ``(B, axes)``; ``stretch`` takes slices whole."""
    linear = np.stack([_draw_linear(rng, settings) for _ in shapes])
    rotated = shapes.copy()
    rotated[:, :2] = turned_size(linear, shapes[:, :2])
    if stretch:
        return Draw(linear, np.zeros_like(rotated), stretching(rotated, patch))
    padding = crop_padding(rotated, patch, settings.margin)
    room = np.maximum(rotated + 2 * padding - np.asarray(patch), 1)
    # as published, the last possible position is never drawn
    start = np.floor(rng.random(room.shape) * room).astype(np.int64) - padding
    return Draw(linear, start)


def centered(shapes: Integers, patch: Sequence[int], *, stretch: bool = False) -> Draw:
    """No augmentation: the patch around the centre of each scan, or the whole slice."""
    linear = np.repeat(np.eye(2, dtype=np.float32)[None], len(shapes), axis=0)
    if stretch:
        return Draw(linear, np.zeros_like(shapes), stretching(shapes, patch))
    return Draw(linear, (shapes - np.asarray(patch)) // 2)


def around(
    drawn: Draw, shapes: Integers, patch: Sequence[int], margin: int, samples: Integers, voxels: Integers
) -> Draw:
    """The same draw with the patches of some ``samples`` moved, each to have a voxel ``(n, axes)`` in its middle.

    Where that would show more of the outside than a drawn patch may, the patch stays nearer to the scan, but never so
    near that the voxel leaves it. After a small rotation the voxel is found to the nearest voxel of the patch.
    """
    linear, size, extent = drawn.linear[samples], shapes[samples], np.asarray(patch)
    rotated = size.copy()
    rotated[:, :2] = turned_size(linear, size[:, :2])
    # A is orthogonal, so that its transpose leads from the scan back to the rotated plane
    offset = np.einsum("bij,bi->bj", linear.astype(np.float64), voxels[:, :2] - (size[:, :2] - 1) / 2)
    place = voxels.copy()
    place[:, :2] = np.floor(offset + (rotated[:, :2] - 1) / 2 + 0.5)
    padding = crop_padding(rotated, patch, margin)
    last = np.maximum(rotated + padding - extent, -padding)
    within = np.clip(place - extent // 2, -padding, last)
    start = drawn.start.copy()
    start[samples] = np.clip(within, place - extent + 1, place)
    return Draw(drawn.linear, start, drawn.scale)


def stretching(shapes: Integers, patch: Sequence[int]) -> Table:
    """Voxels of the slice from one voxel of the patch to the next, ``(B, 2)``, so that corners fall on corners."""
    return np.asarray((shapes[:, :2] - 1) / np.maximum(np.asarray(patch[:2]) - 1, 1), dtype=np.float64)


def turned_size(linear: Floats, plane: Integers) -> Integers:
    """Size of the plane after the rotation: swapped for an odd number of quarter turns, else unchanged."""
    swapped = np.abs(linear[:, 0, 1]) == 1
    return np.where(swapped[:, None], plane[:, ::-1], plane)


def crop_padding(shapes: Integers, patch: Sequence[int], margin: int) -> Integers:
    """Zeros on both sides of each axis: none if the scan exceeds the patch everywhere, else enough plus a margin."""
    lacking = np.asarray(patch) - shapes
    padded = np.maximum(np.maximum(lacking // 2 + margin, -(-lacking // 2)), 0)
    return np.where((lacking >= 0).any(axis=1, keepdims=True), padded, 0)


def table_of(drawn: Draw, shapes: Integers, strides: Integers, patch: Sequence[int]) -> Table:
    """All numbers that ``rows_of`` needs, one row a sample; float64 holds every index exactly."""
    turned = turned_size(drawn.linear, shapes[:, :2])
    scale = np.ones((len(shapes), 2)) if drawn.scale is None else drawn.scale
    shift, centre = drawn.start[:, :2] - (turned - 1) / 2, (shapes[:, :2] - 1) / 2
    depth = drawn.start[:, 2:] if len(patch) == 2 else np.clip(drawn.start[:, 2:], -patch[2], shapes[:, 2:])
    columns = (drawn.linear.reshape(-1, 4), scale, shift, centre, strides, shapes - 1, depth)
    return np.concatenate(columns, axis=1, dtype=np.float64)


def rows_of(table: Tensor, patch: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Where every row of the patches begins in its flat scan, and which voxels of the patches lie inside the scan.

    A row runs along the third axis, where neighbours in space are neighbours in memory; in 2-D it is one voxel. The
    beginnings, int64 ``(B, *patch[:2])``, lie up to a row's length before the scan or right behind its end; the mask
    is ``(B, *patch)``. Nothing here waits for the host or depends on a drawn value in its shapes.
    """
    at = _Columns.of(table, len(patch))
    along = at.along([torch.arange(n, device=table.device, dtype=torch.float64) for n in patch[:2]])
    rows = torch.zeros((), device=table.device, dtype=torch.long)
    inside = torch.ones((), device=table.device, dtype=torch.bool)
    for axis in range(2):
        nearest, held = at.voxels(axis, along)
        inside = inside & (held == nearest)
        rows = rows + held * at.step[:, axis, None, None]
    if len(patch) == 2:
        return rows, inside
    index = torch.arange(patch[2], device=table.device) + at.depth
    within = (index >= 0) & (index <= at.last[:, 2, None])
    return rows + at.depth[..., None], inside[..., None] & within[:, None, None, :]


def boxes_of(table: Table, patch: Sequence[int]) -> tuple[Integers, Integers]:
    """For each row of a table the smallest box of its scan that ``rows_of`` reads: its first voxel, and its shape.

    In the plane it is wider by one voxel, where the scan has one: a device may round otherwise than the host.
    """
    at = _Columns.of(torch.from_numpy(table), len(patch))
    corners = at.along([torch.tensor([0, n - 1], dtype=torch.float64) for n in patch[:2]])
    # each place along an axis of the scan grows or falls along each axis of the patch, so its extremes are at corners
    held = torch.stack([at.voxels(axis, corners)[1].flatten(1) for axis in range(2)], dim=1)
    first, end = (held.amin(dim=2) - 1).clamp(min=0), (held.amax(dim=2) + 2).minimum(at.last[:, :2] + 1)
    if len(patch) == 3:
        rows = [(at.depth + shift).clamp(min=0).minimum(at.last[:, 2:] + 1) for shift in (0, patch[2])]
        first, end = torch.cat([first, rows[0]], dim=1), torch.cat([end, rows[1]], dim=1)
    return first.numpy(), (end - first).numpy()


def with_strides(table: Table, strides: Integers) -> Table:
    """A table for scans that lie in memory otherwise."""
    changed = table.copy()
    changed[:, STRIDES] = strides
    return changed


@dataclass(frozen=True)
class _Columns:
    """The columns of a table, as ``table_of`` puts them."""

    linear: Tensor
    scale: Tensor
    shift: Tensor
    centre: Tensor
    step: Tensor
    last: Tensor
    depth: Tensor

    @classmethod
    def of(cls, table: Tensor, axes: int) -> "_Columns":
        """Take a table apart, and give the numbers the types that they are calculated with."""
        columns = table.split_with_sizes([4, 2, 2, 2, 2, axes, axes - 2], dim=1)
        linear, scale, shift, centre, step, last, depth = columns
        A = linear.float().view(-1, 2, 2)
        return cls(A, scale, shift, centre.float(), step.long(), last.long(), depth.long())

    def along(self, index: Sequence[Tensor]) -> list[Tensor]:
        """Voxels of a patch along its first two axes, in float64 -> the same, stretched to whole voxels and shifted."""
        pairs = zip(index, self.scale.unbind(dim=1), self.shift.unbind(dim=1), strict=True)
        return [((i * scale[:, None] + 0.5).floor() + shift[:, None]).float() for i, scale, shift in pairs]

    def voxels(self, axis: int, along: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The voxels along an axis of the scan that are nearest, and the same kept within the scan."""
        place = (
            self.linear[:, axis, 0, None, None] * along[0][:, :, None]
            + self.linear[:, axis, 1, None, None] * along[1][:, None, :]
            + self.centre[:, axis, None, None]
        )
        # halves are rounded up rather than to even, so that a shift by one voxel shifts the result by one
        nearest = (place + 0.5).floor().long()
        return nearest, nearest.clamp(min=0).minimum(self.last[:, axis, None, None])


def source_rows(
    drawn: Draw, shapes: Integers, strides: Integers, patch: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """``rows_of`` what was drawn; ``strides`` ``(B, 2)`` counts elements between neighbours along two axes."""
    return rows_of(to_device(table_of(drawn, shapes, strides, patch), device), patch)


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy a small array without waiting for the work that the device still has to do."""
    return torch.from_numpy(array).to(device, non_blocking=True)


def _draw_linear(rng: np.random.Generator, settings: AugmentSettings) -> Floats:
    if rng.random() < settings.rotate_flip:
        return _rotate_flip(int(rng.integers(4)), int(rng.integers(2)))
    if rng.random() < settings.rotate:
        return _rotation(np.deg2rad(float(rng.integers(-settings.degrees, settings.degrees))))
    return np.eye(2, dtype=np.float32)


def _rotate_flip(quarter_turns: int, flipped_axis: int) -> Floats:
    """Exact zeros and ones, so that a quarter turn is recognised and no voxel is blurred."""
    turn = np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), quarter_turns)
    flip = np.diag([-1, 1] if flipped_axis == 0 else [1, -1])
    return np.asarray(turn @ flip, dtype=np.float32)


def _rotation(angle: float) -> Floats:
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], dtype=np.float32)
