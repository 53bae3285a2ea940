"""A stream of cases in flat device memory, from which patches are gathered."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.data.augment import Draw, Integers, Table, rows_of, table_of
from graftseg.data.store import Store, StoredCase
from graftseg.data.warp import Warp, WarpColumns, WarpSettings, sample_image, sample_labels, warp_table


class Stream:
    """The cases of one stream in flat memory. Each sample is drawn from one unit: a volume, or a slice in 2-D.

    A batch is gathered in rows (see ``rows_of``), each as long as the patch depth. The memory is padded with one row of
    zeros at both ends, because rows may start before the first scan or end after the last scan.
    """

    def __init__(
        self,
        store: Store,
        cases: Sequence[StoredCase],
        patch: Sequence[int],
        *,
        labels: bool,
        device: torch.device,
        warp: WarpSettings | None = None,
    ) -> None:
        self.point_distance = None if warp is None else warp.grid
        self.patch, self.depth, self.device = patch, prod(patch[2:]), device
        self.names, self.channels = [case.name for case in cases], cases[0].channels
        units = [_units(index, case.shape, len(patch)) for index, case in enumerate(cases)]
        self.case_of, self.shapes, self.strides, self.first = (
            np.concatenate(part) for part in zip(*units, strict=True)
        )
        voxels = np.array([prod(case.shape) for case in cases], dtype=np.int64)
        images, maps = offsets(voxels, self.channels, self.depth)
        self.image_offset = images[self.case_of] + self.first[:, None]
        self.label_offset = maps[self.case_of] + self.first
        self._open(store, cases, labels)

    def _open(self, store: Store, cases: Sequence[StoredCase], labels: bool) -> None:
        for case in cases:
            store.verify_file(case, case.image)
        self.images = flat([store.image(case) for case in cases], self.depth).to(self.device)
        self.labels: Tensor | None = None
        if labels:
            for case in cases:
                store.verify_file(case, str(case.label))
            self.labels = flat([store.label(case) for case in cases], self.depth).to(self.device)

    def __len__(self) -> int:
        return len(self.case_of)

    def units_at(self, units: Integers, samples: Integers, voxels: Integers) -> Integers:
        """Return ``units``. In 2-D, the units of ``samples`` are replaced by the slices that contain ``voxels``."""
        if voxels.shape[1] == len(self.patch):
            return units
        changed = units.copy()
        changed[samples] = np.searchsorted(self.case_of, self.case_of[units[samples]]) + voxels[:, -1]
        return changed

    def table(self, units: Integers, drawn: Draw | Warp) -> Table:
        """Return the input of ``gather`` for these units and their augmentation: a table with one row per sample."""
        if isinstance(drawn, Warp):
            ones = np.ones((len(units), len(self.patch) - 2), dtype=np.int64)
            parameters = warp_table(drawn, self.shapes[units], np.concatenate([self.strides[units], ones], axis=1))
        else:
            parameters = table_of(drawn, self.shapes[units], self.strides[units], self.patch)
        return with_offsets(parameters, self.image_offset[units], self.label_offset[units])

    def gather(self, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return augmented images ``(B, C, *patch)`` float32 and labels ``(B, *patch)`` int64 for a table."""
        return gather(table, self.images, self.labels, self.patch, self.channels, self.point_distance)


def gather(
    table: Tensor,
    images: Tensor,
    labels: Tensor | None,
    patch: Sequence[int],
    channels: int,
    point_distance: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Gather images and labels for a table from flat memory. ``point_distance`` is the ``grid`` of a warp, or None."""
    sizes = [table.shape[1] - channels - 1, channels, 1]
    parameters, image_offset, label_offset = table.split_with_sizes(sizes, dim=1)
    if point_distance is not None:
        warp = WarpColumns.of(parameters, patch, point_distance)
        positions = warp.positions(patch)
        warped = sample_image(images, image_offset, warp, positions)
        return warped, None if labels is None else sample_labels(labels, label_offset, warp, positions)
    rows, inside = rows_of(parameters, patch)
    values = _read(images, rows[:, None] + image_offset.long()[..., None, None], inside[:, None], patch).float()
    if labels is None:
        return values, None
    return values, _read(labels, rows + label_offset.long()[..., None], inside, patch).long()


def _read(memory: Tensor, rows: Tensor, inside: Tensor, patch: Sequence[int]) -> Tensor:
    depth = prod(patch[2:])
    every_row = memory.unfold(0, depth, 1) if depth > 1 else memory
    values = every_row.index_select(0, rows.flatten()).view(*rows.shape, *patch[2:])
    return torch.where(inside, values, 0)


def offsets(voxels: Integers, channels: int, margin: int) -> tuple[Integers, Integers]:
    """Return memory offsets of image channels and label maps for these voxel counts, after ``margin`` zeros."""
    begin = np.cumsum(voxels) - voxels
    return begin[:, None] * channels + np.arange(channels) * voxels[:, None] + margin, begin + margin


def with_offsets(parameters: Table, images: Integers, maps: Integers) -> Table:
    """Append the offset columns that ``gather`` needs to a table from ``table_of`` or ``warp_table``."""
    return np.concatenate([parameters, images, maps[:, None]], axis=1, dtype=np.float64)


def flat(arrays: Sequence[npt.NDArray[Any]], margin: int) -> Tensor:
    """Concatenate flattened arrays, with ``margin`` zeros at both ends."""
    zeros = np.zeros(margin, arrays[0].dtype)
    return torch.from_numpy(np.concatenate([zeros, *(np.asarray(array).ravel() for array in arrays), zeros]))


def _units(case: int, shape: tuple[int, ...], axes: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Return case, shape, plane strides and first element of each unit of a case: the volume, or its slices."""
    strides = [prod(shape[1:]), prod(shape[2:])]
    count = shape[-1] if len(shape) > axes else 1
    ones = np.ones((count, 1), dtype=np.int64)
    return (
        np.full(count, case, dtype=np.int64),
        ones * np.array(shape[:axes], dtype=np.int64),
        ones * np.array(strides, dtype=np.int64),
        np.arange(count, dtype=np.int64),
    )
