"""Where the network of a stage sees foreground in the unlabeled scans, for the batches of the next stage.

What it sees is kept in the run folder, so that a run that resumes draws the same patches. Labels of these scans, should
somebody have them, play no part.
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
from graftseg.networks.layers import evaluating
from graftseg.recipes.recipe import Recipe
from graftseg.training.step import autocast, precise, uncompiled


class Sightings:
    """Predicts the unlabeled scans before a stage that learns from them and that follows another one."""

    def __init__(self, recipe: Recipe, store: Store, batches: Batches, run: RunFolder) -> None:
        self._recipe, self._store, self._batches, self._run = recipe, store, batches, run
        self._cases = training_cases(store, recipe.batches).unlabeled

    def look(self, method: Method, stage: int) -> None:
        """Predict every scan once with the network of the stage before, keep what is found and draw around it."""
        if not self._concern(stage):
            return
        predictor = Predictor(
            method.segment,
            patch=self._recipe.batches.patch,
            settings=self._recipe.inference.model_copy(update={"flips": False}),
            classes=len(self._store.classes),
            device=self._batches.device,
            fit=self._recipe.batches.fit,
        )
        device = self._batches.device
        precision = precise(self._recipe.loop.precision, METHODS[self._recipe.stages[stage - 1].method], device)
        with evaluating(method), uncompiled(), autocast(precision, device):
            positions = Positions(tuple(positions_in(self._labels(predictor, case)) for case in self._cases))
        positions.save(self._run.foreground_file(stage))
        self._batches.aim(stage, positions)

    def recall(self, stage: int) -> None:
        """Draw around what was found before a stage that has begun."""
        if self._concern(stage):
            shapes = [case.shape for case in self._cases]
            self._batches.aim(stage, Positions.load(self._run.foreground_file(stage), shapes))

    def _concern(self, stage: int) -> bool:
        """Whether the patches of a stage are drawn around what the stage before has found."""
        learns = METHODS[self._recipe.stages[stage].method].uses_unlabeled
        return stage > 0 and learns and self._recipe.batches.foreground > 0

    def _labels(self, predictor: Predictor, case: StoredCase) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
        self._store.verify_file(case, case.image)
        image = torch.from_numpy(np.array(self._store.image(case)))
        labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = (
            predictor.prepared_labels(image, Grid.identity(case.shape)).cpu().numpy()
        )
        return labels
