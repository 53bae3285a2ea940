"""The subject of a measurement: the self-training step of a recipe, on a store or on phantoms of the same size."""

import shutil
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_json
from graftseg.core.types import Geometry
from graftseg.data.batches import Batches, training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import CLASSES, make_phantom
from graftseg.data.prepare import prepare
from graftseg.data.scans import write_label, write_scan
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import METHODS, Method
from graftseg.methods.bcp import Bcp, BcpConfig
from graftseg.networks import Networks
from graftseg.ops.masks import Box
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training.run import check_settings
from graftseg.training.step import StepMode

# left atrium volumes are about 1.5 times as large as a patch along two axes, and slightly larger along the third
VOLUME_FACTORS = (1.5, 1.5, 1.1)
# ACDC slices are slightly smaller than the patch to which they are resized, and a volume has about ten slices
SLICE_FACTOR, SLICE_COUNT = 0.85, 10
DISTINCT_PHANTOMS = 4
CLASS_NAMES = {2: CLASSES, 3: {0: "background", 1: "heart"}}  # by number of dimensions


@dataclass(frozen=True)
class Subject:
    """A stage of bidirectional copy-paste, with its recipe, store and device."""

    recipe: Recipe
    stage: StageSettings
    store: Store
    device: torch.device

    @property
    def config(self) -> BcpConfig:
        """The settings of the method."""
        return BcpConfig.model_validate(self.stage.settings)

    @property
    def networks(self) -> Networks:
        """The builder of the networks."""
        return Networks(self.recipe.network, self.store.channels, len(self.store.classes))

    @property
    def mode(self) -> StepMode:
        """The step mode of a complete training run of the recipe on the device."""
        loop, steps = self.recipe.loop, self.stage.steps
        return StepMode.chosen(loop.precision, self.device, steps, compiled=loop.compiled, captured=loop.captured)

    def batches(self) -> Batches:
        """Load the training scans into the memory of the device."""
        return Batches(self.store, self.recipe.batches, seed=self.recipe.seed, device=self.device)

    def build(self) -> Method:
        """Build the method with the initial weights of the recipe's seed."""
        torch.manual_seed(self.recipe.seed)
        return build_method(self.recipe, self.stage, self.store.channels, len(self.store.classes), self.device)


def self_training_stage(recipe: Recipe) -> StageSettings:
    """Return the last bcp stage of a recipe, with a new optimizer. Raise if none pastes boxes in both directions."""
    stages = [stage for stage in recipe.stages if METHODS[stage.method] is Bcp]
    if not stages:
        finding = "has no stage with the method bcp"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "choose a recipe like la-8/bcp")
    config = BcpConfig.model_validate(stages[-1].settings)
    if (config.direction, config.mask) != ("both", Box()):
        finding = "the bcp stage must paste boxes in both directions"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "choose a recipe like la-8/bcp")
    return stages[-1].model_copy(update={"carry_optimizer": False})


def subject_of(recipe: Recipe, store: Store, device: torch.device) -> Subject:
    """Return the self-training stage of a recipe on a store. Raise if the store does not fit the recipe."""
    stage = self_training_stage(recipe)
    check_settings(store, recipe)
    if not training_cases(store, recipe.batches).unlabeled:
        remedy = "lower batches.labeled_cases or omit --data"
        raise UserError(Code.STORE_MISMATCH, store.path, "has no unlabeled scans", remedy)
    if stage.settings.get("decision") == "threshold" and len(store.classes) != 2:
        finding = f"decision is threshold, but the store has {len(store.classes)} classes"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "use decision: argmax")
    return Subject(recipe, stage, store, device)


def synthetic_shape(recipe: Recipe) -> tuple[int, ...]:
    """Return the shape of the volumes. Its ratio to the patch is about the same as in the published benchmarks."""
    patch = recipe.batches.patch
    if recipe.data.dimensions == 2:
        return (*(ceil(SLICE_FACTOR * n) for n in patch), SLICE_COUNT)
    return tuple(ceil(factor * n) for factor, n in zip(VOLUME_FACTORS, patch, strict=True))


def synthetic_store(recipe: Recipe, folder: Path) -> Store:
    """Write and prepare phantoms: 2-D slices with four classes, or volumes with two classes, as in the benchmarks.

    Only a few phantoms are distinct and the others are copies, because times depend only on size and number.
    """
    scans, shape = folder / "scans", synthetic_shape(recipe)
    settings = recipe.batches
    labeled = (settings.labeled_cases or 2 * settings.labeled) + settings.validation_cases
    spacing = recipe.data.spacing or ()
    steps = [step or 1.0 for step in (*spacing, *(None,) * (3 - len(spacing)))]
    geometry = Geometry(shape, tuple(tuple(row) for row in np.diag([*steps, 1.0]).tolist()))
    distinct = min(DISTINCT_PHANTOMS, labeled)
    for index in range(distinct):
        phantom = make_phantom(0, "unlabeled", index, shape, shift=0.0)
        image = (phantom.image - phantom.image.mean()) / phantom.image.std()
        label = phantom.label if recipe.data.dimensions == 2 else (phantom.label > 0).astype(np.uint8)
        write_scan(folder / f"image_{index}.nii.gz", image.astype(np.float32), geometry)
        write_label(folder / f"label_{index}.nii.gz", label, geometry)
    files = {
        "imagesTr/case_{:03d}_0000.nii.gz": ("image", labeled),
        "labelsTr/case_{:03d}.nii.gz": ("label", labeled),
        "imagesUn/other_{:03d}_0000.nii.gz": ("image", 2 * settings.unlabeled),
    }
    for name, (kind, count) in files.items():
        (scans / name).parent.mkdir(parents=True)
        for index in range(count):
            shutil.copy(folder / f"{kind}_{index % distinct}.nii.gz", scans / name.format(index))
    names = CLASS_NAMES[recipe.data.dimensions]
    write_json(scans / "dataset.json", {"name": "phantoms", "labels": {name: value for value, name in names.items()}})
    return prepare(read_layout(scans), folder / "store", recipe.data)
