"""Predicted foreground of unlabeled scans, around which the next stage draws patches.

Predictions are saved in the run folder, so a resumed run draws the same patches. Labels of these scans are never read.
"""

import numpy as np
import torch

from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches, training_cases
from graftseg.data.foreground import Positions, positions_in
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.predictor import Predictor
from graftseg.methods import METHODS, Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.training.step import autocast, effective_precision, uncompiled


class UnlabeledForeground:
    """Predict the unlabeled scans before a stage that learns from them, with the network of the previous stage."""

    def __init__(self, recipe: Recipe, store: Store, batches: Batches, run: RunFolder) -> None:
        self._recipe, self._store, self._batches, self._run = recipe, store, batches, run
        self._cases = training_cases(store, recipe.batches).unlabeled

    def find(self, method: Method, stage: int) -> None:
        """Predict every scan once, save the foreground positions, and let the stage draw patches around them."""
        if not self._applies_to(stage):
            return
        recipe, device, classes = self._recipe, self._batches.device, len(self._store.classes)
        settings = recipe.inference.model_copy(update={"flips": False})
        patch, fit = recipe.batches.patch, recipe.batches.fit
        predictor = Predictor(method.segment, patch=patch, settings=settings, classes=classes, device=device, fit=fit)
        precision = effective_precision(recipe.loop.precision, METHODS[recipe.stages[stage - 1].method], device)
        with eval_mode(method), uncompiled(), autocast(precision, device):
            positions = Positions(tuple(positions_in(self._labels(predictor, case)) for case in self._cases))
        positions.save(self._run.foreground_file(stage))
        self._batches.aim(stage, positions)

    def restore(self, stage: int) -> None:
        """Let a resumed stage draw patches around the saved positions."""
        if self._applies_to(stage):
            self._batches.aim(stage, Positions.load(self._run.foreground_file(stage)))

    def _applies_to(self, stage: int) -> bool:
        """Return whether a stage draws patches around predicted foreground."""
        learns = METHODS[self._recipe.stages[stage].method].uses_unlabeled
        return stage > 0 and learns and self._recipe.batches.foreground > 0

    def _labels(self, predictor: Predictor, case: StoredCase) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
        self._store.verify_file(case, case.image)
        image = torch.from_numpy(np.array(self._store.image(case)))
        return predictor.prepared_labels(image, Grid.identity(case.shape)).cpu().numpy()
