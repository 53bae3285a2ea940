"""Optimisers by name."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from graftseg.settings import Settings


class OptimizerSettings(Settings):
    """``sgd`` reads ``momentum``; ``adam`` reads ``betas``."""

    name: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = Field(0.01, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.999)


def build_optimizer(module: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """The optimiser of all trainable parameters of a module; one fused kernel makes the update."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if settings.name == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )
    return torch.optim.Adam(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
