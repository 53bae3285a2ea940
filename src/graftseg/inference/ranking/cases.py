"""The scans that could be annotated next, and the labeled ones they are set beside. No hidden label is ever opened."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.batches import BatchSettings, training_cases
from graftseg.data.dataset import Dataset, label_path
from graftseg.data.grid import Grid, grid_difference, to_grid
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare_image
from graftseg.data.store import Store, StoredCase, is_store, open_store
from graftseg.recipes.recipe import Recipe


@dataclass(frozen=True)
class Prepared:
    """A prepared image ``(C, *space)``, the size of a voxel in mm to the power of its axes, and a label map or None."""

    image: Tensor
    voxel: float
    label: NDArray[Any] | None


@dataclass(frozen=True)
class Candidate:
    """A case that can be read."""

    name: str
    read: Callable[[], Prepared]


@dataclass(frozen=True)
class Candidates:
    """The cases of a data set by what is known of them."""

    labeled: tuple[Candidate, ...]
    unlabeled: tuple[Candidate, ...]


def candidates_in(data: Path, recipe: Recipe) -> Candidates:
    """Labeled and unlabeled cases as a run of the recipe sees them, of a prepared store or a folder of scans."""
    found = _of_store(open_store(data), recipe) if is_store(data) else _of_scans(read_layout(data), recipe)
    if not found.unlabeled:
        raise UserError(
            Code.TOO_FEW_CASES, data, "there are no unlabeled scans to rank", "put scans without labels into imagesUn"
        )
    if not found.labeled:
        raise UserError(
            Code.TOO_FEW_CASES, data, "there are no labeled scans to compare with", "put label maps into labelsTr"
        )
    return found


def _of_store(store: Store, recipe: Recipe) -> Candidates:
    if other := store.settings_difference(recipe.data.model_dump(mode="json")):
        finding = f"the store was prepared otherwise than the run asks for ({other})"
        raise UserError(
            Code.STORE_MISMATCH,
            store.path,
            finding,
            "prepare the scans with RUN/recipe.yaml or give the scans themselves",
        )
    cases = training_cases(store, recipe.batches)

    def candidate(case: StoredCase, labeled: bool) -> Candidate:
        return Candidate(case.name, lambda: _stored(store, case, labeled=labeled))

    known = (*cases.labeled, *cases.validation)
    return Candidates(
        tuple(candidate(case, True) for case in known), tuple(candidate(case, False) for case in cases.unlabeled)
    )


def _stored(store: Store, case: StoredCase, *, labeled: bool) -> Prepared:
    store.verify_file(case, case.image)
    label = np.array(store.label(case)) if labeled else None
    return Prepared(torch.from_numpy(np.array(store.image(case))), voxel_size(case.geometry, case.grid), label)


def _of_scans(dataset: Dataset, recipe: Recipe) -> Candidates:
    if dataset.problems:
        raise dataset.problems[0]
    seen = _as_trained(dataset, recipe.batches)

    def candidate(case: Case) -> Candidate:
        return Candidate(case.name, lambda: _scanned(seen, case, recipe.data))

    known = (*seen.of("labeled"), *seen.of("validation"))
    return Candidates(tuple(map(candidate, known)), tuple(map(candidate, seen.of("unlabeled"))))


def _as_trained(dataset: Dataset, batches: BatchSettings) -> Dataset:
    """The data set as the run was allowed to see it; more labeled cases than at its time are all taken."""
    return dataset.for_training(batches.labeled_cases, batches.validation_cases, batches.held_out)


def _scanned(dataset: Dataset, case: Case, settings: PrepareSettings) -> Prepared:
    scan = dataset.reader.image(case)
    image, grid = prepare_image(scan, settings, where=case.images[0])
    label = None if case.label is None else to_grid(_label(dataset, case, scan.geometry), grid, labels=True)
    return Prepared(torch.from_numpy(image), voxel_size(scan.geometry, grid), label)


def _label(dataset: Dataset, case: Case, geometry: Geometry) -> NDArray[Any]:
    label = dataset.reader.label(case)
    if difference := grid_difference(geometry, label.geometry):
        finding = f"image and label lie on different grids: {difference}"
        raise UserError(
            Code.TOO_FEW_CASES,
            label_path(case),
            finding,
            "resample the label to the image's grid or correct its header",
        )
    return label.array


def voxel_size(geometry: Geometry, grid: Grid) -> float:
    """The area or volume of a prepared voxel, whose edges are as far from right angles as those of the scan."""
    size = math.prod(grid.prepared_spacing)
    return size * (geometry.voxel_volume / math.prod(geometry.spacing)) if len(geometry.shape) == 3 else size
