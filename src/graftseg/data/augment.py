"""Random crops, rotate-flips and small rotations, drawn on the CPU and applied to a batch on the device.

The augmentation maps each patch voxel to a scan voxel, so that one gather operation reads a batch. In the plane of the
first two axes, ``source = A (patch index + start - (n' - 1) / 2) + (n - 1) / 2``, rounded to the nearest voxel. Here
``A`` rotates and flips the plane, ``start`` is the corner of the crop, ``n`` is the plane size, and ``n'`` is the
rotated plane size. The third axis is only shifted. Voxels outside the scan are zero in image and label map. If a slice
is stretched to the patch instead of cropped, the patch index is first scaled by ``(n' - 1) / (patch - 1)`` and rounded.

The drawn parameters of a batch are copied to the device in one table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import MAX_SIDE, Settings

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]
STRIDES = 10  # index of the first table column that contains a memory stride of the scan


class AugmentSettings(Settings):
    """Probabilities and limits of the augmentations, in the plane of the first two axes."""

    rotate_flip: float = Field(1.0, ge=0, le=1)  # probability of a rotation by a multiple of 90 degrees and a flip
    rotate: float = Field(0.0, ge=0, le=1)  # probability of a small rotation if no rotate-flip was drawn
    degrees: int = Field(20, ge=1, le=180)  # a small rotation has from ``-degrees`` to ``degrees - 1`` whole degrees
    margin: int = Field(3, ge=0, le=MAX_SIDE)
    """Additional zero padding of each side in voxels. A scan that is larger than the patch along all axes gets none."""


@dataclass(frozen=True)
class Draw:
    """Drawn parameters of a batch of B scans."""

    linear: Floats  # (B, 2, 2), the matrix ``A`` of the module docstring
    start: Integers  # (B, axes), the first voxel of the crop
    scale: Table | None = None  # (B, 2), slice voxels per patch voxel, or None if slices are not stretched


def draw(
    rng: np.random.Generator,
    shapes: Integers,
    patch: Sequence[int],
    settings: AugmentSettings,
    *,
    stretch: bool = False,
) -> Draw:
    """Draw the augmentation of scans with ``shapes`` ``(B, axes)``. With ``stretch``, slices are not cropped."""
    linear = np.stack([_draw_linear(rng, settings) for _ in shapes])
    rotated = rotated_size(linear, shapes)
    if stretch:
        return Draw(linear, np.zeros_like(rotated), stretching(rotated, patch))
    padding = crop_padding(rotated, patch, settings.margin)
    room = np.maximum(rotated + 2 * padding - np.asarray(patch), 1)
    # as in the published code, the last possible position is never drawn
    start = np.floor(rng.random(room.shape) * room).astype(np.int64) - padding
    return Draw(linear, start)


def centered(shapes: Integers, patch: Sequence[int], *, stretch: bool = False) -> Draw:
    """Return a center crop of each scan without augmentation. With ``stretch``, slices are not cropped.

    As in the published code, a start between two voxels is rounded to the even number: 0.5 to 0, and 1.5 to 2. A scan
    that is smaller than the patch is padded on both sides. An odd number of missing voxels puts one more in front.
    """
    linear = np.repeat(np.eye(2, dtype=np.float32)[None], len(shapes), axis=0)
    if stretch:
        return Draw(linear, np.zeros_like(shapes), stretching(shapes, patch))
    room = shapes - np.asarray(patch)
    return Draw(linear, np.where(room > 0, np.rint(room / 2), room // 2).astype(np.int64))


def centered_on(
    drawn: Draw, shapes: Integers, patch: Sequence[int], margin: int, samples: Integers, voxels: Integers
) -> Draw:
    """Move the patches of ``samples`` ``(n,)`` so that they are centered on ``voxels`` ``(n, axes)``.

    A patch near the edge is moved into the padded scan, but still contains its voxel. After a small rotation, the
    position of this voxel is rounded to the nearest patch voxel.
    """
    linear, size, extent = drawn.linear[samples], shapes[samples], np.asarray(patch)
    rotated = rotated_size(linear, size)
    # A is orthogonal, so its transpose maps the scan to the rotated plane
    offset = np.einsum("bij,bi->bj", linear.astype(np.float64), voxels[:, :2] - (size[:, :2] - 1) / 2)
    position = voxels.copy()
    position[:, :2] = np.floor(offset + (rotated[:, :2] - 1) / 2 + 0.5)
    padding = crop_padding(rotated, patch, margin)
    last = np.maximum(rotated + padding - extent, -padding)
    within = np.clip(position - extent // 2, -padding, last)
    start = drawn.start.copy()
    start[samples] = np.clip(within, position - extent + 1, position)
    return Draw(drawn.linear, start, drawn.scale)


def stretching(shapes: Integers, patch: Sequence[int]) -> Table:
    """Return the number of slice voxels per patch voxel, ``(B, 2)``, that aligns the corners of slice and patch."""
    return np.asarray((shapes[:, :2] - 1) / np.maximum(np.asarray(patch[:2]) - 1, 1), dtype=np.float64)


def rotated_size(linear: Floats, shapes: Integers) -> Integers:
    """Return the shapes after the rotation. An odd number of quarter turns exchanges the first two axes."""
    is_exchanged = np.abs(linear[:, 0, 1]) == 1
    rotated = shapes.copy()
    rotated[is_exchanged, :2] = shapes[is_exchanged, 1::-1]
    return rotated


def crop_padding(shapes: Integers, patch: Sequence[int], margin: int) -> Integers:
    """Return the padding per side of each axis: 0 if the scan is larger than the patch along all axes."""
    missing = np.asarray(patch) - shapes
    padded = np.maximum(np.maximum(missing // 2 + margin, -(-missing // 2)), 0)
    return np.where((missing >= 0).any(axis=1, keepdims=True), padded, 0)


def table_of(drawn: Draw, shapes: Integers, strides: Integers, patch: Sequence[int]) -> Table:
    """Return the parameter table that ``rows_of`` reads, one row per sample. Float64 represents every index exactly."""
    rotated = rotated_size(drawn.linear, shapes)[:, :2]
    scale = np.ones((len(shapes), 2)) if drawn.scale is None else drawn.scale
    shift, center = drawn.start[:, :2] - (rotated - 1) / 2, (shapes[:, :2] - 1) / 2
    depth = drawn.start[:, 2:] if len(patch) == 2 else np.clip(drawn.start[:, 2:], -patch[2], shapes[:, 2:])
    columns = (drawn.linear.reshape(-1, 4), scale, shift, center, strides, shapes - 1, depth)
    return np.concatenate(columns, axis=1, dtype=np.float64)


def rows_of(table: Tensor, patch: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the start of every patch row in its flat scan, and a mask of the patch voxels inside the scan.

    A row runs along the third axis, which is contiguous in memory. In 2-D, a row is one voxel. The starts are int64
    ``(B, *patch[:2])``. In 3-D, a row may begin or end outside the scan, so starts are from ``-patch[2]`` to the number
    of scan voxels. The mask is ``(B, *patch)``.

    CUDA graphs can capture this function: it does not synchronize with the CPU, and no shape depends on drawn values.
    """
    columns = _Columns.of(table, len(patch))
    positions = columns.in_plane([torch.arange(n, device=table.device, dtype=torch.float64) for n in patch[:2]])
    rows = torch.zeros((), device=table.device, dtype=torch.long)
    inside = torch.ones((), device=table.device, dtype=torch.bool)
    for axis in range(2):
        nearest, clipped = columns.voxels(axis, positions)
        inside = inside & (clipped == nearest)
        rows = rows + clipped * columns.strides[:, axis, None, None]
    if len(patch) == 2:
        return rows, inside
    index = torch.arange(patch[2], device=table.device) + columns.depth
    within = (index >= 0) & (index <= columns.last[:, 2, None])
    return rows + columns.depth[..., None], inside[..., None] & within[:, None, None, :]


