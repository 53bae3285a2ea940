"""The same training in fewer steps: every length of a recipe divided by one number, whatever its method."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.recipes.ramps import RAMP, tell_of_ramps
from graftseg.recipes.recipe import Recipe, changed, load_recipe, parse_recipe


def asked_for(recipe: str | Path | Recipe, overrides: Iterable[str] = (), shorter: int = 1) -> Recipe:
    """A recipe as a caller wants it: with the overrides, and then so many times shorter.

    A line tells where its ramps stay so low that unlabeled scans count little.
    """
    given = changed(recipe, overrides) if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    asked = shortened(given, shorter)
    tell_of_ramps(given, shorter)
    return asked


def shortened(recipe: Recipe, shorter: int) -> Recipe:
    """A recipe with each of its lengths divided by the same number, and all else as it is.

    Lengths are the steps of every stage, the ramps of its method, and the steps after which a learning rate falls;
    polynomials follow the steps by themselves. Students are scored as many times as in the long training: the interval
    and the first step of ``selection`` are divided too. What lags behind the student by a few steps does so in a
    training of any length, and is kept: the average of a teacher, and for how long pseudo-labels hold still. So are the
    stairs in which ramps rise, of 150 steps. A whole number is rounded down; steps of a stage or of a schedule that
    would become 0 are refused.
    """
    check_shorter(shorter)
    if shorter == 1:
        return recipe
    tree = recipe.model_dump(mode="json")
    _shorten_stages(tree, shorter, recipe.name)
    scored = tree["selection"]
    scored["first"] //= shorter
    if scored["every"] is not None:
        scored["every"] = max(1, scored["every"] // shorter)
    return parse_recipe(tree, f"recipe {recipe.name} --shorter {shorter}")


def check_shorter(shorter: int) -> None:
    """Refuse what divides no length."""
    if not isinstance(shorter, int) or shorter < 1:
        raise UserError(
            Code.RECIPE_INVALID,
            f"--shorter {shorter}",
            "lengths are divided by a whole number from 1 on",
            "give 5 for a fifth",
        )


def _counted(tree: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """All whole numbers of steps that are divided, by setting: what holds each and under which key."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for index, stage in enumerate(tree["stages"]):
        where = f"stages.{index}"
        found[f"{where}.steps"] = (stage, "steps")
        optimizers = {"optimizer": stage["optimizer"]}
        optimizers |= {f"optimizers.{part}": settings for part, settings in stage["optimizers"].items()}
        for part, settings in optimizers.items():
            if settings["schedule"]["name"] == "step":
                found[f"{where}.{part}.schedule.every"] = (settings["schedule"], "every")
    return found


def _shorten_stages(tree: dict[str, Any], shorter: int, name: str) -> None:
    """Divide the lengths of all stages, in place; the smallest says how far that can go."""
    counted = _counted(tree)
    least, setting = min((holder[key], setting) for setting, (holder, key) in counted.items())
    if least < shorter:
        finding = f"nothing would be left of {setting} in recipe {name}, which is {least}"
        raise UserError(Code.RECIPE_INVALID, f"--shorter {shorter}", finding, f"give {least} or less")
    for holder, key in counted.values():
        holder[key] //= shorter
    for stage in tree["stages"]:
        if RAMP in stage["settings"]:
            stage["settings"][RAMP] /= shorter
