"""Affine and elastic augmentation: drawn on the CPU, applied to a whole batch on the device.

Mirroring, rotation, scaling and elastic deformation are one map from patch voxels to scan voxels,
``source = center + A (patch index - (patch size - 1) / 2) + displacement(patch index)``. Images are interpolated
linearly, labels take the nearest voxel. Voxels outside the scan are zero in both. The displacement is a cubic B-spline
of random vectors at control points.

If nothing is drawn and slices are not stretched, every patch voxel is exactly a scan voxel, and no value changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import MAX_SIDE, Settings
from graftseg.data.augment import Integers, Table

Reals = npt.NDArray[np.float64]
Sides = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Along one axis, memory offset and weight of the voxels below and above a position."""


class WarpSettings(Settings):
    """Probabilities and ranges of the deformations."""

    rotate: float = Field(0.5, ge=0, le=1)  # probability of rotations in the plane of the first two axes and out of it
    degrees: float = Field(30.0, ge=0, le=180)  # largest rotation in the plane of the first two axes
    tilt: float = Field(15.0, ge=0, le=180)  # largest rotation out of this plane, about each of the two axes
    scale: float = Field(0.5, ge=0, le=1)  # probability of scaling
    smallest: float = Field(0.75, gt=0.1, le=1)  # smallest factor of scaling
    largest: float = Field(1.3, ge=1, lt=10)  # largest factor of scaling
    elastic: float = Field(0.2, ge=0, le=1)  # probability of an elastic deformation
    grid: int = Field(32, ge=4, le=MAX_SIDE)  # elastic deformation: largest distance of control points, in voxels
    amount: float = Field(4.0, ge=0, le=100)  # standard deviation of shifts, in voxels (third axis: / ``thickness``)
    mirror: tuple[Annotated[int, Field(ge=0, le=2)], ...] = ()  # axes, each mirrored with a probability of one half
    thickness: float = Field(1.0, gt=0, le=100)  # third spacing relative to the first two, to rotate in millimeters


@dataclass(frozen=True)
class Warp:
    """Drawn maps of a batch."""

    center: Reals  # (B, axes), scan position of the patch center
    linear: Reals  # (B, axes, axes), the matrix A
    control: Reals  # (B, axes, *points), vectors at the control points in scan voxels


def control_points(patch: Sequence[int], distance: int) -> tuple[int, ...]:
    """Return the number of control points of a cubic B-spline per axis: three more than its cells."""
    return tuple(ceil(n / distance) + 3 for n in patch)


def undeformed(start: Integers, patch: Sequence[int], settings: WarpSettings) -> Warp:
    """Return the maps of crops that start at these voxels ``(B, axes)`` without any deformation."""
    count, axes = start.shape
    linear = np.repeat(np.eye(axes)[None], count, axis=0)
    control = np.zeros((count, axes, *control_points(patch, settings.grid)))
    return Warp(start + (np.asarray(patch) - 1) / 2, linear, control)


def draw_warp(rng: np.random.Generator, start: Integers, patch: Sequence[int], settings: WarpSettings) -> Warp:
    """Draw a deformation around the center of every crop; ``start`` ``(B, axes)`` are the first voxels."""
    count, axes = start.shape
    plain = undeformed(start, patch, settings)
    linear = np.stack([_draw_linear(rng, axes, settings) for _ in range(count)])
    size = np.ones(axes)
    size[2:] = settings.thickness
    control = plain.control
    for vectors in control:
        if rng.random() < settings.elastic:
            vectors[:] = rng.standard_normal(vectors.shape) * settings.amount / size.reshape(-1, *[1] * axes)
    return Warp(plain.center, linear, control)


def stretch_warp(warp: Warp, shapes: Integers, scale: Table) -> Warp:
    """Return maps that stretch whole slices to the patch: ``scale`` ``(B, 2)`` is the slice voxels per patch voxel."""
    return Warp((shapes - 1) / 2, warp.linear * scale[:, :, None], warp.control * scale[:, :, None, None])