def boxes_of(table: Table, patch: Sequence[int]) -> tuple[Integers, Integers]:
    """Return the first voxel and the shape of the box that each patch reads.

    In the plane, where positions are rounded, the box is one voxel larger on each side. The third axis is exact.
    """
    columns = _Columns.of(torch.from_numpy(table), len(patch))
    corners = columns.in_plane([torch.tensor([0, n - 1], dtype=torch.float64) for n in patch[:2]])
    # scan positions are monotonic along each patch axis, so their extremes are at the corners
    clipped = torch.stack([columns.voxels(axis, corners)[1].flatten(1) for axis in range(2)], dim=1)
    first, end = (clipped.amin(dim=2) - 1).clamp(min=0), (clipped.amax(dim=2) + 2).minimum(columns.last[:, :2] + 1)
    if len(patch) == 3:
        rows = [(columns.depth + shift).clamp(min=0).minimum(columns.last[:, 2:] + 1) for shift in (0, patch[2])]
        first, end = torch.cat([first, rows[0]], dim=1), torch.cat([end, rows[1]], dim=1)
    return first.numpy(), (end - first).numpy()


@dataclass(frozen=True)
class _Columns:
    """The columns of a table, in the order of ``table_of``."""

    linear: Tensor
    scale: Tensor
    shift: Tensor  # start minus the center of the rotated plane
    center: Tensor  # center of the plane
    strides: Tensor  # memory strides of the first two axes
    last: Tensor  # index of the last voxel along each axis
    depth: Tensor  # start along the third axis

    @classmethod
    def of(cls, table: Tensor, axes: int) -> "_Columns":
        """Split a table and convert its columns to the types used in the calculation."""
        columns = table.split_with_sizes([4, 2, 2, 2, 2, axes, axes - 2], dim=1)
        linear, scale, shift, center, strides, last, depth = columns
        A = linear.float().view(-1, 2, 2)
        return cls(A, scale, shift, center.float(), strides.long(), last.long(), depth.long())

    def in_plane(self, index: Sequence[Tensor]) -> list[Tensor]:
        """Return positions relative to the center of the rotated plane, from patch indices (float64) along two axes."""
        pairs = zip(index, self.scale.unbind(dim=1), self.shift.unbind(dim=1), strict=True)
        return [((i * scale[:, None] + 0.5).floor() + shift[:, None]).float() for i, scale, shift in pairs]

    def voxels(self, axis: int, positions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the index of the nearest voxel along an axis of the scan, before and after clipping to the scan."""
        position = (
            self.linear[:, axis, 0, None, None] * positions[0][:, :, None]
            + self.linear[:, axis, 1, None, None] * positions[1][:, None, :]
            + self.center[:, axis, None, None]
        )
        # round halves up, not to even, so that a shift by one voxel shifts the result by one voxel
        nearest = (position + 0.5).floor().long()
        return nearest, nearest.clamp(min=0).minimum(self.last[:, axis, None, None])


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy a small array to a device without synchronization."""
    return torch.from_numpy(array).to(device, non_blocking=True)


def _draw_linear(rng: np.random.Generator, settings: AugmentSettings) -> Floats:
    if rng.random() < settings.rotate_flip:
        return _rotate_flip(int(rng.integers(4)), int(rng.integers(2)))
    if rng.random() < settings.rotate:
        return _rotation(np.deg2rad(float(rng.integers(-settings.degrees, settings.degrees))))
    return np.eye(2, dtype=np.float32)


def _rotate_flip(quarter_turns: int, flipped_axis: int) -> Floats:
    """Return a matrix of exact integers, so that ``rotated_size`` detects quarter turns and no position is rounded."""
    turn = np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), quarter_turns)
    flip = np.diag([-1, 1] if flipped_axis == 0 else [1, -1])
    return np.asarray(turn @ flip, dtype=np.float32)


def _rotation(angle: float) -> Floats:
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], dtype=np.float32)
