"""Settings of a recipe that differ from another one and change its results."""

from collections.abc import Mapping
from typing import Any

from graftseg.recipes.recipe import Recipe, differences, load_recipe, shipped_recipes


def changes_of(recipe: Recipe, inference: Mapping[str, Any] | None = None) -> list[str]:
    """Settings that differ from the shipped recipe of the same name and change the figures, but for the seed.

    ``inference`` is how the network was used, by default as the recipe says.
    """
    inference = recipe.inference.model_dump(mode="json") if inference is None else inference
    if recipe.name not in shipped_recipes():
        return []
    shipped = load_recipe(recipe.name)
    names = differing(shipped, recipe)
    usual = shipped.inference.model_dump(mode="json")
    used = [key for key, value in inference.items() if key != "windows_per_forward" and usual.get(key) != value]
    return [*names, *(f"inference.{key}" for key in used)]


def differing(one: Recipe, two: Recipe) -> list[str]:
    """Settings that differ and change the figures, but for the seed.

    Where the last checkpoint is reported, what else was scored changes nothing.
    """
    names = [name for name in differences(one, two) if name != "seed"]
    if one.selection.protocol == two.selection.protocol == "last":
        names = [name for name in names if not name.startswith("selection.")]
    return names
