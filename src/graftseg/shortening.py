"""The same training in fewer steps: every length of a recipe divided by one number, whatever its method."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graftseg.errors import UserError
from graftseg.ramps import RAMP, tell_of_ramps
from graftseg.recipe import Recipe, changed, load_recipe, parse_recipe


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
    for index, stage in enumerate(tree["stages"]):
        _shorten_stage(stage, f"stages.{index}", shorter, recipe.name)
    scored = tree["selection"]
    scored["first"] //= shorter
    if scored["every"] is not None:
        scored["every"] = max(1, scored["every"] // shorter)
    return parse_recipe(tree, f"recipe {recipe.name} --shorter {shorter}")


def check_shorter(shorter: int) -> None:
    """Refuse what divides no length."""
    if not isinstance(shorter, int) or shorter < 1:
        raise UserError(f"--shorter {shorter}", "lengths are divided by a whole number from 1 on", "give 5 for a fifth")


def _shorten_stage(stage: dict[str, Any], where: str, shorter: int, name: str) -> None:
    """Divide the lengths of one stage, in place."""
    optimizers = {"optimizer": stage["optimizer"]}
    optimizers |= {f"optimizers.{part}": settings for part, settings in stage["optimizers"].items()}
    counted = {f"{where}.steps": (stage, "steps")}
    for part, settings in optimizers.items():
        if settings["schedule"]["name"] == "step":
            counted[f"{where}.{part}.schedule.every"] = (settings["schedule"], "every")
    for setting, (holder, key) in counted.items():
        if holder[key] < shorter:
            finding = f"nothing would be left of {setting} in recipe {name}, which is {holder[key]}"
            raise UserError(f"--shorter {shorter}", finding, f"give {holder[key]} or less")
        holder[key] //= shorter
    if RAMP in stage["settings"]:
        stage["settings"][RAMP] /= shorter
