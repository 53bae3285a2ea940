"""Batches of a store that is larger than the memory of the training device: read from disk, a few steps ahead.

A batch is the same, value for value, as one of ``Batches``. Of each scan that it needs, the box around the patch is
read from the mapped file; all boxes travel to the device together, and there the patches are gathered from them as they
are from a whole store.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakMethod, finalize

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.core.types import Batch
from graftseg.data.augment import Integers, Table, boxes_of, with_strides
from graftseg.data.batches import Batches, BatchSettings, batch_of
from graftseg.data.store import Store, StoredCase
from graftseg.data.stream import Stream, flat, gather, offsets, with_offsets

STEPS_AHEAD = 4
BatchKey = tuple[int, int, bool]


@dataclass(frozen=True)
class Boxes:
    """The boxes of some samples, flat one after the other, and a table that ``gather`` reads them by."""

    table: Tensor
    images: Tensor
    labels: Tensor | None

    def on(self, device: torch.device) -> "Boxes":
        """The same on a device, which need not have arrived when this returns."""
        labels = None if self.labels is None else self.labels.to(device, non_blocking=True)
        return Boxes(self.table.to(device, non_blocking=True), self.images.to(device, non_blocking=True), labels)

    def pinned(self) -> "Boxes":
        """The same in memory that a GPU can read by itself."""
        labels = None if self.labels is None else self.labels.pin_memory()
        return Boxes(self.table.pin_memory(), self.images.pin_memory(), labels)


class DiskStream(Stream):
    """The cases of one stream on disk. The hash of a file is compared with the manifest before its first use."""

    def _open(self, store: Store, cases: Sequence[StoredCase], labels: bool) -> None:
        self._store, self._cases, self._labels = store, cases, labels
        self._verified: set[str] = set()

    def gather(self, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read the boxes of a table and gather from them."""
        return self.gather_from(self.read(table.cpu().numpy()))

    def gather_from(self, boxes: Boxes) -> tuple[Tensor, Tensor | None]:
        """Images and labels of boxes that were read before."""
        there = boxes.on(self.device)
        return gather(there.table, there.images, there.labels, self.patch, self.channels)

    def read(self, table: Table) -> Boxes:
        """The boxes that a table of this stream needs, on the host."""
        # label maps of all units lie one behind the other, so that an offset tells its unit
        units = np.searchsorted(self.label_offset, table[:, -1].astype(np.int64))
        places = table[:, : -self.channels - 1]
        first, shape = boxes_of(places, self.patch)
        strides = np.stack([shape[:, 1:].prod(axis=1), shape[:, 2:].prod(axis=1)], axis=1)
        # the element of the box at which the scan's very first voxel would lie
        origin = (first[:, :2] * strides).sum(axis=1) + first[:, 2:].sum(axis=1)
        images, maps = offsets(shape.prod(axis=1), self.channels, self.depth)
        there = with_offsets(with_strides(places, strides), images - origin[:, None], maps - origin)
        parts = [self._box(unit, *corner) for unit, *corner in zip(units, first, first + shape, strict=True)]
        labels = flat([label for _, label in parts if label is not None], self.depth) if self._labels else None
        boxes = Boxes(torch.from_numpy(there), flat([image for image, _ in parts], self.depth), labels)
        if self.device.type != "cuda":
            return boxes
        with torch.cuda.device(self.device):
            return boxes.pinned()

    def _box(self, unit: int, first: Integers, end: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """The voxels of a unit from ``first`` to before ``end``: of the image, and of the label map if it is read."""
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
    """As ``Batches``, from files that a thread reads while the steps before are run.

    Every file is read whole once, when a batch first needs it, to compare its hash with the manifest: a damaged file
    stops the training at that batch and not at the beginning.
    """

    resident = False
    kind = DiskStream
    labeled: DiskStream
    unlabeled: DiskStream | None

    def __init__(
        self, store: Store, settings: BatchSettings, *, seed: int, device: torch.device | str, unlabeled: bool = True
    ) -> None:
        super().__init__(store, settings, seed=seed, device=device, unlabeled=unlabeled)
        self._ahead: Prefetcher[BatchKey, list[Boxes]] = Prefetcher(self._read, _next_step, room=STEPS_AHEAD)

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """The batch of a step; it comes at once where steps are asked for one after the other."""
        boxes = self._ahead.get((stage, step, unlabeled))
        pairs = zip(self._streams(unlabeled), boxes, strict=True)
        return batch_of(*(stream.gather_from(part) for stream, part in pairs))

    def _read(self, key: BatchKey) -> list[Boxes]:
        stage, step, unlabeled = key
        rows = np.split(self.draw(stage, step, unlabeled=unlabeled), [self.settings.labeled])
        return [stream.read(part) for stream, part in zip(self._streams(unlabeled), rows, strict=False)]

    def _streams(self, unlabeled: bool) -> list[DiskStream]:
        return [self.labeled, self.unlabeled] if unlabeled and self.unlabeled else [self.labeled]


def _next_step(key: BatchKey) -> BatchKey:
    stage, step, unlabeled = key
    return stage, step + 1, unlabeled


Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Prefetcher(Generic[Key, Item]):
    """What a method makes of a key, made in a thread while the items before are in use, ``room`` at a time.

    The thread follows the order in which items are asked for: after a key comes ``following`` it. A request for any
    other key begins anew from there. An error in the making is raised where its item is asked for. The thread never
    keeps alive the object that the method belongs to, and ends with it.
    """

    def __init__(self, make: Callable[[Key], Item], following: Callable[[Key], Key], *, room: int) -> None:
        self._make, self._following, self._room = WeakMethod(make), following, room
        self._run: _Run[Key, Item] | None = None
        self._end: finalize[..., Prefetcher[Key, Item]] | None = None
        self._expected: Key | None = None

    def get(self, key: Key) -> Item:
        """The item of a key; waits for it where it is not made yet."""
        if self._run is None or key != self._expected:
            self.stop()
            self._run = _Run(self._make, self._following, key, self._room)
            # a thread outlives this object by no more than the item in hand
            self._end = finalize(self, self._run.stop)
        self._expected = self._following(key)
        made = self._run.take()
        if isinstance(made, _Failure):
            self.stop()
            raise made.error
        return made

    def stop(self) -> None:
        """End the thread; a later request begins a new one."""
        if self._end is not None:
            self._end()
        self._run = None


class _Failure:
    """An error in place of an item."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Run(Generic[Key, Item]):
    """A thread and the items that it has made, in order from a first key on."""

    def __init__(
        self, make: "WeakMethod[Callable[[Key], Item]]", following: Callable[[Key], Key], first: Key, room: int
    ) -> None:
        self._made: SimpleQueue[Item | _Failure] = SimpleQueue()
        self._room, self._stopped = threading.Semaphore(room), threading.Event()
        arguments = (make, following, first)
        self.thread = threading.Thread(target=self._work, args=arguments, name="graftseg batches", daemon=True)
        self.thread.start()

    def take(self) -> Item | _Failure:
        made = self._made.get()
        self._room.release()
        return made

    def stop(self) -> None:
        self._stopped.set()
        self._room.release()

    def _work(self, weak: "WeakMethod[Callable[[Key], Item]]", following: Callable[[Key], Key], key: Key) -> None:
        while True:
            self._room.acquire()
            # between two items nothing here holds the method's object
            make = None if self._stopped.is_set() else weak()
            if make is None:
                return
            try:
                self._made.put(make(key))
            except BaseException as error:
                self._made.put(_Failure(error))
                return
            del make
            key = following(key)
