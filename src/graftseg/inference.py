"""From a prepared image to a label map on the scan's own grid, slab by slab."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.components import largest_components
from graftseg.data.grid import Grid, to_source_axes
from graftseg.environment import free_memory
from graftseg.errors import UserError
from graftseg.stretched import stretched, stretched_slabs
from graftseg.windows import InferenceSettings, Segment, is_slicewise, probability_slabs, window_starts

__all__ = ["InferenceSettings", "Segment", "predict_labels", "predict_prepared", "probability_slabs", "window_starts"]

Fit = Literal["crop", "stretch"]

THIN = 8
"""Planes of a slab that are brought to the scan's resolution together, which bounds the memory this takes."""


@torch.inference_mode()
def predict_labels(
    segment: Segment,
    image: Tensor,
    grid: Grid,
    *,
    patch: tuple[int, ...],
    settings: InferenceSettings,
    classes: int,
    device: torch.device | str,
    fit: Fit = "crop",
) -> NDArray[np.uint8]:
    """Label map of ``grid.source_shape`` for an image ``(C, *grid.prepared_shape)``, on ``device`` or not.

    Probabilities, not labels, are interpolated (linearly, clamped at the edges) to the scan's resolution,
    then decided. With equal resolutions nothing is interpolated. Full-size probabilities never exist. The image
    lies on ``device`` meanwhile, if there is room, and the labels leave it once, when they are whole.

    With ``fit`` ``stretch`` there are no windows: slices are stretched to the patch, labels are decided there, and
    labels are brought back, first to the size of the slice and then to the scan's resolution, nearest voxel each.
    """
    labels = predict_prepared(
        segment, image, grid, patch=patch, settings=settings, classes=classes, device=device, fit=fit
    )
    return to_source_axes(labels.cpu().numpy(), grid)


@torch.inference_mode()
def predict_prepared(
    segment: Segment,
    image: Tensor,
    grid: Grid,
    *,
    patch: tuple[int, ...],
    settings: InferenceSettings,
    classes: int,
    device: torch.device | str,
    fit: Fit = "crop",
) -> Tensor:
    """The same label map, uint8, still on the device and along the axes of the prepared image."""
    if tuple(image.shape[1:]) != grid.prepared_shape:
        raise ValueError(f"an image of {tuple(image.shape[1:])} voxels for a grid of {grid.prepared_shape}")
    _check_decision(settings, classes)
    device = torch.device(device)
    predict = _by_stretching if fit == "stretch" else _by_windows
    labels = predict(segment, _placed(image, device), grid, patch, settings, classes, device)
    if settings.largest_component:
        labels = largest_components(labels[None], classes)[0]
    return labels


def _by_windows(
    segment: Segment,
    image: Tensor,
    grid: Grid,
    patch: tuple[int, ...],
    settings: InferenceSettings,
    classes: int,
    device: torch.device,
) -> Tensor:
    slab_axis = image.ndim - 2 if is_slicewise(image, patch) else 0
    axes = [_axis(grid.coordinates(axis), size) for axis, size in enumerate(grid.prepared_shape)]
    axes.insert(0, axes.pop(slab_axis))
    slabs = probability_slabs(segment, image, patch, settings, device=device)
    decided = _decided(_at_source_resolution(slabs, axes), [len(axis) for axis in axes], settings, classes, device)
    return decided.movedim(0, slab_axis).contiguous()


def _by_stretching(
    segment: Segment,
    image: Tensor,
    grid: Grid,
    patch: tuple[int, ...],
    settings: InferenceSettings,
    classes: int,
    device: torch.device,
) -> Tensor:
    volume = image if is_slicewise(image, patch) else image[..., None]
    slabs = stretched_slabs(segment, volume, patch, settings, device=device)
    decided = _decided(slabs, [volume.shape[-1], *patch], settings, classes, device)
    labels = stretched(decided, volume.shape[1:3]).movedim(0, -1).reshape(image.shape[1:])
    for axis, size in enumerate(grid.prepared_shape):
        if size != grid.oriented_shape[axis]:
            nearest = np.clip(np.floor(grid.coordinates(axis) + 0.5), 0, size - 1).astype(np.int64)
            labels = labels.index_select(axis, torch.from_numpy(nearest).to(device))
    return labels.contiguous()


