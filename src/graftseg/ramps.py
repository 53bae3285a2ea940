"""How high the ramp of a method gets within its stage; where it stays low, unlabeled scans count little."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from graftseg.recipe import Recipe
from graftseg.schedules import STAIR
from graftseg.stepping import StageSettings

RAMP = "ramp"
"""The one setting of methods that tells how long something takes, in units of so many steps."""
LOW = 0.5
"""Part of its height that a ramp should reach; those of all shipped recipes reach nearly the whole."""
FEW = 12
"""How often a ramp should rise in a training that is shorter than its recipe."""
COARSE = 64
"""Part of a divisor by which a smaller one is looked for."""
logger = logging.getLogger(__name__)
_held: ContextVar[dict[str, list[str]] | None] = ContextVar("held", default=None)


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

    def divided(self, shorter: int) -> "_Ramp":
        """The ramp in a training that is so many times shorter; its stairs are kept."""
        return replace(self, steps=self.steps // shorter, length=self.length / shorter)


def height(stage: StageSettings) -> float:
    """What the ramp of a stage is at its last step, as a part of 1; it is 1 where there is none."""
    return _height(ramp.rises, ramp.length) if (ramp := _ramp_of(stage, "")) else 1.0


def tell_of_ramps(recipe: Recipe, shorter: int = 1) -> None:
    """Warn of ramps that do not reach half their height, and of those that --shorter leaves few stairs of.

    The recipe is the one whose lengths are yet to be divided. Within ``told_when_trained`` a recipe that comes for the
    first time is going to be trained later, and when it comes again that is about to happen.
    """
    sentences, held = _sentences(recipe, shorter), _held.get()
    if held is not None and recipe.name not in held:
        held[recipe.name] = sentences
        return
    if held is not None:
        sentences, held[recipe.name] = held[recipe.name], []
    for sentence in sentences:
        logger.warning("%s", sentence)


@contextmanager
def told_when_trained() -> Iterator[None]:
    """Where several trainings are of one recipe: tell of its ramps once, when the first of them begins."""
    token = _held.set({})
    try:
        yield
    finally:
        _held.reset(token)


def _sentences(recipe: Recipe, shorter: int) -> list[str]:
    where = f"recipe {recipe.name}" + (f", --shorter {shorter}" if shorter > 1 else "")
    found = (_ramp_of(stage, f"stages.{index}") for index, stage in enumerate(recipe.stages))
    ramps = [ramp for ramp in found if ramp is not None]
    told = {ramp: finding for ramp in ramps if (finding := _finding(ramp.divided(shorter), shorter))}
    less = _less(ramps, shorter) if told and shorter > 1 else 0
    return [f"{where}: {finding}; {_remedy(ramp, shorter, less)}" for ramp, finding in told.items()]


def _finding(ramp: _Ramp, shorter: int) -> str:
    """What is wrong with a ramp whose lengths were divided; empty where nothing is."""
    if (reached := _height(ramp.rises, ramp.length)) < LOW:
        short = f"reaches {100 * reached:.0f} % of its height in {ramp.steps} step{'s' if ramp.steps > 1 else ''}"
        return f"the ramp of {ramp.method} {short}, so that unlabeled scans count little"
    if shorter > 1 and ramp.rises < FEW:
        often = "once" if ramp.rises == 1 else f"{ramp.rises} times"
        return f"the ramp of {ramp.method} rises {often} only, so that unlabeled scans may count little"
    return ""


def _remedy(ramp: _Ramp, shorter: int, less: int) -> str:
    """One that works as it is told: settings are given before --shorter divides them."""
    if less:
        return f"shorten less: --shorter {less}" if less > 1 else "leave out --shorter"
    if shorter == 1 and ramp.rises:
        return f"set {ramp.place}.settings.{RAMP} to {ramp.rises} or less"
    before = ", which --shorter divides" if shorter > 1 else ""
    steps = _needed(ramp.divided(shorter), shorter) * shorter
    return f"set {ramp.place}.steps to {steps} or more{before}, or choose a method without a ramp"


def _needed(ramp: _Ramp, shorter: int) -> int:
    """Steps with which nothing would be wrong with a ramp of this length."""
    rises = max(math.ceil(ramp.length * (1 - math.sqrt(-math.log(LOW) / 5))), FEW if shorter > 1 else 1)
    while _height(rises, ramp.length) < LOW:
        rises += 1
    return rises * ramp.stair + 1


def _less(ramps: Sequence[_Ramp], shorter: int) -> int:
    """A smaller divisor with which nothing is wrong with any ramp; 0 where even the whole training has one too low."""
    if any(_finding(ramp, 1) for ramp in ramps):
        return 0
    less = min(shorter - 1, *(ramp.steps // (FEW * ramp.stair + 1) for ramp in ramps))
    while less > 1 and any(_finding(ramp.divided(less), less) for ramp in ramps):
        less -= max(1, less // COARSE)
    return max(1, less)


def _ramp_of(stage: StageSettings, place: str) -> _Ramp | None:
    if RAMP not in stage.settings:
        return None
    stair = int(stage.settings.get("ramp_every", STAIR))
    return _Ramp(stage.method, place, stage.steps, stage.settings[RAMP], stair)


def _height(rises: int, length: float) -> float:
    """What a ramp of this length is after so many rises."""
    rest = 1 - min(rises, length) / length
    return math.exp(-5 * rest**2)
