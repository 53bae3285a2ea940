"""How high the ramp of a method gets within its stage; where it stays low, unlabeled scans count little."""

import logging
import math

from graftseg.recipe import Recipe
from graftseg.schedules import STAIR
from graftseg.stepping import StageSettings

RAMP = "ramp"
"""The one setting of methods that tells how long something takes, in units of so many steps."""
LOW = 0.5
"""Part of its height that a ramp should reach; those of all shipped recipes reach nearly the whole."""
FEW = 12
"""Stairs that a ramp should keep in a training that is shorter than its recipe."""
logger = logging.getLogger(__name__)


def height(stage: StageSettings) -> float:
    """What the ramp of a stage is at its last step, as a part of 1; it is 1 where there is none."""
    if RAMP not in stage.settings:
        return 1.0
    length = stage.settings[RAMP]
    rest = 1 - min(_rises(stage), length) / length
    return math.exp(-5 * rest**2)


def tell_of_ramps(recipe: Recipe, shorter: int = 1) -> None:
    """Warn of ramps that do not reach half their height, and of those that --shorter left few stairs of."""
    where = f"recipe {recipe.name}" + (f", --shorter {shorter}" if shorter > 1 else "")
    for index, stage in enumerate(recipe.stages):
        if (reached := height(stage)) < LOW:
            finding = f"the ramp of {stage.method} reaches {100 * reached:.0f} % of its height in {stage.steps} steps"
            remedy = _remedy(stage, f"stages.{index}")
            logger.warning("%s: %s, so that unlabeled scans count little; %s", where, finding, remedy)
        elif shorter > 1 and RAMP in stage.settings and (stairs := stage.steps // _stair(stage)) < FEW:
            finding = f"the ramp of {stage.method} rises {stairs} times only"
            logger.warning("%s: %s, so that unlabeled scans may count little", where, finding)


def _remedy(stage: StageSettings, place: str) -> str:
    """A shorter ramp, or more steps where it does not rise even once."""
    if rises := _rises(stage):
        return f"set {place}.settings.{RAMP} to {rises} or less"
    return f"set {place}.steps to more than {_stair(stage)}, after which it rises for the first time"


def _rises(stage: StageSettings) -> int:
    """How many times the ramp has risen at the last step."""
    return (stage.steps - 1) // _stair(stage)


def _stair(stage: StageSettings) -> int:
    return int(stage.settings.get("ramp_every", STAIR))
