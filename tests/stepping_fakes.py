"""Steps of one stage without the training loop, and a fake CUDA graph."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from tiny import tiny_recipe
from torch import Tensor

from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import Method
from graftseg.ops.optimizers import build_optimizer
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training.clock import StepClock
from graftseg.training.step import Source, StepMode, Stepper, StepResult

CPU = torch.device("cpu")
STEPS = 20
SGD = {"name": "sgd", "learning_rate": 0.05, "schedule": {"name": "poly"}}
ADAM = {"name": "adam", "learning_rate": 0.01, "schedule": {"name": "poly"}}


def stage_recipe(
    network: str, method: str = "bcp", optimizer: dict[str, Any] = SGD, *, dropout: bool = False, **settings: Any
) -> Recipe:
    """Return a recipe with one stage of twenty steps on patches of eight voxels."""
    dimensions = 2 if network == "unet-2d" else 3
    return tiny_recipe(
        dimensions,
        batches={"patch": [8] * dimensions, "labeled": 2, "unlabeled": 2},
        network={"name": network, "width": 2, "levels": 2, "dropout": dropout},
        stages=[{"method": method, "steps": STEPS, "optimizer": optimizer, "settings": settings}],
    )


def batches_for(recipe: Recipe, store: Store, device: torch.device = CPU) -> Batches:
    return Batches(store, recipe.batches, seed=recipe.seed, device=device)


def stepper_of(
    recipe: Recipe,
    store: Store,
    way: StepMode | None = None,
    device: torch.device = CPU,
    *,
    batches: Batches | None = None,
) -> Stepper:
    """Return a stepper at the start of the stage, with the random state of the recipe's seed."""
    torch.manual_seed(recipe.seed)
    stage = recipe.stages[0]
    method = build_method(recipe, stage, store.channels, len(store.classes), device).train()
    return stepper_for(method, stage, batches or batches_for(recipe, store, device), way or StepMode())


def stepper_for(method: Method, stage: StageSettings, batches: Source, way: StepMode) -> Stepper:
    moved = {name: method.get_submodule(name) for name in method.trained_modules}
    optimizers = {name: build_optimizer(module, stage.optimizer_of(name)) for name, module in moved.items()}
    return Stepper(method, optimizers, stage, batches, way, StepClock(batches.device), index=0)


def losses(stepper: Stepper, steps: Iterable[int] = range(STEPS)) -> Tensor:
    """Run steps and return their terms and totals ``(steps, terms + 1)``."""
    return torch.stack([stepper(step).values for step in steps]).cpu()


class StandIn:
    """A fake graph that writes every result into the tensors of the first one, like a replayed graph."""

    made = 0

    def __init__(self, device: torch.device) -> None:
        type(self).made += 1
        self._kept: StepResult | None = None
        self._table = torch.empty(0)

    def load(self, table: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        self._table = torch.from_numpy(table)

    def run(self, function: Callable[[Tensor], StepResult]) -> StepResult:
        stepped = function(self._table)
        if self._kept is None:
            self._kept = stepped
        self._kept.values.copy_(stepped.values)
        return self._kept
