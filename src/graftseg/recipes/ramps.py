"""How high the ramp of a method gets within its stage; where it stays low, unlabeled scans count little."""

import logging
import math
from dataclasses import dataclass, replace

from graftseg.ops.schedules import STAIR
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings

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
