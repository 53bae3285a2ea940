"""Prepared store and split -> the batch of any step, on the training device.

The batch of a step is a function of seed, stage and step alone, so that a run resumes exactly without keeping any
state. The store lies flat in the memory of the training device and a batch is gathered from it: no worker processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from graftseg.data.augment import AugmentSettings, Draw, Table, centred, draw, rows_of, table_of, to_device
from graftseg.data.store import Store, StoredCase
from graftseg.errors import UserError
from graftseg.settings import Settings
from graftseg.types import Batch, Labeled

Integers = npt.NDArray[np.int64]
LABELED, UNLABELED = 0, 1


class BatchSettings(Settings):
    """What a step sees: the size of patches, how many of each stream, and how they are augmented.

    ``fit``: patches are cropped out of a scan, or slices are stretched to the patch (``stretch``, 2-D only).
    ``unlabeled_crop``: where the unlabeled stream is cropped; ``centre`` also leaves its augmentation out.
    ``order``: ``shuffled``, or ``mirrored``, where the first half of a batch goes through the list as it is and the
    second half through its reverse, so that a case always meets the same partner.
    ``validation_cases`` are held out from the end of the list of labeled cases, beside those that the data itself
    holds out. ``labeled_cases`` limits the others to the first so many; the rest is used without labels.
    """

    patch: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2, max_length=3)
    labeled: int = Field(4, ge=1)
    unlabeled: int = Field(4, ge=0)
    augment: AugmentSettings = AugmentSettings()
    fit: Literal["crop", "stretch"] = "crop"
    unlabeled_crop: Literal["random", "centre"] = "random"
    order: Literal["shuffled", "mirrored"] = "shuffled"
    labeled_cases: int | None = Field(None, ge=1)
    validation_cases: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.fit == "stretch" and len(self.patch) != 2:
            raise ValueError("fit: stretch is for slices, and the patch has three axes")
        if self.order == "mirrored" and (self.labeled % 2 or self.unlabeled % 2):
            raise ValueError("order: mirrored needs an even number of labeled and of unlabeled images")
        return self


@dataclass(frozen=True)
class Cases:
    """The cases of a store by the role they play in training."""

    labeled: tuple[StoredCase, ...]
    unlabeled: tuple[StoredCase, ...]
    validation: tuple[StoredCase, ...]


def training_cases(store: Store, settings: BatchSettings) -> Cases:
    """Split a store's training cases; labeled ones beyond ``labeled_cases`` join the unlabeled."""
    labeled = store.of("labeled")
    first_held_out = len(labeled) - settings.validation_cases
    count = settings.labeled_cases or max(first_held_out, 1)
    if count > first_held_out:
        raise UserError(
            store.path,
            f"the recipe asks for {count} labeled cases and {settings.validation_cases} to validate on, "
            f"and the store has {len(labeled)}",
            "label more scans or lower batches.labeled_cases or batches.validation_cases",
        )
    held_out = labeled[first_held_out:] + store.of("validation")
    return Cases(labeled[:count], labeled[count:first_held_out] + store.of("unlabeled"), held_out)


