"""Prepared store and split -> the batch of any step, on the training device.

The batch of a step is a function of seed, stage and step alone, and of the positions of foreground where patches are
drawn around it, so that a run resumes exactly without keeping any other state. The store lies flat in the memory of the
training device and a batch is gathered from it: no worker processes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.settings import MOST_IMAGES, MOST_STEPS, MOST_VOXELS, Settings
from graftseg.core.types import Batch, Labeled
from graftseg.data.augment import AugmentSettings, Draw, Integers, Table, around, centered, draw, to_device
from graftseg.data.dataset import divide_labeled
from graftseg.data.foreground import Positions, positions_of
from graftseg.data.store import Store, StoredCase
from graftseg.data.stream import Stream

Gathered = tuple[Tensor, Tensor | None]
LABELED, UNLABELED = 0, 1
AIMED = 2
"""Added to a stream's number it makes the key of what is drawn around foreground, apart from all other draws."""


class BatchSettings(Settings):
    """What a step sees: the size of patches, how many of each stream, and how they are augmented.

    ``fit``: patches are cropped out of a scan, or slices are stretched to the patch (``stretch``, 2-D only).
    ``unlabeled_crop``: where the unlabeled stream is cropped; ``centre`` also leaves its augmentation out.
    ``order``: ``shuffled``, or ``mirrored``, where the first half of a batch goes through the list as it is and the
    second half through its reverse, so that a case always meets the same partner.
    ``foreground``: the share of patches that have a voxel of the foreground in their middle, every class of a case
    alike; slices that hold such a voxel are drawn more often likewise. Of unlabeled scans it is the foreground that the
    network of the stage before finds, and in the first stage none.
    ``validation_cases`` are held out from the end of the list of labeled cases, beside those that the data itself
    holds out. ``labeled_cases`` limits the others to the first so many; the rest is used without labels.
    ``held_out`` names labeled cases that the training does not see at all, neither their labels nor their images.
    """

    patch: tuple[Annotated[int, Field(ge=1, le=MOST_VOXELS)], ...] = Field(min_length=2, max_length=3)
    labeled: int = Field(4, ge=1, le=MOST_IMAGES)
    unlabeled: int = Field(4, ge=0, le=MOST_IMAGES)
    augment: AugmentSettings = AugmentSettings()
    fit: Literal["crop", "stretch"] = "crop"
    unlabeled_crop: Literal["random", "centre"] = "random"
    order: Literal["shuffled", "mirrored"] = "shuffled"
    foreground: float = Field(0.0, ge=0, le=1)
    labeled_cases: int | None = Field(None, ge=1, le=MOST_STEPS)
    validation_cases: int = Field(0, ge=0, le=MOST_STEPS)
    held_out: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.fit == "stretch" and len(self.patch) != 2:
            raise ValueError("fit: stretch is for slices, and the patch has three axes")
        if self.order == "mirrored" and (self.labeled % 2 or self.unlabeled % 2):
            raise ValueError("order: mirrored needs an even number of labeled and of unlabeled images")
        if self.foreground and self.unlabeled_crop == "centre":
            raise ValueError("foreground moves the patches of unlabeled scans, and unlabeled_crop: centre keeps them")
        return self


@dataclass(frozen=True)
class Cases:
    """The cases of a store by the role they play in training."""

    labeled: tuple[StoredCase, ...]
    unlabeled: tuple[StoredCase, ...]
    validation: tuple[StoredCase, ...]


def training_cases(store: Store, settings: BatchSettings) -> Cases:
    """Return the cases of a store by role; labeled cases beyond ``labeled_cases`` join the unlabeled cases."""
    limits = (settings.labeled_cases, settings.validation_cases, settings.held_out)
    roles = divide_labeled(store.path, store.of("labeled"), *limits)
    return Cases(
        labeled=roles.labeled,
        unlabeled=roles.hidden + store.of("unlabeled"),
        validation=roles.validation + store.of("validation"),
    )


