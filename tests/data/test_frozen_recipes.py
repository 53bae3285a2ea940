"""The recipes of the paper stay the same: their resolved settings, and the random parameters of their batches.

``frozen_recipes.json`` contains the expected digests. After an intended change, print the new content with
``python tests/data/test_frozen_recipes.py``.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from store_fakes import build

from graftseg.data.batches import Batches
from graftseg.methods import METHODS
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe

FROZEN = Path(__file__).with_name("frozen_recipes.json")
FAMILIES = ("la-", "acdc-", "pancreas-")
SHAPES = {"la-8/bcp": (118, 114, 83), "acdc-7/bcp": (130, 141, 3), "pancreas-12/bcp": (99, 100, 103)}
STEPS = ((0, 0), (0, 1), (0, 57), (1, 0), (1, 999))
"""Stages and steps whose batches are drawn."""


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested settings by dotted name."""
    if not value or not isinstance(value, dict | list | tuple):
        yield key, value
        return
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from flat(part, f"{key}.{name}" if key else str(name))


def resolved(recipe: Recipe) -> dict[str, Any]:
    """Return all settings, with the defaults of the methods. Descriptions and published scores are no settings."""
    tree = recipe.model_dump(mode="json", exclude={"about", "published"})
    for stage, content in zip(recipe.stages, tree["stages"], strict=True):
        content["settings"] = METHODS[stage.method].Config.model_validate(stage.settings).model_dump(mode="json")
    return dict(flat(tree))


def without_new_defaults(recipe: Recipe, known: set[str]) -> dict[str, Any]:
    """Return the settings that are known or not the default. A new setting that is off changes no digest."""
    changed = dict(flat(recipe.model_dump(mode="json", exclude={"about", "published"}, exclude_defaults=True)))
    everything = resolved(recipe)
    return {key: value for key, value in everything.items() if key in known or key in changed}


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def draws(recipe: Recipe, shape: tuple[int, ...], folder: Path) -> list[Any]:
    """Return the random parameters of some batches, rounded, because angles may differ in their last digit."""
    settings = recipe.batches.model_copy(update={"labeled_cases": None, "validation_cases": 0})
    store = build(folder, [shape, tuple(side + 1 for side in shape)], [shape] * 2)
    batches = Batches(store, settings, seed=recipe.seed, device="cpu")
    return [np.round(batches.draw(*step), 4).tolist() for step in STEPS]


def published() -> list[str]:
    return [name for name in shipped_recipes() if name.startswith(FAMILIES)]


def test_the_settings_of_published_recipes_are_frozen() -> None:
    frozen = json.loads(FROZEN.read_text())
    known = set(frozen["settings"])
    found = {name: digest(without_new_defaults(load_recipe(name), known)) for name in published()}
    differences = sorted({name for name, _ in found.items() ^ frozen["recipes"].items()})
    assert not differences, f"the settings of these recipes changed: {', '.join(differences)}"


@pytest.mark.parametrize("name", SHAPES)
def test_the_batches_of_published_recipes_are_frozen(name: str, tmp_path: Path) -> None:
    assert digest(draws(load_recipe(name), SHAPES[name], tmp_path)) == json.loads(FROZEN.read_text())["batches"][name]


def content(folder: Path) -> dict[str, Any]:
    """Return the digests of the current code."""
    loaded = {name: load_recipe(name) for name in published()}
    names = sorted(set().union(*map(resolved, loaded.values())))
    recipes = {name: digest(without_new_defaults(recipe, set(names))) for name, recipe in loaded.items()}
    batches = {name: digest(draws(loaded[name], shape, folder / name)) for name, shape in SHAPES.items()}
    return {"settings": names, "recipes": recipes, "batches": batches}


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        print(json.dumps(content(Path(temporary)), indent=1))