class Stream:
    """The cases of one stream, flat in memory; a unit is what a sample is drawn from: a volume or a slice.

    A batch is gathered in whole rows (see ``source_rows``), as long as the patch is deep. Zeros of that length on
    both ends of the memory let a row reach beyond the first scan and the last.
    """

    def __init__(
        self, store: Store, cases: Sequence[StoredCase], patch: Sequence[int], *, labels: bool, device: torch.device
    ) -> None:
        for case in cases:
            store.verify_file(case, case.image)
        images = [np.asarray(store.image(case)) for case in cases]
        self.patch, self.depth = patch, prod(patch[2:])
        self.names = [case.name for case in cases]
        self.channels = images[0].shape[0]
        self.images = _flat(images, self.depth).to(device)
        self.labels: Tensor | None = None
        if labels:
            for case in cases:
                store.verify_file(case, str(case.label))
            self.labels = _flat([np.asarray(store.label(case)) for case in cases], self.depth).to(device)
        units = [_units(index, image.shape[1:], len(patch)) for index, image in enumerate(images)]
        voxels = np.array([prod(image.shape[1:]) for image in images], dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum(voxels)[:-1]])
        self.case_of, self.shapes, self.strides, first = (np.concatenate(part) for part in zip(*units, strict=True))
        self.label_offset = begin[self.case_of] + first + self.depth
        channel = np.arange(self.channels) * voxels[self.case_of, None]
        self.image_offset = (begin[self.case_of] * self.channels + first + self.depth)[:, None] + channel

    def __len__(self) -> int:
        return len(self.case_of)

    def table(self, units: Integers, drawn: Draw) -> Table:
        """What ``gather`` needs of the units and their augmentation, one row a sample."""
        offsets = (self.image_offset[units], self.label_offset[units, None])
        return np.concatenate([table_of(drawn, self.shapes[units], self.strides[units], self.patch), *offsets], axis=1)

    def gather(self, table: Tensor) -> tuple[Tensor, Tensor | None]:
        """Images ``(B, C, *patch)`` float32 and labels ``(B, *patch)`` int64 of a table, augmented alike."""
        places, image_offset, label_offset = table.split([table.shape[1] - self.channels - 1, self.channels, 1], dim=1)
        rows, inside = rows_of(places, self.patch)
        images = self._read(self.images, rows[:, None] + image_offset.long()[..., None, None], inside[:, None]).float()
        if self.labels is None:
            return images, None
        return images, self._read(self.labels, rows + label_offset.long()[..., None], inside).long()

    def _read(self, flat: Tensor, rows: Tensor, inside: Tensor) -> Tensor:
        every_row = flat.unfold(0, self.depth, 1) if self.depth > 1 else flat
        values = every_row.index_select(0, rows.flatten()).view(*rows.shape, *self.patch[2:])
        return torch.where(inside, values, 0)


