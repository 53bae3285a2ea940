"""A run brought to its end: begun, gone on with where it was stopped, or left as it is."""

import torch

from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.recipes.recipe import SAME, Recipe, differences, first_few, load_recipe
from graftseg.training.progress_labels import ALONE, Leg
from graftseg.training.run import train_run


def complete(recipe: Recipe, store: Store, run: RunFolder, device: torch.device, leg: Leg = ALONE) -> None:
    """Train, or go on where the training was stopped; a run that has ended stays if it is what would be trained.

    ``leg`` is what a stop is said to have been in, and what its progress tells of.
    """
    if is_complete(recipe, store, run):
        return
    outcome = train_run(recipe, store.path, run, device, resume=run.exists, leg=leg)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps, where=leg.name)


def is_complete(recipe: Recipe, store: Store, run: RunFolder) -> bool:
    """Whether a run has ended and its network is there; one that is not what would be trained now is refused."""
    if not run.exists or run.manifest().get("status") != "finished":
        return False
    if other := differences(recipe, load_recipe(run.recipe_file)):
        finding = f"the run was trained with other settings ({first_few(other)})"
        raise UserError(Code.RUN_MISMATCH, run.recipe_file, finding, SAME)
    if run.begun()["store"]["identity"] != store.identity:
        raise UserError(
            Code.RUN_MISMATCH,
            run.path,
            f"the run was not trained on {store.path}",
            "give the same --data or another --out",
        )
    return run.weights_file.is_file()
