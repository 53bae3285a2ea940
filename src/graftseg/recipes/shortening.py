"""Shorten a run: divide every length of a recipe by the same number."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.ops.optimizers import RAMP_INTERVAL
from graftseg.recipes.recipe import Recipe, changed, load_recipe, parse_recipe
from graftseg.recipes.settings import StageSettings

RAMP = "ramp"
"""Key of the ramp length, the only method setting that is divided."""
MIN_HEIGHT = 0.5
"""Value, from 0 to 1, that a ramp should reach by the last step."""
MIN_RISES = 12
"""Number of times that a ramp should rise in a shortened run. Fewer rises cause a warning."""
logger = logging.getLogger(__name__)


def requested_recipe(recipe: str | Path | Recipe, overrides: Iterable[str] = (), shorter: int = 1) -> Recipe:
    """Return a recipe with overrides applied and lengths divided by ``shorter``.

    Log a warning if a ramp stays so low that unlabeled scans have little weight.
    """
    full = changed(recipe, overrides) if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    result = shortened(full, shorter)
    warn_of_low_ramps(full, shorter)
    return result


def shortened(recipe: Recipe, shorter: int) -> Recipe:
    """Return a recipe with every length divided by ``shorter``. Step counts are rounded down; ramps are not rounded.

    Lengths are the steps of stages, the ramps of methods, the steps between drops of a learning rate, the interval and
    first step of ``selection``, and ``loop.training_dice_every``. The teacher's decay, the lifetime of pseudo-labels
    and the 150 steps between rises of a ramp are unchanged. Raise a UserError if a step count would become 0.
    """
    check_shorter(shorter)
    if shorter == 1:
        return recipe
    counts = _step_counts(recipe.model_dump(mode="json"))
    least, setting = min((holder[key], setting) for setting, (holder, key) in counts.items())
    if least < shorter:
        finding = f"{setting} of recipe {recipe.name} is {least} and would become 0"
        raise UserError(Code.OPTION_INVALID, f"--shorter {shorter}", finding, f"pass {least} or less")
    where = f"recipe {recipe.name} --shorter {shorter}"
    return _scaled(recipe, lambda count: count // shorter, lambda length: length / shorter, where)


def part_of(recipe: Recipe, fraction: float) -> Recipe:
    """Return a recipe with every length multiplied by ``fraction``. ``shortened`` lists the lengths.

    Step counts are rounded, but are at least 1. Ramps are not rounded.
    """
    where = f"recipe {recipe.name}, fraction {fraction:g}"
    return _scaled(recipe, lambda count: round(count * fraction), lambda length: length * fraction, where)


def _scaled(recipe: Recipe, scale: Callable[[int], int], scale_ramp: Callable[[float], float], where: str) -> Recipe:
    """Return a recipe with scaled lengths. Step counts and intervals are at least 1."""
    tree = recipe.model_dump(mode="json")
    for holder, key in _step_counts(tree).values():
        holder[key] = max(1, scale(holder[key]))
    for stage in tree["stages"]:
        if RAMP in stage["settings"]:
            stage["settings"][RAMP] = scale_ramp(stage["settings"][RAMP])
    scored = tree["selection"]
    scored["first"] = scale(scored["first"])
    for settings, key in ((scored, "every"), (tree["loop"], "training_dice_every")):
        if settings.get(key) is not None:
            settings[key] = max(1, scale(settings[key]))
    return parse_recipe(tree, where)


def check_shorter(shorter: int) -> None:
    """Raise a UserError unless ``shorter`` is a positive integer."""
    if not isinstance(shorter, int) or shorter < 1:
        finding = "not a positive integer"
        raise UserError(Code.OPTION_INVALID, f"--shorter {shorter}", finding, "pass 5 to train a fifth of the steps")


def _step_counts(tree: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """Map the dotted name of each step count to the mapping and the key under which the count is stored."""
    counts: dict[str, tuple[dict[str, Any], str]] = {}
    for index, stage in enumerate(tree["stages"]):
        where = f"stages.{index}"
        counts[f"{where}.steps"] = (stage, "steps")
        optimizers = {"optimizer": stage["optimizer"]}
        optimizers |= {f"optimizers.{part}": settings for part, settings in stage["optimizers"].items()}
        for part, settings in optimizers.items():
            if settings["schedule"]["name"] == "step":
                counts[f"{where}.{part}.schedule.every"] = (settings["schedule"], "every")
    return counts


@dataclass(frozen=True)
class _Ramp:
    """The ramp of a stage, which rises every ``interval`` steps. ``length`` is the number of rises until it is 1."""

    method: str
    where: str
    steps: int
    length: float
    interval: int

    @property
    def rises(self) -> int:
        """Number of rises up to the last step."""
        return (self.steps - 1) // self.interval

    @property
    def height(self) -> float:
        """Value at the last step, from 0 to 1."""
        rest = 1 - min(self.rises, self.length) / self.length
        return math.exp(-5 * rest**2)

    def divided(self, shorter: int) -> "_Ramp":
        """Return the ramp of a shortened run, with the same interval between rises."""
        return replace(self, steps=self.steps // shorter, length=self.length / shorter)


_warned: set[tuple[str, _Ramp]] = set()


def warn_of_low_ramps(recipe: Recipe, shorter: int = 1) -> None:
    """Log a warning for ramps that stay below one half, and for ramps that rise too rarely after shortening.

    ``recipe`` is the recipe before shortening. Each ramp is reported once, since all seeds of a recipe share it.
    """
    for index, stage in enumerate(recipe.stages):
        ramp = _ramp_of(stage, f"stages.{index}")
        if ramp is None or (recipe.name, ramp.divided(shorter)) in _warned:
            continue
        if problem := _problem(ramp, shorter):
            _warned.add((recipe.name, ramp.divided(shorter)))
            logger.warning("recipe %s%s", recipe.name, problem)


def _problem(ramp: _Ramp, shorter: int) -> str:
    """Return a problem of the ramp and its remedy as text, or an empty string."""
    if ramp.height < MIN_HEIGHT:
        remedy = f"set {ramp.where}.settings.{RAMP} to {ramp.rises} or less"
        if not ramp.rises:
            steps = f"set {ramp.where}.steps to {ramp.interval + 1} or more and {ramp.where}.settings.{RAMP} to 1"
            remedy = f"{steps}, or choose a method without a ramp"
        return f": {_too_low(ramp)}; {remedy}"
    short = ramp.divided(shorter)
    if short.height < MIN_HEIGHT:
        return f", --shorter {shorter}: {_too_low(short)}; shorten less"
    if shorter > 1 and short.rises < MIN_RISES:
        count = "once" if short.rises == 1 else f"{short.rises} times"
        finding = f"the ramp of {ramp.method} rises only {count}, so unlabeled scans may have little weight"
        return f", --shorter {shorter}: {finding}; shorten less"
    return ""


def _too_low(ramp: _Ramp) -> str:
    reach = f"reaches {100 * ramp.height:.0f} % of its maximum in {counted(ramp.steps, 'step')}"
    return f"the ramp of {ramp.method} {reach}, so unlabeled scans have little weight"


def _ramp_of(stage: StageSettings, where: str) -> _Ramp | None:
    if RAMP not in stage.settings:
        return None
    interval = int(stage.settings.get("ramp_every", RAMP_INTERVAL))
    return _Ramp(stage.method, where, stage.steps, stage.settings[RAMP], interval)
