"""Settings that differ between two recipes and affect the metrics."""

from collections.abc import Mapping
from typing import Any

from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe, training_differences


def changes_of(recipe: Recipe, inference: Mapping[str, Any] | None = None) -> list[str]:
    """Return the settings, except the seed, that affect the metrics and differ from the shipped recipe of this name.

    If no shipped recipe has this name, return no settings. ``inference`` are the settings used for prediction, by
    default the inference settings of the recipe.
    """
    inference = recipe.inference.model_dump(mode="json") if inference is None else inference
    if recipe.name not in shipped_recipes():
        return []
    shipped = load_recipe(recipe.name)
    names = metric_differences(shipped, recipe)
    default = shipped.inference.model_dump(mode="json")
    compared = inference.keys() - {"windows_per_forward", "precision"}
    used = [key for key, value in inference.items() if key in compared and default.get(key) != value]
    return [*names, *(f"inference.{key}" for key in used)]


def metric_differences(first: Recipe, second: Recipe) -> list[str]:
    """Return the settings, except the seed, that differ and affect the metrics.

    Selection settings are ignored if both recipes report the last checkpoint.
    """
    names = [name for name in training_differences(first, second) if name != "seed"]
    if first.selection.protocol == second.selection.protocol == "last":
        names = [name for name in names if not name.startswith("selection.")]
    return names