def _decided(
    slabs: Iterable[tuple[int, Tensor]],
    shape: Sequence[int],
    settings: InferenceSettings,
    classes: int,
    device: torch.device,
) -> Tensor:
    """The labels of slabs ``(K, n, *rest)``, which cover ``shape`` once; none of them waits for the host."""
    labels = torch.empty(tuple(shape), dtype=torch.uint8, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    for start, probabilities in slabs:
        finite &= probabilities.isfinite().all()
        labels[start : start + probabilities.shape[1]] = decide(probabilities, settings, classes)
    _check_finite(finite)
    return labels


@dataclass(frozen=True)
class _Axis:
    """For each voxel of the scan along an axis: the prepared voxels below and above, and how far up it is."""

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    fraction: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def is_same(self) -> bool:
        """Whether the voxels of the scan are the prepared ones."""
        return not self.fraction.any() and np.array_equal(self.lower, np.arange(self.upper[-1] + 1))

    def part(self, begin: int, end: int, offset: int) -> "_Axis":
        """The scan's voxels from ``begin`` to ``end``, prepared voxels counted from ``offset``."""
        picked = slice(begin, end)
        return _Axis(self.lower[picked] - offset, self.upper[picked] - offset, self.fraction[picked])

    def interpolate(self, values: Tensor, dim: int) -> Tensor:
        """Values at the prepared voxels along ``dim`` -> values at the scan's voxels."""
        lower, upper = (torch.from_numpy(index).to(values.device) for index in (self.lower, self.upper))
        shape = [-1 if axis == dim else 1 for axis in range(values.ndim)]
        fraction = torch.from_numpy(self.fraction).to(values.device).reshape(shape)
        return torch.lerp(values.index_select(dim, lower), values.index_select(dim, upper), fraction)


def _axis(coordinates: NDArray[np.float64], size: int) -> _Axis:
    clamped = np.clip(coordinates, 0, size - 1)
    lower = np.floor(clamped).astype(np.int64)
    return _Axis(lower, np.minimum(lower + 1, size - 1), (clamped - lower).astype(np.float32))


def _at_source_resolution(slabs: Iterable[tuple[int, Tensor]], axes: Sequence[_Axis]) -> Iterator[tuple[int, Tensor]]:
    """Slabs ``(K, n, *rest)`` on the prepared grid -> slabs on the scan's grid, in the same order of axes."""
    thin = _interpolated_across(slabs, axes[1:])
    return thin if axes[0].is_same else _interpolated_along(thin, axes[0])


def _interpolated_across(slabs: Iterable[tuple[int, Tensor]], axes: Sequence[_Axis]) -> Iterator[tuple[int, Tensor]]:
    for start, slab in slabs:
        for offset in range(0, slab.shape[1], THIN):
            thin = slab[:, offset : offset + THIN]
            for dim, axis in enumerate(axes, start=2):
                thin = thin if axis.is_same else axis.interpolate(thin, dim)
            yield start + offset, thin


def _interpolated_along(slabs: Iterable[tuple[int, Tensor]], axis: _Axis) -> Iterator[tuple[int, Tensor]]:
    """Interpolate between planes; a slab's last plane is kept for those that lie before the next slab."""
    done, kept = 0, None
    for start, slab in slabs:
        known = slab if kept is None else torch.cat([kept, slab], dim=1)
        first, end = start + slab.shape[1] - known.shape[1], start + slab.shape[1]
        ready = int(np.searchsorted(axis.upper, end))
        if ready > done:
            yield done, axis.part(done, ready, offset=first).interpolate(known, dim=1)
        done, kept = ready, slab[:, -1:].clone()


def _check_decision(settings: InferenceSettings, classes: int) -> None:
    if settings.decision == "threshold" and classes != 2:
        raise UserError(
            "inference.decision",
            f"a threshold decides between two classes and there are {classes}",
            "use argmax",
        )
    if classes > 256:
        raise UserError("classes", f"{classes} classes, of which a label map holds 256", "merge some of them")


def _placed(image: Tensor, device: torch.device) -> Tensor:
    """The image on the device, so that no window waits for it; where it is by far too large, as it is."""
    if device.type == "cpu" or image.nbytes > free_memory(device) // 4:
        return image
    return image.to(device)


def _check_finite(finite: Tensor) -> None:
    if not finite:
        raise UserError(
            "prediction",
            "the network gives probabilities that are not finite",
            "check the scan's intensities and the run's losses, or predict in full precision",
        )


def decide(probabilities: Tensor, settings: InferenceSettings, classes: int) -> Tensor:
    """Probabilities ``(K, *space)`` -> labels ``(*space)``; of equally probable classes the lowest."""
    if len(probabilities) != classes:
        raise ValueError(f"the network gives {len(probabilities)} classes instead of {classes}")
    if settings.decision == "threshold":
        return (probabilities[1] > 0.5).to(torch.uint8)
    return probabilities.argmax(dim=0).to(torch.uint8)
