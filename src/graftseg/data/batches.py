"""Training batches, gathered from a prepared store in the memory of the training device.

The batch of a step depends only on the seed, the stage, the step, the unlabeled cases that a stage uses, and the
foreground positions around which patches are drawn. So a resumed run draws the same batches without saved random
states. No worker processes are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from graftseg.core import ranks
from graftseg.core.errors import Code, UserError
from graftseg.core.ranks import own_rows
from graftseg.core.settings import MAX_COUNT, MAX_IMAGES, MAX_SIDE, Settings
from graftseg.core.types import Batch, Labeled
from graftseg.data.augment import AugmentSettings, Draw, Integers, Table, centered, centered_on, draw, to_device
from graftseg.data.foreground import Positions, positions_of
from graftseg.data.intensity_augment import COLUMNS, IntensityAugmentSettings, augment_intensities, draw_intensities
from graftseg.data.labeled_roles import divide_labeled
from graftseg.data.store import Store, StoredCase
from graftseg.data.stream import Stream
from graftseg.data.warp import Warp, WarpSettings, draw_warp, stretch_warp, undeformed

Gathered = tuple[Tensor, Tensor | None]  # images and labels
LABELED, UNLABELED = 0, 1  # stream numbers
FOREGROUND_SEED, WARP_SEED, INTENSITY_SEED = 2, 4, 6  # added to the stream number, for independent draws


class BatchSettings(Settings):
    """Content of a batch: patch size, number of images per stream, and augmentation.

    - ``unlabeled_crop``: position of unlabeled crops. ``centre`` also disables the augmentation of unlabeled scans.
    - ``order``: of the cases. In a ``mirrored`` batch, the first half follows the case list and the second half follows
      the reversed list, so that each case is always paired with the same partner.
    - ``foreground``: share of patches centered on a foreground voxel. Every class of a case is equally likely. In 2-D,
      slices with foreground are drawn more often. For unlabeled scans, the network of the previous stage predicts the
      foreground. In the first stage, no unlabeled patch is centered on foreground.
    """

    patch: tuple[Annotated[int, Field(ge=1, le=MAX_SIDE)], ...] = Field(min_length=2, max_length=3)
    labeled: int = Field(4, ge=1, le=MAX_IMAGES)  # labeled images per batch
    unlabeled: int = Field(4, ge=0, le=MAX_IMAGES)  # unlabeled images per batch
    augment: AugmentSettings = AugmentSettings()
    warp: WarpSettings | None = None  # affine and elastic deformation
    intensity: IntensityAugmentSettings | None = None
    fit: Literal["crop", "stretch"] = "crop"  # crop patches, or stretch slices to the patch (2-D only)
    unlabeled_crop: Literal["random", "centre"] = "random"
    order: Literal["shuffled", "mirrored"] = "shuffled"
    foreground: float = Field(0.0, ge=0, le=1)
    labeled_cases: int | None = Field(None, ge=1, le=MAX_COUNT)  # used with labels; see ``divide_labeled``
    validation_cases: int = Field(0, ge=0, le=MAX_COUNT)  # number of labeled cases to validate on, in addition
    held_out: tuple[str, ...] = ()  # labeled cases of which neither image nor label is used

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.fit == "stretch" and len(self.patch) != 2:
            raise ValueError("fit: stretch needs a 2-D patch, but the patch has three axes")
        if self.order == "mirrored" and (self.labeled % 2 or self.unlabeled % 2):
            raise ValueError("order: mirrored needs an even number of labeled and of unlabeled images")
        if self.unlabeled_crop == "centre" and (self.foreground or self.intensity):
            raise ValueError("foreground and intensity cannot be combined with unlabeled_crop: centre")
        if self.warp is not None:
            if self.augment.rotate_flip or self.augment.rotate:
                raise ValueError("warp also rotates and mirrors; set augment.rotate_flip and augment.rotate to 0")
            if self.unlabeled_crop == "centre":
                raise ValueError("warp needs unlabeled_crop: random")
            if (axis := max(self.warp.mirror, default=0)) >= len(self.patch):
                raise ValueError(f"warp.mirror has axis {axis}, but a patch has {len(self.patch)} axes")
        return self

    @property
    def role_limits(self) -> tuple[int | None, int, tuple[str, ...]]:
        """The last three arguments of ``divide_labeled``."""
        return self.labeled_cases, self.validation_cases, self.held_out

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """The axes along which training mirrors patches."""
        if self.augment.rotate_flip > 0:
            return (0, 1)
        return () if self.warp is None else self.warp.mirror


@dataclass(frozen=True)
class Cases:
    """The cases of a store by their role in training."""

    labeled: tuple[StoredCase, ...]
    unlabeled: tuple[StoredCase, ...]
    validation: tuple[StoredCase, ...]


def training_cases(store: Store, settings: BatchSettings) -> Cases:
    """Return the cases of a store by role. Labeled cases beyond ``labeled_cases`` become unlabeled cases."""
    roles = divide_labeled(store.path, store.of("labeled"), *settings.role_limits)
    unlabeled, validation = roles.hidden + store.of("unlabeled"), roles.validation + store.of("validation")
    return Cases(roles.labeled, unlabeled, validation)


class Batches:
    """The batches of a run, from a labeled and an unlabeled stream."""

    resident = True  # gathered from device memory, which CUDA graph capture of a step requires
    stream_type: type[Stream] = Stream

    def __init__(
        self, store: Store, settings: BatchSettings, *, seed: int, device: torch.device | str, unlabeled: bool = True
    ) -> None:
        """Load the cases into device memory. ``unlabeled=False`` loads only the labeled cases."""
        self.settings, self.seed, self.device = settings, seed, torch.device(device)
        cases = training_cases(store, settings)
        stream = partial(self.stream_type, store, patch=settings.patch, device=self.device, warp=settings.warp)
        self.labeled = stream(cases.labeled, labels=True)
        self.unlabeled = stream(cases.unlabeled, labels=False) if unlabeled and cases.unlabeled else None
        self._labeled_foreground = positions_of(store, cases.labeled) if settings.foreground else None
        self._predicted_foreground: dict[int, Positions] = {}  # of the unlabeled cases, by stage
        self._unlabeled_units: dict[int, Integers] = {}  # by stage; all units if the stage is missing

    def set_foreground(self, stage: int, positions: Positions) -> None:
        """Set the predicted foreground positions around which unlabeled patches are drawn in ``stage``."""
        self._predicted_foreground[stage] = positions

    def keep_unlabeled(self, stage: int, cases: Sequence[int]) -> None:
        """Use only the unlabeled cases with these indices in a stage."""
        self._unlabeled_units[stage] = np.flatnonzero(np.isin(self._unlabeled_stream().case_of, cases))

    def at(self, stage: int, step: int, *, unlabeled: bool = True) -> Batch:
        """Return the batch of a step. With ``unlabeled=False``, its unlabeled part is empty."""
        return self.gather(to_device(self.draw(stage, step, unlabeled=unlabeled), self.device))

    def draw(self, stage: int, step: int, *, unlabeled: bool = True) -> Table:
        """Draw the parameters of a step on the CPU: a row per labeled, then per unlabeled image of this rank."""
        tables = [own_rows(self._table(stage, step, LABELED, self._labeled_foreground))]
        if unlabeled:
            tables.append(own_rows(self._table(stage, step, UNLABELED, self._predicted_foreground.get(stage))))
        return np.concatenate(tables)

    def gather(self, table: Tensor) -> Batch:
        """Return the batch of a table without synchronization, so that the step can be captured in a CUDA graph."""
        count, columns = self.labeled_rows, self.intensity_columns
        crops = table[:, columns:]
        unlabeled = None if len(table) == count else self._unlabeled_stream().gather(crops[count:])
        return self.augmented(batch_of(self.labeled.gather(crops[:count]), unlabeled), table[:, :columns])

    @property
    def labeled_rows(self) -> int:
        """Number of labeled images in the part of a batch that belongs to this rank."""
        return self.settings.labeled // ranks.count()

    @property
    def intensity_columns(self) -> int:
        """Number of leading columns of a table with the parameters of the intensity augmentation."""
        return COLUMNS if self.settings.intensity else 0

    def augmented(self, batch: Batch, table: Tensor) -> Batch:
        """Augment the intensities of a batch. The teacher gets the unchanged unlabeled images."""
        if not self.intensity_columns:
            return batch
        count, labeled = self.labeled_rows, batch.labeled
        images = augment_intensities(torch.cat([labeled.images, batch.unlabeled]), table)
        return Batch(Labeled(images[:count], labeled.labels), images[count:], plain=batch.unlabeled)

    def names_at(self, stage: int, step: int, *, unlabeled: bool = True) -> list[str]:
        """Return the names of the cases in the batch of a step."""
        names = [self.labeled.names[case] for case in self.labeled.case_of[self._units(stage, step, LABELED)]]
        if unlabeled and self.unlabeled is not None and self.settings.unlabeled:
            units = self._units(stage, step, UNLABELED)
            names += [self.unlabeled.names[case] for case in self.unlabeled.case_of[units]]
        return sorted(set(names))

    def center_patches(self, count: int) -> Tensor | None:
        """Return unaugmented center patches of the first ``count`` unlabeled scans, or None if no scan is unlabeled."""
        if self.unlabeled is None:
            return None
        by_case = [np.flatnonzero(self.unlabeled.case_of == case) for case in range(len(self.unlabeled.names))]
        units = np.array([slices[len(slices) // 2] for slices in by_case[:count]])
        shapes, warp = self.unlabeled.shapes[units], self.settings.warp
        drawn = self._centered(shapes)
        plain = drawn if warp is None else _stretched(undeformed(drawn.start, self.settings.patch, warp), drawn, shapes)
        table = self.unlabeled.table(units, plain)
        images, _ = self.unlabeled.gather(to_device(table, self.device))
        return images

    @property
    def steps_per_epoch(self) -> int:
        """Number of full batches that the labeled units (volumes or slices) fill, at least 1."""
        return max(1, len(self.labeled) // self.settings.labeled)

    def _table(self, stage: int, step: int, number: int, positions: Positions | None) -> Table:
        settings, stream, units = self.settings, self._stream(number), self._units(stage, step, number)
        if number == UNLABELED and settings.unlabeled_crop == "centre":
            return stream.table(units, self._centered(stream.shapes[units]))
        centers = None
        if positions is not None:
            rng = np.random.default_rng((self.seed, stage, step, FOREGROUND_SEED + number))
            centers = positions.draw(rng, stream.case_of[units], settings.foreground)
        if centers is not None:
            units = stream.units_at(units, centers.samples, centers.voxels)
        rng = np.random.default_rng((self.seed, stage, step, number))
        shapes, stretch = stream.shapes[units], settings.fit == "stretch"
        drawn = draw(rng, shapes, settings.patch, settings.augment, stretch=stretch)
        if centers is not None and not stretch:
            voxels = centers.voxels[:, : len(settings.patch)]
            drawn = centered_on(drawn, shapes, settings.patch, settings.augment.margin, centers.samples, voxels)
        return self._augmented_table((self.seed, stage, step, number), stream, units, drawn)

    def _augmented_table(self, key: tuple[int, int, int, int], stream: Stream, units: Integers, drawn: Draw) -> Table:
        """Return the table of the units. ``key`` contains the seed of the run, the stage, the step and the stream."""
        settings, (*seed, number) = self.settings, key
        if settings.warp is None:
            table = stream.table(units, drawn)
        else:
            rng = np.random.default_rng((*seed, WARP_SEED + number))
            warp = draw_warp(rng, drawn.start, settings.patch, settings.warp)
            table = stream.table(units, _stretched(warp, drawn, stream.shapes[units]))
        if settings.intensity is None:
            return table
        rng = np.random.default_rng((*seed, INTENSITY_SEED + number))
        return np.concatenate([draw_intensities(rng, len(units), settings.intensity), table], axis=1)

    def _centered(self, shapes: Integers) -> Draw:
        return centered(shapes, self.settings.patch, stretch=self.settings.fit == "stretch")

    def _units(self, stage: int, step: int, number: int) -> Integers:
        """Return the indices of the units (volumes or slices) that a step takes from stream ``number``."""
        used = self._unlabeled_units.get(stage) if number == UNLABELED else None
        count = len(self._stream(number)) if used is None else len(used)
        size = self.settings.labeled if number == LABELED else self.settings.unlabeled
        if self.settings.order == "mirrored":
            # half from the list and half from the reversed list, both repeated without end
            forward = (step * (size // 2) + np.arange(size // 2)) % count
            units = np.concatenate([forward, count - 1 - forward])
        else:
            epoch, group = divmod(step, self.steps_per_epoch)
            units = _shuffled((self.seed, stage, epoch, number), count, group, size)
        return units if used is None else used[units]

    def _stream(self, number: int) -> Stream:
        return self.labeled if number == LABELED else self._unlabeled_stream()

    def _unlabeled_stream(self) -> Stream:
        if self.unlabeled is None or self.settings.unlabeled == 0:
            finding = "this method needs unlabeled scans, but the data has none"
            remedy = "put scans without labels into imagesUn or use a supervised recipe"
            raise UserError(Code.TOO_FEW_CASES, "training data", finding, remedy)
        return self.unlabeled


def batch_of(labeled: Gathered, unlabeled: Gathered | None = None) -> Batch:
    """Return a batch of gathered images. Without ``unlabeled``, its unlabeled part is empty."""
    images, labels = labeled
    assert labels is not None
    return Batch(Labeled(images, labels), images[:0] if unlabeled is None else unlabeled[0])


def _stretched(warp: Warp, drawn: Draw, shapes: Integers) -> Warp:
    """Return a warp that also stretches slices of these shapes to the patch, if ``drawn`` stretches them."""
    return warp if drawn.scale is None else stretch_warp(warp, shapes, drawn.scale)


def _shuffled(key: tuple[int, ...], count: int, group: int, size: int) -> Integers:
    """Split an endless sequence of random permutations into groups of ``size`` items and return group ``group``."""
    first, end = group * size, (group + 1) * size
    numbers = range(first // count, (end - 1) // count + 1)
    items = np.concatenate([np.random.default_rng((*key, number)).permutation(count) for number in numbers])
    return items[first - numbers[0] * count :][:size]
