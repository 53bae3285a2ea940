"""Stores of a few small cases without source scans, and their batches."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.core.reading import sha256_of
from graftseg.core.types import Batch, Geometry, Split
from graftseg.data.augment import AugmentSettings, Draw, Integers, rows_of, table_of, to_device
from graftseg.data.batches import Batches, BatchSettings
from graftseg.data.grid import Grid
from graftseg.data.store import CASES, Store, StoredCase

Shape = tuple[int, ...]
NEVER = AugmentSettings(rotate_flip=0)
ACDC = AugmentSettings(rotate_flip=0.5, rotate=0.5)


def image_of(rng: np.random.Generator, shape: Shape, channels: int, value: int | None) -> npt.NDArray[np.float16]:
    """Return positive integers that float16 represents exactly. The second channel is 2000 minus the first."""
    first = rng.integers(1, 2000, shape) if value is None else np.full(shape, value)
    return np.stack([first, 2000 - first][:channels]).astype(np.float16)


def build(
    folder: Path,
    labeled: Iterable[Shape],
    unlabeled: Iterable[Shape] = (),
    *,
    channels: int = 1,
    constant: bool = False,
    validation: Iterable[Shape] = (),
) -> Store:
    """Build a store without source scans. The label is the first channel modulo 4.

    With ``constant``, all voxels of a case have one value: labeled cases count from 1, unlabeled cases from 101 and
    validation cases from 201.
    """
    rng, cases = np.random.default_rng(0), []
    (folder / CASES).mkdir(parents=True)
    splits: list[tuple[Split, int, Shape]] = [("labeled", index, shape) for index, shape in enumerate(labeled, 1)]
    splits += [("unlabeled", index, shape) for index, shape in enumerate(unlabeled, 101)]
    splits += [("validation", index, shape) for index, shape in enumerate(validation, 201)]
    for split, number, shape in splits:
        image = image_of(rng, shape, channels, number if constant else None)
        name, axes = f"case{number:03d}", len(shape)
        files = f"{name}.image.npy", f"{name}.label.npy" if split != "unlabeled" else None
        np.save(folder / CASES / files[0], image)
        if files[1]:
            np.save(folder / CASES / files[1], (image[0] % 4).astype(np.uint8))
        values = (0, 1, 2, 3) if split != "unlabeled" else ()
        grid = Grid(shape, tuple(range(axes)), (False,) * axes, shape, (1.0,) * axes)
        geometry = Geometry(shape, ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))
        hashes = {file: sha256_of(folder / CASES / file) for file in files if file}
        cases.append(StoredCase(name, split, *files, channels, shape, values, grid, geometry, {}, hashes))
    return Store(folder, "scans", {}, ("background", "a", "b", "c"), channels, axes, tuple(cases))


def batches_of(store: Store, patch: Shape, seed: int = 0, **options: object) -> Batches:
    chosen = BatchSettings.model_validate({"patch": patch, "augment": NEVER, **options})
    return Batches(store, chosen, seed=seed, device="cpu")


def numbers(images: Tensor) -> list[int]:
    """Return the case numbers of samples from a constant store."""
    assert all(len(image.unique()) == 1 for image in images)
    return [int(image.max()) for image in images]


def same(one: Batch, two: Batch) -> bool:
    images, labels = torch.equal(one.labeled.images, two.labeled.images), one.labeled.labels
    return images and torch.equal(labels, two.labeled.labels) and torch.equal(one.unlabeled, two.unlabeled)


def source_rows(
    drawn: Draw, shapes: Integers, strides: Integers, patch: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return ``rows_of`` for drawn parameters. ``strides`` ``(B, 2)`` are the strides of the first two axes."""
    return rows_of(to_device(table_of(drawn, shapes, strides, patch), device), patch)


def center_start(length: int, patch: int) -> int:
    """Return the start of a center crop. A half voxel is rounded to the even neighbor, or down in front of the scan."""
    room = length - patch
    return room // 2 + (room > 0 and room % 4 == 3)
