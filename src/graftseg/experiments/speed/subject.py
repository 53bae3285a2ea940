"""What is timed: the self-training step of a recipe, on a store and a device."""

from dataclasses import dataclass

import torch

from graftseg.core.errors import Code, UserError
from graftseg.data.batches import training_cases
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import METHODS, Method
from graftseg.methods.bcp import Bcp, BcpConfig
from graftseg.networks import Networks
from graftseg.ops.masks import Box
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training.step import StepMode


@dataclass(frozen=True)
class Subject:
    """A stage of bidirectional copy-paste with all that it needs."""

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
        """What the networks are built from."""
        return Networks(self.recipe.network, self.store.channels, len(self.store.classes))

    @property
    def way(self) -> StepMode:
        """How a whole training of the recipe runs its steps on the device, however few of them are timed."""
        loop = self.recipe.loop
        return StepMode.chosen(
            loop.precision, self.device, self.stage.steps, compiled=loop.compiled, captured=loop.captured
        )

    def build(self) -> Method:
        """The method as a training builds it, with the weights that the recipe's seed draws."""
        torch.manual_seed(self.recipe.seed)
        return build_method(self.recipe, self.stage, self.store.channels, len(self.store.classes), self.device)


def self_training_stage(recipe: Recipe) -> StageSettings:
    """The recipe's last stage of bidirectional copy-paste."""
    stages = [stage for stage in recipe.stages if METHODS[stage.method] is Bcp]
    if not stages:
        raise UserError(
            Code.STORE_MISMATCH,
            f"recipe {recipe.name}",
            "has no stage of bcp, whose step is timed",
            "name one that has",
        )
    config = BcpConfig.model_validate(stages[-1].settings)
    if (config.direction, config.mask) != ("both", Box()):
        finding = "pastes otherwise than the step that is timed beside it"
        raise UserError(Code.STORE_MISMATCH, f"recipe {recipe.name}", finding, "name one that pastes boxes both ways")
    return stages[-1].model_copy(update={"carry_optimizer": False})


def subject_of(recipe: Recipe, store: Store, device: torch.device) -> Subject:
    """The recipe's self-training on a store that was prepared for it."""
    stage = self_training_stage(recipe)
    if other := store.settings_difference(recipe.data.model_dump(mode="json")):
        raise UserError(
            Code.STORE_MISMATCH,
            store.path,
            f"the store was prepared otherwise than recipe {recipe.name} asks for ({other})",
            "prepare the scans with this recipe or leave out --data",
        )
    if not training_cases(store, recipe.batches).unlabeled:
        raise UserError(
            Code.STORE_MISMATCH, store.path, "has no unlabeled scans", "lower batches.labeled_cases or leave out --data"
        )
    if stage.settings.get("decision") == "threshold" and len(store.classes) != 2:
        finding = f"decision is threshold and there are {len(store.classes)} classes"
        raise UserError(Code.STORE_MISMATCH, f"recipe {recipe.name}", finding, "use decision: argmax")
    return Subject(recipe, stage, store, device)
