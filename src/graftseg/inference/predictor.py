"""From a prepared image to a label map on the scan's own grid, slab by slab."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.core.devices import free_memory
from graftseg.data.grid import Grid
from graftseg.inference.averaging import over_flips, side_by_side
from graftseg.inference.label_maps import ExtraMaps, Maps, Rules, ScanMaps, check_decision, collected
from graftseg.inference.resampling import at_source_resolution, axis_of, stretched, stretched_slabs
from graftseg.inference.sliding_window import Segment, is_slicewise, probability_slabs, windows_along
from graftseg.ops.components import chosen_classes, largest_components
from graftseg.recipes.settings import InferenceSettings

__all__ = ["ExtraMaps", "Predictor", "ScanMaps", "Segment"]

Fit = Literal["crop", "stretch"]
LABELS_ALONE = ExtraMaps()


@dataclass(frozen=True)
class Predictor:
    """A network and all that its use on whole scans needs.

    ``segment`` gives probabilities of ``classes`` classes for windows of ``patch`` voxels on ``device``. Uncertainty is
    that of these probabilities, or of those by ``doubt`` where it is given. ``tell`` is called with the number of
    windows, or slices, that were just predicted.

    Probabilities, not labels, are interpolated (linearly, clamped at the edges) to the scan's resolution,
    then decided. With equal resolutions nothing is interpolated. Full-size probabilities never exist. The image
    lies on ``device`` meanwhile, if there is room, and the labels leave it once, when they are whole.

    With ``fit`` ``stretch`` there are no windows: slices are stretched to the patch, labels are decided there, and
    labels are brought back, first to the size of the slice and then to the scan's resolution, nearest voxel each.
    """

    segment: Segment
    patch: tuple[int, ...]
    settings: InferenceSettings
    classes: int
    device: torch.device
    fit: Fit = "crop"
    doubt: Segment | None = None
    tell: Callable[[int], None] | None = None

    def labels(self, image: Tensor, grid: Grid) -> NDArray[np.uint8]:
        """Label map of ``grid.source_shape`` for an image ``(C, *grid.prepared_shape)``, on the device or not."""
        return self.maps(image, grid).labels

    def maps(self, image: Tensor, grid: Grid, wanted: ExtraMaps = LABELS_ALONE) -> ScanMaps:
        """The same label map and what else is wanted."""
        return self._prepared(image, grid, wanted).on_scan(grid)

    def prepared_labels(self, image: Tensor, grid: Grid) -> Tensor:
        """The label map, uint8, still on the device and along the axes of the prepared image."""
        return self._prepared(image, grid, LABELS_ALONE).labels

    def windows_in(self, shape: tuple[int, ...]) -> int:
        """How many windows, or slices, a prepared image of this shape takes."""
        slices = prod(shape[2:]) if len(self.patch) == 2 else 1
        if self.fit == "stretch":
            return slices
        return slices * prod(map(len, windows_along(shape[: len(self.patch)], self.patch, self.settings)))

    @torch.inference_mode()
    def _prepared(self, image: Tensor, grid: Grid, wanted: ExtraMaps) -> Maps:
        if tuple(image.shape[1:]) != grid.prepared_shape:
            raise ValueError(f"an image of {tuple(image.shape[1:])} voxels for a grid of {grid.prepared_shape}")
        check_decision(self.settings, self.classes)
        predict = self._by_stretching if self.fit == "stretch" else self._by_windows
        maps = predict(_placed(image, self.device), grid, wanted)
        rule = self.settings.largest_component
        if not rule:
            return maps
        return maps.cleaned(largest_components(maps.labels[None], self.classes, only=chosen_classes(rule))[0])

    def _by_windows(self, image: Tensor, grid: Grid, wanted: ExtraMaps) -> Maps:
        slab_axis = image.ndim - 2 if is_slicewise(image, self.patch) else 0
        axes = [axis_of(grid.coordinates(axis), size) for axis, size in enumerate(grid.prepared_shape)]
        axes.insert(0, axes.pop(slab_axis))
        slabs = probability_slabs(self._used(wanted), image, self.patch, self.settings, device=self.device)
        maps = collected(at_source_resolution(slabs, axes), [len(axis) for axis in axes], self._rules(wanted))
        first, last = -len(axes), slab_axis - len(axes)
        return maps.moved(lambda values: values.movedim(first, last).contiguous())

    def _by_stretching(self, image: Tensor, grid: Grid, wanted: ExtraMaps) -> Maps:
        volume = image if is_slicewise(image, self.patch) else image[..., None]
        slabs = stretched_slabs(self._used(wanted), volume, self.patch, self.settings, device=self.device)
        maps = collected(slabs, [volume.shape[-1], *self.patch], self._rules(wanted))

        def brought_back(values: Tensor) -> Tensor:
            values = stretched(values, volume.shape[1:3]).movedim(-3, -1)
            values = values.reshape(*values.shape[:-3], *image.shape[1:])
            return _nearest(values, grid)

        return maps.moved(brought_back)

    def _used(self, wanted: ExtraMaps) -> Segment:
        """The network with the flips that are asked for and, where need be, what tells of its doubt; counted."""
        segment = over_flips(self.segment) if self.settings.flips else self.segment
        if wanted.uncertainty and self.doubt is not None:
            segment = side_by_side(segment, self.doubt)
        tell = self.tell
        if tell is None:
            return segment

        def told(images: Tensor) -> Tensor:
            probabilities = segment(images)
            tell(len(images))
            return probabilities

        return told

    def _rules(self, wanted: ExtraMaps) -> Rules:
        return Rules(self.settings, self.classes, self.device, wanted, doubted=self.doubt is not None)


def _nearest(values: Tensor, grid: Grid) -> Tensor:
    """Values ``(..., *prepared)`` at the scan's resolution, each voxel that of the nearest prepared one."""
    axes = len(grid.prepared_shape)
    for axis, size in enumerate(grid.prepared_shape):
        if size != grid.oriented_shape[axis]:
            nearest = np.clip(np.floor(grid.coordinates(axis) + 0.5), 0, size - 1).astype(np.int64)
            values = values.index_select(axis - axes, torch.from_numpy(nearest).to(values.device))
    return values.contiguous()


def _placed(image: Tensor, device: torch.device) -> Tensor:
    """The image on the device, so that no window waits for it; where it is by far too large, as it is."""
    if device.type == "cpu" or image.nbytes > free_memory(device) // 4:
        return image
    return image.to(device)
