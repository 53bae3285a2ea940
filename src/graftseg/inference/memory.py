"""Estimate of the main memory that the prediction of a scan needs."""

from math import prod
from pathlib import Path

import torch

from graftseg.core.devices import free_memory
from graftseg.core.errors import Code, UserError
from graftseg.data.grid import Grid
from graftseg.inference.label_maps import ExtraMaps
from graftseg.inference.predictor import Predictor
from graftseg.inference.sliding_window import windows_at_once

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


def host_bytes(grid: Grid, channels: int, predictor: Predictor, extras: ExtraMaps) -> int:
    """Estimate the peak of main memory while a scan is read, prepared, predicted and written.

    On a GPU, windows and largest components need GPU memory, which is not counted.
    """
    source, prepared = prod(grid.source_shape), prod(grid.prepared_shape)
    reading = channels * (READING_BYTES * source + SCALING_BYTES * prepared)
    image = channels * IMAGE_BYTES * prepared
    maps = source * (1 + predictor.classes * extras.probabilities + extras.uncertainty)
    windows = components = image + maps
    settings = predictor.settings
    is_on_host = predictor.device.type == "cpu"
    if is_on_host:
        has_second_segment = extras.uncertainty and predictor.uncertainty_segment is not None
        windows += predictor.classes * (2 if has_second_segment else 1) * _slab_bytes(grid, predictor)
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


def _slab_bytes(grid: Grid, predictor: Predictor) -> int:
    """Return the bytes of all slabs in memory, per channel.

    A slab has ``patch[0]`` planes or, with 2-D patches, the slices of one forward pass.
    """
    if len(predictor.patch) < len(grid.prepared_shape):
        depth, plane = predictor.settings.windows_per_forward, prod(grid.prepared_shape[:2])
    else:
        depth, plane = predictor.patch[0], prod(grid.prepared_shape[1:])
    return SLABS * 4 * depth * plane
