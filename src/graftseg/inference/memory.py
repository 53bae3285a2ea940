"""How much of the host's memory the prediction of a scan takes at its peak, told before anything is read."""

from math import prod
from pathlib import Path

import torch

from graftseg.core.devices import free_memory
from graftseg.core.errors import Code, UserError
from graftseg.data.grid import Grid
from graftseg.inference.label_maps import Wanted
from graftseg.inference.predictor import Predictor

HOST = torch.device("cpu")
GIB = 2**30

READ = 8
"""Bytes of a voxel as it is read and brought into order, where its file has at most 32 bits."""
SCALED = 12
"""Bytes of a prepared voxel while its intensities are brought to scale, the image itself included."""
IMAGE = 4
"""Bytes of a voxel and channel of the prepared image."""
COMPONENTS = 16
"""Bytes of a voxel while the largest components of its label map are found on the host."""
WRITTEN = 3
"""Copies of a map of bytes that there are while it is turned and written."""
SLABS = 2
"""Slabs of probabilities that there are at once: that under the windows, and the one that leaves it."""
NETWORK = 350
"""Bytes of a voxel of a window on its way through a network of the usual width."""


def host_bytes(grid: Grid, channels: int, predictor: Predictor, wanted: Wanted) -> int:
    """The most bytes, about, that a scan takes while it is read, prepared, predicted and written.

    On a GPU, the windows and the search for components take its memory instead, which is not counted.
    """
    source, prepared = prod(grid.source_shape), prod(grid.prepared_shape)
    reading = channels * (READ * source + SCALED * prepared)
    image = channels * IMAGE * prepared
    maps = source * (1 + predictor.classes * wanted.probabilities + wanted.uncertainty)
    on_host = predictor.device.type == "cpu"
    channels_out = predictor.classes * (2 if wanted.uncertainty and predictor.doubt is not None else 1) + 1
    windows = image + maps + on_host * (channels_out * _slab_bytes(grid, predictor) + _window_bytes(predictor))
    components = image + maps + on_host * bool(predictor.settings.largest_component) * COMPONENTS * source
    return max(reading, windows, components, image + WRITTEN * maps)


def check_memory(grid: Grid, channels: int, predictor: Predictor, wanted: Wanted, where: Path) -> None:
    """Refuse a scan that the host's free memory cannot hold."""
    needed, free = host_bytes(grid, channels, predictor, wanted), free_memory(HOST)
    if needed <= free:
        return
    finding = f"takes about {needed / GIB:.1f} GiB of memory and {free / GIB:.1f} GiB are free"
    fewer = "leave out --probabilities and --uncertainty, " if wanted.probabilities or wanted.uncertainty else ""
    raise UserError(
        Code.RECIPE_MISMATCH, where, finding, f"{fewer}close other programs, cut the scan or use a larger machine"
    )


def _window_bytes(predictor: Predictor) -> int:
    """Values within the network, of the windows that pass through it together."""
    return NETWORK * predictor.settings.windows_per_forward * prod(predictor.patch)


def _slab_bytes(grid: Grid, predictor: Predictor) -> int:
    """One channel under the windows: a patch deep along the first axis, or a few slices."""
    if len(predictor.patch) < len(grid.prepared_shape):
        depth, plane = predictor.settings.windows_per_forward, prod(grid.prepared_shape[:2])
    else:
        depth, plane = predictor.patch[0], prod(grid.prepared_shape[1:])
    return SLABS * 4 * depth * plane
