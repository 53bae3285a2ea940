"""Ramps and learning rates: pure functions of how far a stage is."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import MOST_STEPS, Settings

STAIR = 150
"""Steps between two rises of a ramp, as in public code."""
RampLength = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Lengths of a ramp that float32 can divide by."""


def ramp_up(elapsed: Tensor, length: float) -> Tensor:
    """``exp(-5 (1 - clip(e, 0, R) / R)²)``: from 0.0067 at the start to 1 after ``length``."""
    rest = 1 - elapsed.clamp(0, length) / length
    return torch.exp(-5 * rest.square())


def consistency_ramp(step: Tensor, length: float, every: int = STAIR) -> Tensor:
    """``ρ(t // every, R)``: how far the weight of a consistency term has come; it grows every so many steps."""
    return ramp_up(step // every, length)


class Constant(Settings):
    """The learning rate never changes."""

    name: Literal["constant"] = "constant"

    def factor(self, step: int, total: int) -> float:
        """What the learning rate is multiplied by after ``step`` of ``total`` steps."""
        return 1.0


class Step(Settings):
    """The learning rate is multiplied by ``gamma`` after every ``every`` steps."""

    name: Literal["step"] = "step"
    every: int = Field(2500, ge=1, le=MOST_STEPS)
    gamma: float = Field(0.1, gt=0, le=1)

    def factor(self, step: int, total: int) -> float:
        """What the learning rate is multiplied by after ``step`` of ``total`` steps."""
        return float(self.gamma ** (step // self.every))


class Poly(Settings):
    """The learning rate falls to zero as ``(1 - t / T) ** power``."""

    name: Literal["poly"] = "poly"
    power: float = Field(0.9, gt=0, le=1e3)

    def factor(self, step: int, total: int) -> float:
        """What the learning rate is multiplied by after ``step`` of ``total`` steps."""
        return float((1 - step / total) ** self.power)


Schedule = Annotated[Constant | Step | Poly, Field(discriminator="name")]
