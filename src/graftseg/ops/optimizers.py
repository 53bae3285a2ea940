"""Optimisers by name, each with its schedule."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from graftseg.core.settings import MOST_STEPS, Settings

RAMP_INTERVAL = 150
"""Steps between two rises of a ramp, as in public code."""
RampLength = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Lengths of a ramp that float32 can divide by."""


def ramp_up(elapsed: Tensor, length: float) -> Tensor:
    """``exp(-5 (1 - clip(e, 0, R) / R)²)``: from 0.0067 at the start to 1 after ``length``."""
    rest = 1 - elapsed.clamp(0, length) / length
    return torch.exp(-5 * rest.square())


def consistency_ramp(step: Tensor, length: float, every: int = RAMP_INTERVAL) -> Tensor:
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


Beta = Annotated[float, Field(ge=0, lt=1)]


class Sgd(Settings):
    """Stochastic gradient descent with momentum; ``clip_gradient`` limits the norm of all gradients together."""

    name: Literal["sgd"] = "sgd"
    learning_rate: float = Field(0.01, gt=0, le=1e3)
    weight_decay: float = Field(1e-4, ge=0, le=1e3)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Schedule = Constant()
    clip_gradient: float | None = Field(None, gt=0, le=1e9)


class Adam(Settings):
    """Adam; ``clip_gradient`` limits the norm of all gradients together."""

    name: Literal["adam"] = "adam"
    learning_rate: float = Field(0.001, gt=0, le=1e3)
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    schedule: Schedule = Constant()
    clip_gradient: float | None = Field(None, gt=0, le=1e9)


DISCRIMINATOR_OPTIMIZER = Adam(learning_rate=1e-4, betas=(0.9, 0.99))
"""What public code trains discriminators with."""
OptimizerSettings = Annotated[Sgd | Adam, Field(discriminator="name")]


def build_optimizer(module: nn.Module, settings: Sgd | Adam) -> torch.optim.Optimizer:
    """The optimiser of all trainable parameters of a module; one fused kernel makes the update."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    if isinstance(settings, Sgd):
        return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=True)
    return torch.optim.Adam(parameters, lr=rate, betas=settings.betas, weight_decay=decay, fused=True)


def learning_rate(settings: Sgd | Adam, step: int, total: int) -> float:
    """The learning rate after ``step`` of ``total`` steps."""
    return settings.learning_rate * settings.schedule.factor(step, total)


def learning_rate_on_device(optimizer: torch.optim.Optimizer) -> Tensor:
    """Let an optimiser read its learning rate from a tensor on its device, as a captured step has to."""
    rate = torch.zeros((), device=optimizer.param_groups[0]["params"][0].device)
    for group in optimizer.param_groups:
        group["lr"] = rate
        if "capturable" in group:
            group["capturable"] = True
            # the first steps of a captured training are not captured, which is meant
            vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True
    return rate


def apply_update(optimizer: torch.optim.Optimizer, settings: Sgd | Adam, rate: float | None) -> None:
    """Make the update of a step with the gradients that are there; without a rate, with the one on the device."""
    for group in optimizer.param_groups:
        if rate is not None:
            group["lr"] = rate
        if settings.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(group["params"], settings.clip_gradient)
    optimizer.step()


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Go on with a saved state, on whatever device it was saved.

    Where parameters had no gradient, as biases before a norm on a GPU, they have no momentum; zero is what it was.
    """
    optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        kept = [optimizer.state[parameter] for parameter in group["params"]]
        if group.get("momentum") and any(one.get("momentum_buffer") is not None for one in kept):
            for parameter, one in zip(group["params"], kept, strict=True):
                if one.get("momentum_buffer") is None:
                    one["momentum_buffer"] = torch.zeros_like(parameter)


@dataclass(frozen=True)
class TrainedModule:
    """A sub-module and the optimiser that moves it."""

    module: nn.Module
    optimizer: torch.optim.Optimizer


def carry_over_momentum(source: TrainedModule, target: TrainedModule) -> None:
    """Go on with the momenta of the parameters that both have, by name and shape, under the settings of the target.

    Other parameters begin as those of a fresh optimiser, and all of them where the two are not of one kind.
    """
    if type(source.optimizer) is not type(target.optimizer):
        return
    before = dict(source.module.named_parameters())
    moved = [(name, parameter) for name, parameter in target.module.named_parameters() if parameter.requires_grad]
    state = target.optimizer.state_dict()
    state["state"] = {
        place: source.optimizer.state[before[name]]
        for place, (name, parameter) in enumerate(moved)
        if name in before and before[name].shape == parameter.shape and before[name] in source.optimizer.state
    }
    load_optimizer_state(target.optimizer, state)
