"""A page lists the settings that differ from the shipped recipe."""

from typing import Any

import pytest

from graftseg.recipes.recipe import load_recipe
from graftseg.reporting.facts import changed_settings, run_section


def tree(*overrides: str) -> dict[str, Any]:
    return load_recipe("acdc-3/bcp", overrides).model_dump(mode="json")


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        (tree(), ""),
        (tree("seed=7", "loop.log_every=50"), ""),
        (tree("stages.0.steps=6", "stages.1.steps=6"), "stages.0.steps, stages.1.steps"),
        (tree("stages.0.steps=6") | {"name": "my own"}, ""),
        ({"name": "of another day"}, ""),
        (None, ""),
    ],
)
def test_changed_settings(recipe: dict[str, Any] | None, changes: str) -> None:
    assert changed_settings(recipe) == changes


def test_changed_settings_are_listed_below_the_recipe() -> None:
    rows = [("Method", "bcp"), ("Recipe", "acdc-3/bcp"), ("Seed", "0")]
    page = str(run_section(tree("stages.0.steps=6"), rows))
    assert page.index("acdc-3/bcp") < page.index("Settings changed from this recipe") < page.index("Seed")
    assert "Settings changed" not in str(run_section(tree(), rows))