class Batches:
    """Two streams, labeled and unlabeled, and the batch of every step.

    ``resident`` says that a batch comes out of the device's own memory, as a captured step needs it.
    """

    resident = True

    def __init__(
        self, store: Store, settings: BatchSettings, *, seed: int, device: torch.device | str, unlabeled: bool = True
    ) -> None:
        """Read the cases into the device's memory; without ``unlabeled`` those alone that have labels."""
        self.settings, self.seed, self.device = settings, seed, torch.device(device)
        device = self.device
        cases = training_cases(store, settings)
        self.labeled = Stream(store, cases.labeled, settings.patch, labels=True, device=device)
        self.unlabeled: Stream | None = None
        if unlabeled and cases.unlabeled:
            self.unlabeled = Stream(store, cases.unlabeled, settings.patch, labels=False, device=device)

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """The batch of a step; ``unlabeled=False`` leaves the unlabeled part empty and saves its work."""
        return self.gather(to_device(self.draw(stage, step, unlabeled=unlabeled), self.device))

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """All that is drawn for a step, on the host: a row for each labeled, then for each unlabeled image."""
        key = (self.seed, stage, step)
        tables = [self._drawn(self.labeled, self._labeled_units(stage, step), (*key, LABELED))]
        if unlabeled:
            units = self._unlabeled_units(stage, step)
            tables.append(self._drawn(self._unlabeled_stream(), units, (*key, UNLABELED)))
        return np.concatenate(tables)

    def gather(self, table: Tensor) -> Batch:
        """The batch of a table on the device, without waiting for the host: a captured step can hold it."""
        count = self.settings.labeled
        images, labels = self.labeled.gather(table[:count])
        if labels is None:
            raise RuntimeError("the labeled stream holds no labels")
        if len(table) == count:
            return Batch(Labeled(images, labels), images[:0])
        others, _ = self._unlabeled_stream().gather(table[count:])
        return Batch(Labeled(images, labels), others)

    def names_at(self, stage: int, step: int, *, unlabeled: bool = True) -> list[str]:
        """Names of the cases in a step's batch, for messages; ``unlabeled`` as in ``at``."""
        names = [self.labeled.names[case] for case in self.labeled.case_of[self._labeled_units(stage, step)]]
        if unlabeled and self.unlabeled is not None and self.settings.unlabeled:
            units = self._unlabeled_units(stage, step)
            names += [self.unlabeled.names[case] for case in self.unlabeled.case_of[units]]
        return sorted(set(names))

    def watched(self, count: int) -> Tensor | None:
        """The centres of the first unlabeled scans, not augmented: the same at every call."""
        if self.unlabeled is None:
            return None
        middles = [np.flatnonzero(self.unlabeled.case_of == case) for case in range(len(self.unlabeled.names))]
        units = np.array([slices[len(slices) // 2] for slices in middles[:count]])
        table = self.unlabeled.table(units, self._centred(self.unlabeled.shapes[units]))
        images, _ = self.unlabeled.gather(to_device(table, self.device))
        return images

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every labeled unit has been seen once; a remainder is dropped."""
        return max(1, len(self.labeled) // self.settings.labeled)

    def _drawn(self, stream: Stream, units: Integers, key: tuple[int, ...]) -> Table:
        settings = self.settings
        if stream is self.unlabeled and settings.unlabeled_crop == "centre":
            return stream.table(units, self._centred(stream.shapes[units]))
        rng, stretch = np.random.default_rng(key), settings.fit == "stretch"
        return stream.table(units, draw(rng, stream.shapes[units], settings.patch, settings.augment, stretch=stretch))

    def _centred(self, shapes: Integers) -> Draw:
        """The middle of scans with these shapes, as they are."""
        return centred(shapes, self.settings.patch, stretch=self.settings.fit == "stretch")

    def _labeled_units(self, stage: int, step: int) -> Integers:
        if self.settings.order == "mirrored":
            return _mirrored(step, len(self.labeled), self.settings.labeled)
        epoch, place = divmod(step, self.steps_per_epoch)
        return _chain((self.seed, stage, epoch, LABELED), len(self.labeled), place, self.settings.labeled)

    def _unlabeled_units(self, stage: int, step: int) -> Integers:
        if self.settings.order == "mirrored":
            return _mirrored(step, len(self._unlabeled_stream()), self.settings.unlabeled)
        epoch, place = divmod(step, self.steps_per_epoch)
        count = len(self._unlabeled_stream())
        return _chain((self.seed, stage, epoch, UNLABELED), count, place, self.settings.unlabeled)

    def _unlabeled_stream(self) -> Stream:
        if self.unlabeled is None or self.settings.unlabeled == 0:
            raise UserError(
                "training data",
                "the method learns from unlabeled scans and there are none",
                "put scans without labels into imagesUn or use a supervised recipe",
            )
        return self.unlabeled


def _units(case: int, shape: tuple[int, ...], axes: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Case, shape, strides in the plane and first element of the units of a case: itself, or its last axis's slices."""
    strides = [prod(shape[1:]), prod(shape[2:])]
    count = shape[-1] if len(shape) > axes else 1
    ones = np.ones((count, 1), dtype=np.int64)
    return (
        np.full(count, case, dtype=np.int64),
        ones * np.array(shape[:axes], dtype=np.int64),
        ones * np.array(strides, dtype=np.int64),
        np.arange(count, dtype=np.int64),
    )


def _chain(key: tuple[int, ...], count: int, place: int, size: int) -> Integers:
    """Group ``place`` of ``size`` items out of an endless chain of fresh permutations."""
    first, last = place * size, (place + 1) * size
    links = range(first // count, (last - 1) // count + 1)
    chain = np.concatenate([np.random.default_rng((*key, link)).permutation(count) for link in links])
    return chain[first - links[0] * count :][:size]


def _mirrored(step: int, count: int, size: int) -> Integers:
    """Half of the units from the list as it is and half from its reverse, at the same place, round and round."""
    forth = (step * (size // 2) + np.arange(size // 2)) % count
    return np.concatenate([forth, count - 1 - forth])


def _flat(arrays: Sequence[npt.NDArray[Any]], margin: int) -> Tensor:
    """All arrays one after the other, with zeros at both ends."""
    zeros = np.zeros(margin, arrays[0].dtype)
    return torch.from_numpy(np.concatenate([zeros, *(array.ravel() for array in arrays), zeros]))
