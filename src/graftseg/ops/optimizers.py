"""Optimizers, learning-rate schedules, and ramps of loss weights."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from graftseg.core.settings import MAX_COUNT, Settings

RAMP_INTERVAL = 150
"""Number of steps between two increases of a ramp, as in the public code of most methods."""
RampLength = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Length of a ramp as a number of increases. The limits avoid overflow and division by zero in float32."""


def ramp_up(elapsed: Tensor, length: float) -> Tensor:
    """Return ``exp(-5 (1 - min(e, R) / R)²)`` for e = ``elapsed``, R = ``length``: 0.0067 at e = 0, 1 from e = R on."""
    rest = 1 - elapsed.clamp(0, length) / length
    return torch.exp(-5 * rest.square())


def consistency_ramp(step: Tensor, length: float, every: int = RAMP_INTERVAL) -> Tensor:
    """Return the ramp factor of a consistency weight, which increases ``length`` times, once every ``every`` steps."""
    return ramp_up(step // every, length)


class Constant(Settings):
    """Constant learning rate."""

    name: Literal["constant"] = "constant"

    def factor(self, step: int, total: int) -> float:
        """Return the factor of the learning rate after ``step`` of ``total`` steps."""
        return 1.0


class Step(Settings):
    """Multiply the learning rate by ``gamma`` after every ``every`` steps."""

    name: Literal["step"] = "step"
    every: int = Field(2500, ge=1, le=MAX_COUNT)
    gamma: float = Field(0.1, gt=0, le=1)

    def factor(self, step: int, total: int) -> float:
        """Return the factor of the learning rate after ``step`` of ``total`` steps."""
        return float(self.gamma ** (step // self.every))


class Poly(Settings):
    """Decrease the learning rate to zero: the factor after t of T steps is ``(1 - t / T) ** power``."""

    name: Literal["poly"] = "poly"
    power: float = Field(0.9, gt=0, le=1e3)

    def factor(self, step: int, total: int) -> float:
        """Return the factor of the learning rate after ``step`` of ``total`` steps."""
        return float((1 - step / total) ** self.power)


Schedule = Annotated[Constant | Step | Poly, Field(discriminator="name")]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Sgd(Settings):
    """Stochastic gradient descent with momentum; ``clip_gradient`` limits the norm of the module's whole gradient."""

    name: Literal["sgd"] = "sgd"
    learning_rate: float = Field(0.01, gt=0, le=1e3)
    weight_decay: float = Field(1e-4, ge=0, le=1e3)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Schedule = Constant()
    clip_gradient: float | None = Field(None, gt=0, le=1e9)


class Adam(Settings):
    """Adam; ``clip_gradient`` limits the norm of the module's whole gradient."""

    name: Literal["adam"] = "adam"
    learning_rate: float = Field(0.001, gt=0, le=1e3)
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    schedule: Schedule = Constant()
    clip_gradient: float | None = Field(None, gt=0, le=1e9)


DISCRIMINATOR_OPTIMIZER = Adam(learning_rate=1e-4, betas=(0.9, 0.99))
"""Optimizer of discriminators, as in the public code of the methods."""
OptimizerSettings = Annotated[Sgd | Adam, Field(discriminator="name")]


def build_optimizer(module: nn.Module, settings: Sgd | Adam, *, fused: bool | None = True) -> torch.optim.Optimizer:
    """Build the optimizer of all trainable parameters of a module. ``fused=None`` is the default of torch."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    if isinstance(settings, Sgd):
        return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=fused)
    return torch.optim.Adam(parameters, lr=rate, betas=settings.betas, weight_decay=decay, fused=fused)


def learning_rate(settings: Sgd | Adam, step: int, total: int) -> float:
    """Return the learning rate after ``step`` of ``total`` steps."""
    return settings.learning_rate * settings.schedule.factor(step, total)


def learning_rate_on_device(optimizer: torch.optim.Optimizer) -> Tensor:
    """Store the learning rate in a tensor on the device, which a CUDA graph of a step needs, and return the tensor."""
    rate = torch.zeros((), device=optimizer.param_groups[0]["params"][0].device)
    for group in optimizer.param_groups:
        group["lr"] = rate
        if "capturable" in group:
            group["capturable"] = True
            # suppress the warning: the first steps run uncaptured on purpose
            vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True
    return rate


def apply_update(optimizer: torch.optim.Optimizer, settings: Sgd | Adam, rate: float | None) -> None:
    """Update the parameters once. With ``rate=None``, use the learning rate that is stored on the device."""
    for group in optimizer.param_groups:
        if rate is not None:
            group["lr"] = rate
        if settings.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(group["params"], settings.clip_gradient)
    optimizer.step()


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state that was saved on any device.

    Missing momentum is set to zero: on a GPU, biases before a norm get no gradient and therefore no momentum.
    """
    optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        entries = [optimizer.state[parameter] for parameter in group["params"]]
        if group.get("momentum") and any(entry.get("momentum_buffer") is not None for entry in entries):
            for parameter, entry in zip(group["params"], entries, strict=True):
                if entry.get("momentum_buffer") is None:
                    entry["momentum_buffer"] = torch.zeros_like(parameter)


@dataclass(frozen=True)
class TrainedModule:
    """A sub-module and its optimizer."""

    module: nn.Module
    optimizer: torch.optim.Optimizer


def carry_over_momentum(source: TrainedModule, target: TrainedModule) -> None:
    """Copy optimizer state of parameters with the same name and shape; keep the settings of ``target``.

    Other parameters start with a fresh state. If the optimizers are of different types, all parameters do.
    """
    if type(source.optimizer) is not type(target.optimizer):
        return
    source_state, sources = source.optimizer.state, dict(source.module.named_parameters())
    targets = [(name, parameter) for name, parameter in target.module.named_parameters() if parameter.requires_grad]
    state = target.optimizer.state_dict()
    state["state"] = {
        index: source_state[sources[name]]
        for index, (name, parameter) in enumerate(targets)
        if name in sources and sources[name].shape == parameter.shape and sources[name] in source_state
    }
    load_optimizer_state(target.optimizer, state)
