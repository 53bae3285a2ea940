"""How far a run is from the recipe that it is called by."""

from collections.abc import Iterable, Iterator
from typing import Any

from graftseg.core.errors import UserError
from graftseg.recipes.changes import changes_of
from graftseg.recipes.recipe import first_few, parse_recipe


def with_variation(rows: Iterable[tuple[str, str]], recipe: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Rows about a run, and after the one of its recipe in which settings it differs from the shipped one."""
    for name, value in rows:
        yield name, value
        if name == "Recipe":
            yield "Differs from that recipe in", variation_of(recipe)


def variation_of(recipe: dict[str, Any] | None) -> str:
    """Settings, in words, that a shipped recipe of the same name has otherwise; empty where there is no such one."""
    try:
        return first_few(changes_of(parse_recipe(recipe or {}, "recipe.yaml")))
    except UserError:
        # pages are made of older runs too, whose recipes need not load any more
        return ""
