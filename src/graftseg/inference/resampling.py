"""Resampling of probabilities to the resolution of the scan, and of slices to the size of the patch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.data.augment import stretching
from graftseg.inference.sliding_window import PLANES_AT_ONCE, Segment, Slabs
from graftseg.recipes.settings import InferenceSettings


@dataclass(frozen=True)
class Axis:
    """Linear interpolation along an axis, for each scan voxel."""

    lower: NDArray[np.int64]  # index of the prepared voxel before the scan voxel
    upper: NDArray[np.int64]  # index of the prepared voxel after it
    fraction: NDArray[np.float32]  # weight of the upper voxel

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def is_identity(self) -> bool:
        """Return whether scan voxels and prepared voxels coincide."""
        return not self.fraction.any() and np.array_equal(self.lower, np.arange(self.upper[-1] + 1))

    def part(self, begin: int, end: int, offset: int) -> "Axis":
        """Return the interpolation to the scan voxels from ``begin`` to ``end``, from prepared voxel ``offset`` on."""
        selected = slice(begin, end)
        return Axis(self.lower[selected] - offset, self.upper[selected] - offset, self.fraction[selected])

    def interpolate(self, values: Tensor, dim: int) -> Tensor:
        """Interpolate values at the prepared voxels along ``dim`` to the scan voxels."""
        lower, upper = (torch.from_numpy(index).to(values.device) for index in (self.lower, self.upper))
        shape = [-1 if axis == dim else 1 for axis in range(values.ndim)]
        fraction = torch.from_numpy(self.fraction).to(values.device).reshape(shape)
        return torch.lerp(values.index_select(dim, lower), values.index_select(dim, upper), fraction)


def axis_of(coordinates: NDArray[np.float64], size: int) -> Axis:
    """Return the interpolation from ``size`` prepared voxels to coordinates. Coordinates outside are clipped."""
    clamped = np.clip(coordinates, 0, size - 1)
    lower = np.floor(clamped).astype(np.int64)
    return Axis(lower, np.minimum(lower + 1, size - 1), (clamped - lower).astype(np.float32))


def at_source_resolution(slabs: Slabs, axes: Sequence[Axis]) -> Slabs:
    """Interpolate slabs ``(K, n, *rest)`` from the prepared grid to the scan's resolution. Axes keep their order."""
    thin_slabs = _interpolated_in_planes(slabs, axes[1:])
    return thin_slabs if axes[0].is_identity else _interpolated_between_planes(thin_slabs, axes[0])


def _interpolated_in_planes(slabs: Slabs, axes: Sequence[Axis]) -> Slabs:
    for start, slab in slabs:
        for offset in range(0, slab.shape[1], PLANES_AT_ONCE):
            planes = slab[:, offset : offset + PLANES_AT_ONCE]
            for dim, axis in enumerate(axes, start=2):
                planes = planes if axis.is_identity else axis.interpolate(planes, dim)
            yield start + offset, planes


def _interpolated_between_planes(slabs: Slabs, axis: Axis) -> Slabs:
    """Interpolate between planes. Keep the last plane of each slab for the scan planes between two slabs."""
    done, last_plane = 0, None
    for start, slab in slabs:
        planes = slab if last_plane is None else torch.cat([last_plane, slab], dim=1)
        first, end = start + slab.shape[1] - planes.shape[1], start + slab.shape[1]
        ready = int(np.searchsorted(axis.upper, end))
        if ready > done:
            yield done, axis.part(done, ready, offset=first).interpolate(planes, dim=1)
        done, last_plane = ready, slab[:, -1:].clone()


@torch.inference_mode()
def stretched_slabs(
    segment: Segment, image: Tensor, patch: tuple[int, ...], settings: InferenceSettings, *, device: torch.device
) -> Slabs:
    """Resize slices of ``(C, X, Y, slices)`` to the patch. Yield first indices and probabilities ``(K, n, *patch)``."""
    slices = image.movedim(-1, 0)
    for start in range(0, len(slices), settings.windows_per_forward):
        batch = slices[start : start + settings.windows_per_forward].to(device).float()
        yield start, segment(stretched(batch, patch)).float().movedim(1, 0)


def stretched(values: Tensor, size: Sequence[int]) -> Tensor:
    """Resize the last two axes of ``(..., X, Y)`` by nearest neighbor with aligned corners."""
    scale = stretching(np.array([values.shape[-2:]]), size)[0]
    for dim, count, step in zip((-2, -1), size, scale, strict=True):
        index = (torch.arange(count, dtype=torch.float64) * float(step) + 0.5).floor().long()
        values = values.index_select(dim, index.to(values.device))
    return values
