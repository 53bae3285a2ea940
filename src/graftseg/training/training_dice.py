"""Dice of the labeled and of the unlabeled training scans during training, for the figure ``dice-over-time``.

This is the only code that opens labels of unlabeled scans while a run trains, and only if the recipe sets
``loop.training_dice_every``. The scores go to the log. Training never sees them: weights and random state are the same
as without scores.
"""

from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.data.batches import training_cases
from graftseg.data.store import Store, StoredCase
from graftseg.methods import Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.training.selection import CaseScores

SETTING = "loop.training_dice_every"


class TrainingDice:
    """Scores of a student on all labeled training scans, and on the unlabeled ones whose label is in the store."""

    def __init__(self, recipe: Recipe, store: Store, device: torch.device, every: int) -> None:
        labeled, hidden = training_cases(store, recipe.batches).labeled, hidden_cases(recipe, store)
        for case in hidden:
            store.verify_file(case, str(case.label))
        self._every = every
        self._scores = {
            "labeled": CaseScores(recipe, store, labeled, device, resident=False),
            "unlabeled": CaseScores(recipe, store, hidden, device, resident=False),
        }

    def is_due(self, step: int, *, ends_stage: bool) -> bool:
        """Return whether the scans are scored after ``step`` steps of training: at intervals, and after each stage."""
        return step % self._every == 0 or ends_stage

    def score(self, method: Method) -> dict[str, float]:
        """Return the mean Dice of labeled and of unlabeled scans. Batch statistics and random state are unchanged."""
        with eval_mode(method), torch.inference_mode():
            return {name: score(method)["dice"] for name, score in self._scores.items()}


def hidden_cases(recipe: Recipe, store: Store) -> list[StoredCase]:
    """Return the unlabeled training cases whose label is in the store."""
    return [case for case in training_cases(store, recipe.batches).unlabeled if case.label is not None]


def build_training_dice(recipe: Recipe, store: Store, device: torch.device) -> TrainingDice | None:
    """Return the scores that the recipe asks for, or None."""
    every = recipe.loop.training_dice_every
    return None if every is None else TrainingDice(recipe, store, device, every)


def check_training_dice(recipe: Recipe, store: Store | None, where: Path) -> None:
    """Raise a UserError if the recipe asks for scores of unlabeled scans and the store has no labels of them.

    A run on a folder of scans has no labels of unlabeled scans, so it always fails this check.
    """
    if recipe.loop.training_dice_every is not None and (store is None or not hidden_cases(recipe, store)):
        finding = f"{SETTING} is set, but no unlabeled scan has a label in the store"
        remedy = "prepare labeled scans, pass the store as --data, and set batches.labeled_cases to use few labels"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, remedy)
