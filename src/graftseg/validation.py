"""Scores of held-out labeled cases during a training."""

import numpy as np
import torch

from graftseg.data.batches import training_cases
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.engine import Validate
from graftseg.inference import predict_labels
from graftseg.methods import Method
from graftseg.metrics import dice
from graftseg.recipe import Recipe


def validator(recipe: Recipe, store: Store, device: torch.device) -> Validate | None:
    """A function that scores a method on the held-out cases, or None if the recipe holds none out."""
    held_out = training_cases(store, recipe.batches).validation
    if not held_out:
        return None

    def validate(method: Method) -> dict[str, float]:
        scores = np.mean([_dice_by_class(method, case) for case in held_out], axis=0)
        named = {f"dice {name}": float(score) for name, score in zip(store.classes[1:], scores, strict=True)}
        return {"dice": float(scores.mean()), **named}

    def _dice_by_class(method: Method, case: StoredCase) -> list[float]:
        image = torch.from_numpy(np.array(store.image(case)))
        labels = predict_labels(
            method.segment,
            image,
            Grid.identity(case.shape),
            patch=recipe.batches.patch,
            settings=recipe.inference,
            classes=len(store.classes),
            device=device,
        )
        reference = np.asarray(store.label(case))
        return [dice(labels == value, reference == value) for value in range(1, len(store.classes))]

    return validate