def _draw_linear(rng: np.random.Generator, axes: int, settings: WarpSettings) -> Reals:
    """Draw A in voxels: mirroring, rotation in millimeters and one factor for all axes."""
    rotation = np.eye(axes)
    if rng.random() < settings.rotate:
        for plane in [(0, 1), (0, 2), (1, 2)][: 1 if axes == 2 else 3]:
            limit = settings.degrees if plane == (0, 1) else settings.tilt
            rotation = rotation @ _rotation(axes, plane, np.deg2rad(rng.uniform(-limit, limit)))
    size = np.ones(axes)
    size[2:] = settings.thickness
    linear = rotation * size / size[:, None]
    if rng.random() < settings.scale:
        # half of the scaled patches are enlarged, the others are reduced; the logarithm of the factor is uniform
        low, high = np.log(settings.smallest), np.log(settings.largest)
        linear = linear / np.exp(rng.uniform(low, 0) if rng.random() < 0.5 else rng.uniform(0, high))
    for axis in settings.mirror:
        if rng.random() < 0.5:
            linear[:, axis] *= -1
    return linear


def _rotation(axes: int, plane: tuple[int, int], angle: float) -> Reals:
    a, b = plane
    rotation = np.eye(axes)
    rotation[a, a] = rotation[b, b] = np.cos(angle)
    rotation[a, b], rotation[b, a] = np.sin(angle), -np.sin(angle)
    return rotation


def warp_table(warp: Warp, shapes: Integers, strides: Integers) -> Table:
    """Return the table that ``WarpColumns.of`` splits, from shapes and memory strides ``(B, axes)`` of the scans."""
    count = len(shapes)
    columns = (warp.center, warp.linear.reshape(count, -1), shapes - 1, strides, warp.control.reshape(count, -1))
    return np.concatenate(columns, axis=1, dtype=np.float64)


@dataclass(frozen=True)
class WarpColumns:
    """The columns of a table, in the order of ``warp_table``: those of ``Warp``, and the memory of the scan."""

    center: Tensor
    linear: Tensor
    last: Tensor  # index of the last voxel along each axis
    stride: Tensor  # distance of neighboring voxels in memory
    control: Tensor

    @classmethod
    def of(cls, table: Tensor, patch: Sequence[int], distance: int) -> "WarpColumns":
        """Split a table. ``distance`` is the maximum distance of control points, in voxels."""
        axes, points = len(patch), control_points(patch, distance)
        parts = table.split_with_sizes([axes, axes * axes, axes, axes, axes * prod(points)], dim=1)
        center, linear, last, stride, control = parts
        shape = (-1, axes, *points)
        return cls(center.float(), linear.float().view(-1, axes, axes), last, stride, control.float().view(shape))

    def positions(self, patch: Sequence[int]) -> list[Tensor]:
        """Return the scan position of every patch voxel along each axis, ``(B, *patch)`` float32."""
        device, axes = self.center.device, len(patch)
        displacement = self.control
        for n in patch:
            # each product contracts the first remaining axis of control points and appends an axis of voxels
            weights = spline_weights(n, displacement.shape[2], device)
            displacement = torch.tensordot(displacement, weights, dims=([2], [1]))
        from_center = []  # distance of patch voxels from the patch center along each axis, broadcast to the patch
        for axis, n in enumerate(patch):
            steps = torch.arange(n, device=device, dtype=torch.float32) - (n - 1) / 2
            from_center.append(steps.view([-1] + [1] * (axes - 1 - axis)))
        per_sample = [-1] + [1] * axes
        positions = []
        for axis in range(axes):
            position = displacement[:, axis] + self.center[:, axis].view(per_sample)
            for other in range(axes):
                position = position + self.linear[:, axis, other].view(per_sample) * from_center[other]
            positions.append(position)
        return positions


