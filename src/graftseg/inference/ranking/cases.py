"""The labeled and unlabeled scans of a ranking, from a store or a folder.

Labels that the run did not use are never read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.batches import training_cases
from graftseg.data.dataset import Dataset
from graftseg.data.grid import Grid, to_grid
from graftseg.data.labels import checked_values
from graftseg.data.prepare import PrepareSettings, prepare_image
from graftseg.data.store import Store, StoredCase, is_store, open_store
from graftseg.inference.inputs import check_settings, read_training_cases, stored_source
from graftseg.inference.ranking.observe import Prepared
from graftseg.recipes.recipe import Recipe


@dataclass(frozen=True)
class CaseToMeasure:
    """A labeled or unlabeled case, and the function that reads it. A task on another machine receives it by pickle."""

    name: str
    read: Callable[[], Prepared]


def cases_in(data: Path, recipe: Recipe) -> tuple[list[CaseToMeasure], list[CaseToMeasure]]:
    """Return the labeled and the unlabeled cases of a store or a folder, divided as in training."""
    labeled: Sequence[Case | StoredCase]
    unlabeled: Sequence[Case | StoredCase]
    if is_store(data):
        store = open_store(data)
        check_settings(store, recipe.data)
        used = training_cases(store, recipe.batches)
        labeled, unlabeled = (*used.labeled, *used.validation), used.unlabeled
        read: Callable[..., Prepared] = partial(_read_stored, replace(store, cases=()))
    else:
        dataset = read_training_cases(data, recipe.batches)
        labeled, unlabeled = (*dataset.of("labeled"), *dataset.of("validation")), dataset.of("unlabeled")
        read = partial(_read_scan, replace(dataset, cases=()), recipe.data)
    if not unlabeled:
        raise UserError(Code.TOO_FEW_CASES, data, "no unlabeled scans to rank", "put unlabeled scans into imagesUn")
    if not labeled:
        raise UserError(Code.TOO_FEW_CASES, data, "no labeled scans to compare with", "put label maps into labelsTr")
    return (
        [CaseToMeasure(case.name, partial(read, case, labeled=True)) for case in labeled],
        [CaseToMeasure(case.name, partial(read, case, labeled=False)) for case in unlabeled],
    )


def _read_stored(store: Store, case: StoredCase, *, labeled: bool) -> Prepared:
    stored = stored_source(store, case).read()
    label = store.read_label(case) if labeled else None
    return Prepared(stored.image, voxel_size(case.geometry, case.grid), label)


def _read_scan(dataset: Dataset, settings: PrepareSettings, case: Case, *, labeled: bool) -> Prepared:
    scan = dataset.reader.image(case)
    image, grid = prepare_image(scan, settings, where=case.images[0])
    label = None
    if labeled:
        label_scan = dataset.reader.label(case)
        checked_values(dataset, case, scan.geometry, label_scan)
        label = to_grid(label_scan.array, grid, labels=True)
    return Prepared(torch.from_numpy(image), voxel_size(scan.geometry, grid), label)


def voxel_size(geometry: Geometry, grid: Grid) -> float:
    """Return the area or volume of a prepared voxel. For a sheared volume, it is not the product of the spacings."""
    size = math.prod(grid.prepared_spacing)
    return size * (geometry.voxel_volume / math.prod(geometry.spacing)) if len(geometry.shape) == 3 else size
