"""Prediction of a prepared image slab by slab, label maps on the grid of the scan, and the memory that is needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.memory import free_memory, reused_memory
from graftseg.data.grid import Grid, to_source_axes
from graftseg.inference.bf16 import Bf16RejectedError, Bf16Segment
from graftseg.inference.combined_networks import over_flips, stack_channels
from graftseg.inference.label_maps import (
    LABELS_ONLY,
    ExtraMaps,
    PreparedMaps,
    ScanMaps,
    UncertaintyAccumulator,
    check_decision,
    clean_labels,
    decide_labels,
    to_levels,
)
from graftseg.inference.resampling import at_source_resolution, axis_of, stretched, stretched_slabs
from graftseg.inference.sliding_window import (
    Fit,
    Segment,
    Slabs,
    is_slicewise,
    probability_slabs,
    window_count,
    windows_at_once,
)
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import InferenceSettings

HOST = torch.device("cpu")
GIB = 2**30
READING_BYTES = 8  # bytes per voxel while a scan of at most 32 bits per voxel is read and reoriented
SCALING_BYTES = 12  # bytes per prepared voxel while intensities are normalized, including the image itself
IMAGE_BYTES = 4  # bytes per voxel and channel of the prepared image
COMPONENT_BYTES = 16  # bytes per voxel while the largest components are found on the host
WRITING_COPIES = 3
"""Number of copies of an output map (one byte per voxel) that exist while it is reordered and written."""
SLABS = 2  # number of slabs of probabilities in memory at once: the current slab and the last finished slab
NETWORK_BYTES = 350  # bytes that a network of the default width needs for each voxel of a window


@dataclass(frozen=True)
class Predictor:
    """A network with everything needed to predict whole scans.

    Probabilities are computed in slabs, which limits the memory. They are interpolated linearly to the resolution of
    the scan before labels are decided. With the fit ``stretch``, slices are resized to the patch, labels are decided at
    the size of the patch, and the labels are resized by nearest neighbor, first to the slice and then to the scan.
    """

    segment: Segment  # network that returns probabilities of windows
    patch: tuple[int, ...]  # size of a window in voxels
    settings: InferenceSettings
    classes: int  # number of classes with the background
    device: torch.device  # device of the network; the image is moved there if it fits
    fit: Fit = "crop"
    uncertainty_segment: Segment | None = None  # network for the uncertainty, by default ``segment``
    flip_axes: tuple[int, ...] | None = None  # axes along which ``settings.flips`` flips windows, by default all
    on_windows: Callable[[int], None] | None = None  # called with the number of windows of each forward pass

    @classmethod
    def for_recipe(
        cls,
        recipe: Recipe,
        segment: Segment,
        classes: int,
        device: torch.device,
        settings: InferenceSettings | None = None,
    ) -> "Predictor":
        """Return a predictor with the windows of a recipe. ``settings`` are by default those of the recipe."""
        batches = recipe.batches
        return cls(segment, batches.patch, settings or recipe.inference, classes, device, batches.fit)

    def maps(self, image: Tensor, grid: Grid, extras: ExtraMaps = LABELS_ONLY) -> ScanMaps:
        """Return the maps of an image ``(C, *grid.prepared_shape)``, on any device, in the geometry of the scan."""
        maps = self.prepared_maps(image, grid, extras)
        return maps.transformed(lambda values: to_source_axes(values.cpu().numpy(), grid))

    def windows_in(self, shape: tuple[int, ...]) -> int:
        """Return the number of windows or slices in a prepared image of this shape."""
        return window_count(shape, self.patch, self.settings, self.fit)

    @torch.inference_mode()
    @reused_memory()
    def prepared_maps(self, image: Tensor, grid: Grid, extras: ExtraMaps = LABELS_ONLY) -> PreparedMaps:
        """Return the maps in the axis order of the prepared image."""
        if tuple(image.shape[1:]) != grid.prepared_shape:
            raise ValueError(f"an image of {tuple(image.shape[1:])} voxels for a grid of {grid.prepared_shape}")
        check_decision(self.settings, self.classes)
        predict = self._by_stretching if self.fit == "stretch" else self._by_windows
        if self.device.type != "cpu" and image.nbytes <= free_memory(self.device) // 4:
            image = image.to(self.device)
        if isinstance(self.segment, Bf16Segment):
            self.segment.start(self.windows_in(tuple(image.shape[1:])))
        try:
            maps = predict(image, grid, extras)
        except Bf16RejectedError:
            assert isinstance(self.segment, Bf16Segment)
            self.segment.reject()
            maps = predict(image, grid, extras)
        return replace(maps, labels=clean_labels(maps.labels, self.settings, self.classes, grid.source_voxel_ml))

    def _by_windows(self, image: Tensor, grid: Grid, extras: ExtraMaps) -> PreparedMaps:
        slab_axis = image.ndim - 2 if is_slicewise(image, self.patch) else 0
        axes = [axis_of(grid.coordinates(axis), size) for axis, size in enumerate(grid.prepared_shape)]
        axes.insert(0, axes.pop(slab_axis))
        slabs = probability_slabs(
            self._segment_with_extras(extras), image, self.patch, self.settings, device=self.device
        )
        maps = self.collect(at_source_resolution(slabs, axes), [len(axis) for axis in axes], extras)
        first, last = -len(axes), slab_axis - len(axes)
        return maps.transformed(lambda values: values.movedim(first, last).contiguous())

    def _by_stretching(self, image: Tensor, grid: Grid, extras: ExtraMaps) -> PreparedMaps:
        volume = image if is_slicewise(image, self.patch) else image[..., None]
        slabs = stretched_slabs(
            self._segment_with_extras(extras), volume, self.patch, self.settings, device=self.device
        )
        maps = self.collect(slabs, [volume.shape[-1], *self.patch], extras)

        def resize_back(values: Tensor) -> Tensor:
            values = stretched(values, volume.shape[1:3]).movedim(-3, -1)
            return _nearest(values.reshape(*values.shape[:-3], *image.shape[1:]), grid)

        return maps.transformed(resize_back)

    def collect(self, slabs: Slabs, shape: Sequence[int], extras: ExtraMaps) -> PreparedMaps:
        """Compute the maps of slabs ``(K, n, *rest)`` that cover ``shape`` once.

        If the slabs have two groups of K channels, the uncertainty is computed from the second group. If only labels
        are requested, nothing is copied to main memory between slabs.
        """
        space, classes = tuple(shape), self.classes
        labels = torch.empty(space, dtype=torch.uint8, device=self.device)
        probabilities = torch.empty((classes, *space), dtype=torch.uint8) if extras.probabilities else None
        uncertainty = UncertaintyAccumulator(space, self.device) if extras.uncertainty else None
        has_two_groups = uncertainty is not None and self.uncertainty_segment is not None
        is_finite = torch.ones((), dtype=torch.bool, device=self.device)
        for start, channels in slabs:
            here = slice(start, start + channels.shape[1])
            is_finite &= channels.sum().isfinite()  # a sum is faster than a test of every voxel
            first, second = (channels[:classes], channels[classes:]) if has_two_groups else (channels, channels)
            labels[here] = decide_labels(first, self.settings, classes)
            if probabilities is not None:
                probabilities[:, here] = to_levels(first).cpu()
            if uncertainty is not None:
                uncertainty.add(here, second)
        if not is_finite:
            finding = "the network returns probabilities that are not finite"
            remedy = "check the scan's intensities and the run's losses, or add --set inference.precision=float32"
            raise UserError(Code.LOSS_NOT_FINITE, "prediction", finding, remedy)
        if uncertainty is None:
            return PreparedMaps(labels, probabilities)
        return PreparedMaps(labels, probabilities, uncertainty.map, uncertainty.mean())

    def _segment_with_extras(self, extras: ExtraMaps) -> Segment:
        """Return the network with flips and uncertainty channels, if requested, and with calls of ``on_windows``."""
        segment = over_flips(self.segment, self.flip_axes) if self.settings.flips else self.segment
        if extras.uncertainty and self.uncertainty_segment is not None:
            segment = stack_channels(segment, self.uncertainty_segment)

        def with_progress(images: Tensor) -> Tensor:
            probabilities = segment(images)
            if self.on_windows is not None:
                self.on_windows(len(images))
            return probabilities

        return with_progress


def _nearest(values: Tensor, grid: Grid) -> Tensor:
    """Resize values ``(..., *prepared)`` to the resolution of the scan by nearest neighbor."""
    axes = len(grid.prepared_shape)
    for axis, size in enumerate(grid.prepared_shape):
        if size != grid.oriented_shape[axis]:
            nearest = np.clip(np.floor(grid.coordinates(axis) + 0.5), 0, size - 1).astype(np.int64)
            values = values.index_select(axis - axes, torch.from_numpy(nearest).to(values.device))
    return values.contiguous()


def host_bytes(grid: Grid, channels: int, predictor: Predictor, extras: ExtraMaps) -> int:
    """Estimate the peak of main memory (not of GPU memory) while a scan is read, prepared, predicted and written."""
    source, prepared = prod(grid.source_shape), prod(grid.prepared_shape)
    reading = channels * (READING_BYTES * source + SCALING_BYTES * prepared)
    image = channels * IMAGE_BYTES * prepared
    maps = source * (1 + predictor.classes * extras.probabilities + extras.uncertainty)
    windows = components = image + maps
    settings = predictor.settings
    is_on_host = predictor.device.type == "cpu"
    if is_on_host:
        segments = 2 if extras.uncertainty and predictor.uncertainty_segment is not None else 1
        if len(predictor.patch) < len(grid.prepared_shape):
            slab = settings.windows_per_forward * prod(grid.prepared_shape[:2])
        else:
            slab = predictor.patch[0] * prod(grid.prepared_shape[1:])
        windows += predictor.classes * segments * SLABS * 4 * slab
        count = windows_at_once(predictor.patch, settings, predictor.device)
        windows += NETWORK_BYTES * count * prod(predictor.patch)
    if settings.filtered_classes or (is_on_host and settings.largest_component):
        components += COMPONENT_BYTES * source
    return max(reading, windows, components, image + WRITING_COPIES * maps)


def check_memory(grid: Grid, channels: int, predictor: Predictor, extras: ExtraMaps, where: str | Path) -> None:
    """Raise an error if a scan needs more main memory than is free."""
    needed, free = host_bytes(grid, channels, predictor, extras), free_memory(HOST)
    if needed <= free:
        return
    finding = f"needs about {needed / GIB:.1f} GiB of memory, but only {free / GIB:.1f} GiB are free"
    fewer_maps = "leave out --probabilities and --uncertainty, " if extras.probabilities or extras.uncertainty else ""
    remedy = f"{fewer_maps}close other programs, crop the scan or use a larger machine"
    raise UserError(Code.OUT_OF_MEMORY, where, finding, remedy)
