"""The same training in fewer steps: every length of a recipe divided by one number, whatever its method."""

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.ops.optimizers import STAIR
from graftseg.recipes.recipe import Recipe, changed, load_recipe, parse_recipe
from graftseg.recipes.settings import StageSettings


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


RAMP = "ramp"
"""The one setting of methods that tells how long something takes, in units of so many steps."""
LOW = 0.5
"""Part of its height that a ramp should reach; those of all shipped recipes reach nearly the whole."""
FEW = 12
"""How often a ramp should rise in a training that is shorter than its recipe."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Ramp:
    """The ramp of a stage: it rises after every ``stair`` steps, and is at its height after ``length`` rises."""

    method: str
    place: str
    steps: int
    length: float
    stair: int

    @property
    def rises(self) -> int:
        """How many times it has risen at the last step."""
        return (self.steps - 1) // self.stair

    @property
    def height(self) -> float:
        """What it is at the last step, as a part of 1."""
        rest = 1 - min(self.rises, self.length) / self.length
        return math.exp(-5 * rest**2)

    def divided(self, shorter: int) -> "_Ramp":
        """The ramp in a training that is so many times shorter; its stairs are kept."""
        return replace(self, steps=self.steps // shorter, length=self.length / shorter)


_told: set[tuple[str, _Ramp]] = set()


def height(stage: StageSettings) -> float:
    """What the ramp of a stage is at its last step, as a part of 1; it is 1 where there is none."""
    return ramp.height if (ramp := _ramp_of(stage, "")) else 1.0


def tell_of_ramps(recipe: Recipe, shorter: int = 1) -> None:
    """Warn of ramps that do not reach half their height, and of those that --shorter leaves few stairs of.

    The recipe is the one whose lengths are yet to be divided. A ramp is told of once: the seeds of a recipe, which are
    asked for together and then trained one by one, have the same.
    """
    for index, stage in enumerate(recipe.stages):
        ramp = _ramp_of(stage, f"stages.{index}")
        if ramp is None or (recipe.name, ramp.divided(shorter)) in _told:
            continue
        if sentence := _sentence(ramp, shorter):
            _told.add((recipe.name, ramp.divided(shorter)))
            logger.warning("recipe %s%s", recipe.name, sentence)


def _sentence(ramp: _Ramp, shorter: int) -> str:
    """What is wrong with a ramp, and what mends it; empty where nothing is."""
    if ramp.height < LOW:
        return f": {_low(ramp)}; {_remedy(ramp)}"
    short = ramp.divided(shorter)
    if short.height < LOW:
        return f", --shorter {shorter}: {_low(short)}; shorten less"
    if shorter > 1 and short.rises < FEW:
        often = "once" if short.rises == 1 else f"{short.rises} times"
        finding = f"the ramp of {ramp.method} rises {often} only, so that unlabeled scans may count little"
        return f", --shorter {shorter}: {finding}; shorten less"
    return ""


def _low(ramp: _Ramp) -> str:
    short = f"reaches {100 * ramp.height:.0f} % of its height in {ramp.steps} step{'s' if ramp.steps > 1 else ''}"
    return f"the ramp of {ramp.method} {short}, so that unlabeled scans count little"


def _remedy(ramp: _Ramp) -> str:
    """A shorter ramp, or where it does not rise even once, more steps as well."""
    if ramp.rises:
        return f"set {ramp.place}.settings.{RAMP} to {ramp.rises} or less"
    steps = f"set {ramp.place}.steps to {ramp.stair + 1} or more and {ramp.place}.settings.{RAMP} to 1"
    return f"{steps}, or choose a method without a ramp"


def _ramp_of(stage: StageSettings, place: str) -> _Ramp | None:
    if RAMP not in stage.settings:
        return None
    stair = int(stage.settings.get("ramp_every", STAIR))
    return _Ramp(stage.method, place, stage.steps, stage.settings[RAMP], stair)
