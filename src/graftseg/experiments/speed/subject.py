"""The subject of a measurement: the self-training step of a recipe on a store and a device."""

from dataclasses import dataclass

import torch

from graftseg.core.errors import Code, UserError
from graftseg.data.batches import Batches, training_cases
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