def spline_weights(size: int, points: int, device: torch.device) -> Tensor:
    """Return the weights ``(size, points)`` of control points at voxels, computed without a copy from the host."""
    cells = points - 3
    voxels = torch.arange(size, device=device, dtype=torch.float32) * (cells / size)
    centers = torch.arange(points, device=device, dtype=torch.float32) - 1
    distance = (voxels[:, None] - centers).abs()
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = (2 - distance).clamp(min=0) ** 3 / 6
    return torch.where(distance < 1, near, far)


def sample_image(memory: Tensor, offsets: Tensor, warp: WarpColumns, positions: Sequence[Tensor]) -> Tensor:
    """Interpolate ``(B, C, *patch)`` float32 linearly. Channels start at ``offsets`` ``(B, C)`` in flat memory."""
    ends = [
        _neighbors(position[:, None], warp.last[:, axis], warp.stride[:, axis])
        for axis, position in enumerate(positions)
    ]
    first = offsets.long().view([*offsets.shape, *[1] * len(positions)])
    nothing, one = torch.zeros((), device=memory.device), torch.ones((), device=memory.device)
    return _with_corners(nothing, memory, ends, first, one)


def _with_corners(values: Tensor, memory: Tensor, ends: Sequence[Sides], index: Tensor, weight: Tensor) -> Tensor:
    """Return ``values`` plus the weighted voxels at all corners: one of the two ``ends`` along each axis."""
    if not ends:
        return torch.addcmul(values, memory.index_select(0, index.flatten()).view(index.shape).float(), weight)
    for offset, share in ends[0]:
        values = _with_corners(values, memory, ends[1:], index + offset, weight * share)
    return values


def _neighbors(position: Tensor, last: Tensor, stride: Tensor) -> Sides:
    """Return the voxels below and above every position along one axis.

    Weights outside the scan are 0. Voxels are counted in float32, which is faster than int64 on a CPU and exact.
    """
    per_sample = [-1] + [1] * (position.dim() - 1)
    last, stride = last.float().view(per_sample), stride.long().view(per_sample)
    below = position.floor()
    fraction = position - below
    ends = []
    for voxel, weight in ((below, 1 - fraction), (below + 1, fraction)):
        clipped = voxel.clamp(min=0).minimum(last)
        ends.append((clipped.long() * stride, torch.where(clipped == voxel, weight, 0)))
    return ends[0], ends[1]


def sample_labels(memory: Tensor, offsets: Tensor, warp: WarpColumns, positions: Sequence[Tensor]) -> Tensor:
    """Return the nearest labels ``(B, *patch)`` int64 from flat memory. Label maps start at ``offsets`` ``(B, 1)``."""
    per_sample = [-1] + [1] * len(positions)
    index, inside = offsets.long().view(per_sample), torch.ones((), dtype=torch.bool, device=memory.device)
    for axis, position in enumerate(positions):
        nearest = (position + 0.5).floor()
        clipped = nearest.clamp(min=0).minimum(warp.last[:, axis].float().view(per_sample))
        index = index + clipped.long() * warp.stride[:, axis].long().view(per_sample)
        inside = inside & (clipped == nearest)
    labels = memory.index_select(0, index.flatten()).view(index.shape)
    return torch.where(inside, labels, 0).long()


def boxes_of_warp(table: Table, patch: Sequence[int], distance: int) -> tuple[Integers, Integers]:
    """Return first voxel and shape of boxes with all voxels that are read. Control points bound the B-spline."""
    warp = WarpColumns.of(torch.from_numpy(table), patch, distance)
    half = torch.tensor([(n - 1) / 2 for n in patch], dtype=torch.float32)
    reach = (warp.linear.abs() * half).sum(dim=2) + warp.control.flatten(2).abs().amax(dim=2)
    zero, end = torch.zeros_like(warp.last), warp.last + 1
    first = (warp.center - reach).floor().sub(1).clamp(min=0).minimum(warp.last.float()).to(torch.int64)
    stop = (warp.center + reach).ceil().add(2).to(torch.int64).maximum(zero.long() + 1).minimum(end.long())
    return first.numpy(), (stop.maximum(first + 1) - first).numpy()
