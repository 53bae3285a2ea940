"""Phantoms of the size that a recipe expects, for measurements without data."""

import shutil
from math import ceil
from pathlib import Path

import numpy as np

from graftseg.core.files import write_json
from graftseg.core.types import Geometry
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import CLASSES, make_phantom
from graftseg.data.prepare import prepare
from graftseg.data.scans import write_label, write_scan
from graftseg.data.store import Store
from graftseg.recipes.recipe import Recipe

# volumes of the left atrium are about 1.5 times as large as a patch in plane, and slightly deeper
VOLUME = (1.5, 1.5, 1.1)
# ACDC slices are slightly smaller than the patch they are resized to; a volume has about ten
SLICE, SLICES = 0.85, 10
DIFFERENT = 4
NAMES = {2: CLASSES, 3: {0: "background", 1: "heart"}}


def synthetic_shape(recipe: Recipe) -> tuple[int, ...]:
    """Return the shape of the volumes: the patch times the factors of the published benchmarks."""
    patch = recipe.batches.patch
    if recipe.data.dimensions == 2:
        return (*(ceil(SLICE * n) for n in patch), SLICES)
    return tuple(ceil(factor * n) for factor, n in zip(VOLUME, patch, strict=True))


def synthetic_store(recipe: Recipe, folder: Path) -> Store:
    """Write and prepare phantoms: slices with four classes or volumes with two, as in the benchmarks.

    Most phantoms are copies of a few, because the time depends only on their size and number.
    """
    scans, shape = folder / "scans", synthetic_shape(recipe)
    settings = recipe.batches
    labeled = (settings.labeled_cases or 2 * settings.labeled) + settings.validation_cases
    spacing = recipe.data.spacing or ()
    steps = [step or 1.0 for step in (*spacing, *(None,) * (3 - len(spacing)))]
    geometry = Geometry(shape, tuple(tuple(row) for row in np.diag([*steps, 1.0]).tolist()))
    different = min(DIFFERENT, labeled)
    for index in range(different):
        phantom = make_phantom(0, "unlabeled", index, shape, shift=0.0)
        image = (phantom.image - phantom.image.mean()) / phantom.image.std()
        label = phantom.label if recipe.data.dimensions == 2 else (phantom.label > 0).astype(np.uint8)
        write_scan(_place(scans, "imagesTr", index), image.astype(np.float32), geometry)
        write_label(_place(scans, "labelsTr", index), label, geometry)
    for kind, count in (("imagesTr", labeled), ("labelsTr", labeled), ("imagesUn", 2 * settings.unlabeled)):
        _repeat(scans, kind, different, count)
    names = NAMES[recipe.data.dimensions]
    write_json(scans / "dataset.json", {"name": "phantoms", "labels": {name: value for value, name in names.items()}})
    return prepare(read_layout(scans), folder / "store", recipe.data)


def _place(scans: Path, kind: str, index: int) -> Path:
    stem = f"{'other' if kind == 'imagesUn' else 'case'}_{index:03d}"
    return scans / kind / (f"{stem}.nii.gz" if kind == "labelsTr" else f"{stem}_0000.nii.gz")


def _repeat(scans: Path, kind: str, different: int, count: int) -> None:
    """Copy the first ``different`` files of a kind in turn until there are ``count`` files."""
    source = "imagesTr" if kind == "imagesUn" else kind
    for index in range(count):
        target = _place(scans, kind, index)
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            shutil.copy(_place(scans, source, index % different), target)