class Batches:
    """Two streams, labeled and unlabeled, and the batch of every step.

    ``resident`` says that a batch comes out of the device's own memory, as a captured step needs it.
    """

    resident = True
    kind: type[Stream] = Stream

    def __init__(
        self, store: Store, settings: BatchSettings, *, seed: int, device: torch.device | str, unlabeled: bool = True
    ) -> None:
        """Read the cases into the device's memory; without ``unlabeled`` those alone that have labels."""
        self.settings, self.seed, self.device = settings, seed, torch.device(device)
        cases = training_cases(store, settings)
        stream = partial(self.kind, store, patch=settings.patch, device=self.device)
        self.labeled = stream(cases.labeled, labels=True)
        self.unlabeled = stream(cases.unlabeled, labels=False) if unlabeled and cases.unlabeled else None
        self._labeled_at = positions_of(store, cases.labeled) if settings.foreground else None
        self._unlabeled_at: dict[int, Positions] = {}

    def aim(self, stage: int, positions: Positions) -> None:
        """Draw patches of unlabeled scans around these positions in a stage that has not begun."""
        self._unlabeled_at[stage] = positions

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """The batch of a step; ``unlabeled=False`` leaves the unlabeled part empty and saves its work."""
        return self.gather(to_device(self.draw(stage, step, unlabeled=unlabeled), self.device))

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """All that is drawn for a step, on the host: a row for each labeled, then for each unlabeled image."""
        units = self._labeled_units(stage, step)
        tables = [self._drawn(self.labeled, units, self._labeled_at, (stage, step, LABELED))]
        if unlabeled:
            units, positions = self._unlabeled_units(stage, step), self._unlabeled_at.get(stage)
            tables.append(self._drawn(self._unlabeled_stream(), units, positions, (stage, step, UNLABELED)))
        return np.concatenate(tables)

    def gather(self, table: Tensor) -> Batch:
        """The batch of a table on the device, without waiting for the host: a captured step can hold it."""
        count = self.settings.labeled
        others = None if len(table) == count else self._unlabeled_stream().gather(table[count:])
        return batch_of(self.labeled.gather(table[:count]), others)

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

    def _drawn(self, stream: Stream, units: Integers, positions: Positions | None, key: tuple[int, int, int]) -> Table:
        settings, (stage, step, number) = self.settings, key
        if stream is self.unlabeled and settings.unlabeled_crop == "centre":
            return stream.table(units, self._centred(stream.shapes[units]))
        aim = None
        if positions is not None:
            rng = np.random.default_rng((self.seed, stage, step, AIMED + number))
            aim = positions.aim(rng, stream.case_of[units], settings.foreground)
        if aim is not None:
            units = stream.units_at(units, aim.samples, aim.voxels)
        rng, shapes, stretch = np.random.default_rng((self.seed, *key)), stream.shapes[units], settings.fit == "stretch"
        drawn = draw(rng, shapes, settings.patch, settings.augment, stretch=stretch)
        if aim is not None and not stretch:
            voxels = aim.voxels[:, : len(settings.patch)]
            drawn = around(drawn, shapes, settings.patch, settings.augment.margin, aim.samples, voxels)
        return stream.table(units, drawn)

    def _centred(self, shapes: Integers) -> Draw:
        """The middle of scans with these shapes, as they are."""
        return centered(shapes, self.settings.patch, stretch=self.settings.fit == "stretch")

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
                Code.TOO_FEW_CASES,
                "training data",
                "the method learns from unlabeled scans and there are none",
                "put scans without labels into imagesUn or use a supervised recipe",
            )
        return self.unlabeled


def batch_of(labeled: Gathered, unlabeled: Gathered | None = None) -> Batch:
    """A batch of what was gathered; without ``unlabeled`` that part is empty."""
    images, labels = labeled
    if labels is None:
        raise RuntimeError("the labeled stream holds no labels")
    return Batch(Labeled(images, labels), images[:0] if unlabeled is None else unlabeled[0])


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
