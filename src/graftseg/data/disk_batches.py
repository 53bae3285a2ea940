"""Training batches read from disk in a background thread, for stores that do not fit into device memory.

The batches are identical to batches of ``Batches``. For each scan of a batch, the box around the patch is read from
the memory-mapped file. All boxes are copied to the device together, and patches are gathered on the device.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.core.types import Batch
from graftseg.data.augment import STRIDES, Integers, Table, boxes_of, to_device
from graftseg.data.batches import Batches, batch_of
from graftseg.data.store import Store, StoredCase
from graftseg.data.stream import Stream, flat, gather, offsets, with_offsets
from graftseg.data.warp import boxes_of_warp

STEPS_AHEAD = 4  # number of batches that are read in advance
BatchKey = tuple[int, int, bool]  # stage, step, and whether unlabeled images are included


@dataclass(frozen=True)
class Boxes:
    """The boxes of several samples in flat memory, and the table with which ``gather`` reads them."""

    table: Tensor
    images: Tensor
    labels: Tensor | None

    def copied(self, copy: Callable[[Tensor], Tensor]) -> "Boxes":
        """Copy every tensor, for example to pinned memory or to a device."""
        return Boxes(copy(self.table), copy(self.images), None if self.labels is None else copy(self.labels))


class DiskStream(Stream):
    """A stream of cases on disk. The checksum of a file is verified before its first use."""

    def _open(self, store: Store, cases: Sequence[StoredCase], labels: bool) -> None:
        self._store, self._cases, self._labels = store, cases, labels
        self._verified: set[str] = set()

    def gather(self, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read the boxes of a table and gather patches from them."""
        return self.gather_from(self.read(table.cpu().numpy()))

    def gather_from(self, boxes: Boxes) -> tuple[Tensor, Tensor | None]:
        """Gather images and labels from boxes."""
        copy = boxes.copied(lambda tensor: tensor.to(self.device, non_blocking=True))
        return gather(copy.table, copy.images, copy.labels, self.patch, self.channels, self.point_distance)

    def read(self, table: Table) -> Boxes:
        """Read the boxes of a table into CPU memory."""
        # label offsets increase with the unit (volume or slice), so an offset identifies its unit
        units = np.searchsorted(self.label_offset, table[:, -1].astype(np.int64))
        parameters = table[:, : -self.channels - 1]
        if self.point_distance is None:
            (first, shape), stride_column = boxes_of(parameters, self.patch), STRIDES
        else:
            first, shape = boxes_of_warp(parameters, self.patch, self.point_distance)
            stride_column = len(self.patch) * (len(self.patch) + 2)
        strides = np.stack([shape[:, 1:].prod(axis=1), shape[:, 2:].prod(axis=1)], axis=1)
        # in box memory, the first voxel of the scan would lie this many elements before the box
        origin = (first[:, :2] * strides).sum(axis=1) + first[:, 2:].sum(axis=1)
        images, maps = offsets(shape.prod(axis=1), self.channels, self.depth)
        box_table = with_offsets(parameters, images - origin[:, None], maps - origin)
        box_table[:, stride_column : stride_column + 2] = strides
        parts = [self._box(unit, *corner) for unit, *corner in zip(units, first, first + shape, strict=True)]
        labels = flat([label for _, label in parts if label is not None], self.depth) if self._labels else None
        boxes = Boxes(torch.from_numpy(box_table), flat([image for image, _ in parts], self.depth), labels)
        if self.device.type != "cuda":
            return boxes
        with torch.cuda.device(self.device):
            return boxes.copied(Tensor.pin_memory)

    def _box(self, unit: int, first: Integers, end: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return the box from ``first`` to ``end`` (exclusive) of the image and, if used, of the label map."""
        case = self._cases[self.case_of[unit]]
        box: tuple[slice | int, ...] = tuple(slice(*ends) for ends in zip(first, end, strict=True))
        if len(case.shape) > len(box):
            box = (*box, int(self.first[unit]))
        self._verify(case, case.image)
        image = self._store.image(case)[(slice(None), *box)]
        if not self._labels:
            return image, None
        self._verify(case, str(case.label))
        return image, self._store.label(case)[box]

    def _verify(self, case: StoredCase, file: str) -> None:
        if file not in self._verified:
            self._store.verify_file(case, file)
            self._verified.add(file)


class DiskBatches(Batches):
    """Batches from files, read in a thread while previous steps run. A damaged file stops the step that needs it."""

    resident = False
    stream_type = DiskStream
    labeled: DiskStream
    unlabeled: DiskStream | None

    @cached_property
    def _prefetcher(self) -> "Prefetcher[BatchKey, tuple[list[Boxes], Table]]":
        return Prefetcher(self._read, lambda key: (key[0], key[1] + 1, key[2]), ahead=STEPS_AHEAD)

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """Return the batch of a step. The batches of the next steps are read in advance."""
        boxes, intensities = self._prefetcher.get((stage, step, unlabeled))
        pairs = zip(self._streams(unlabeled), boxes, strict=True)
        batch = batch_of(*(stream.gather_from(part) for stream, part in pairs))
        return self.augmented(batch, to_device(intensities, self.device))

    def _read(self, key: BatchKey) -> tuple[list[Boxes], Table]:
        stage, step, unlabeled = key
        intensities, crops = np.split(self.draw(stage, step, unlabeled=unlabeled), [self.intensity_columns], axis=1)
        streams, rows = self._streams(unlabeled), np.split(crops, [self.labeled_rows])
        boxes = [stream.read(part) for stream, part in zip(streams, rows[: len(streams)], strict=True)]
        return boxes, intensities

    def _streams(self, unlabeled: bool) -> list[DiskStream]:
        return [self.labeled, self.unlabeled] if unlabeled and self.unlabeled else [self.labeled]


Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Prefetcher(Generic[Key, Item]):
    """Calls the method ``make`` for consecutive keys in a thread, up to ``ahead`` items in advance.

    ``next_key`` returns the key after a key. A request for any other key than the next starts a new thread at that key.
    An error in the thread is raised when the failed item is requested. The method is referenced weakly, so its object
    can be deleted.
    """

    def __init__(self, make: Callable[[Key], Item], next_key: Callable[[Key], Key], *, ahead: int) -> None:
        self._make, self._next_key, self._ahead = WeakMethod(make), next_key, ahead
        self._executor: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Key, Future[Item]]] = deque()

    def get(self, key: Key) -> Item:
        """Return the item of a key, and wait for it if necessary."""
        if not self._pending or self._pending[0][0] != key:
            self.stop()
            self._schedule(key)
        last, _ = self._pending[-1]
        _, future = self._pending.popleft()
        try:
            item = future.result()
        except BaseException:
            self.stop()
            raise
        self._schedule(self._next_key(last))
        return item

    def stop(self) -> None:
        """End the thread. The next request starts a new thread."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = None
        self._pending.clear()

    def _schedule(self, key: Key) -> None:
        """Schedule items, starting at a key, until ``ahead`` items are pending."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="graftseg batches")
        while len(self._pending) < self._ahead:
            self._pending.append((key, self._executor.submit(_call, self._make, key)))
            key = self._next_key(key)


def _call(method: "WeakMethod[Callable[[Key], Item]]", key: Key) -> Item:
    make = method()
    if make is None:
        raise ReferenceError("the object of the method was deleted")
    return make(key)
