"""Tiny data sets, recipes and networks that several test files share."""

from pathlib import Path
from typing import Any

import torch

from graftseg.core.types import Batch, Labeled
from graftseg.data.phantom import write_phantoms
from graftseg.methods import METHODS, Method
from graftseg.networks import Networks, NetworkSettings
from graftseg.recipes.recipe import Recipe, parse_recipe

SIDE = 16
# after a few steps, networks with fewer levels predict a single class in volumes
DEEP_3D = {"name": "vnet-bn", "width": 2, "levels": 3}
DEEP_2D = {"name": "unet-2d", "width": 2, "levels": 3}


def write_scans(folder: Path, dimensions: int = 2, *, labeled: int = 4, unlabeled: int = 5, test: int = 2) -> Path:
    """Write a data set of small phantoms."""
    counts: dict[Any, int] = {"labeled": labeled, "unlabeled": unlabeled, "test": test}
    write_phantoms(folder, shape=(SIDE,) * dimensions, counts=counts, seed=3, shift=0.5)
    return folder


def recipe_tree(dimensions: int = 2) -> dict[str, Any]:
    """Return a recipe with nine steps in two stages as plain values."""
    stage = {"optimizer": {"name": "adam", "learning_rate": 0.01, "schedule": {"name": "poly"}}}
    return {
        "name": "tiny",
        "data": {"dimensions": dimensions},
        "batches": {"patch": [SIDE] * dimensions, "labeled": 2, "unlabeled": 2},
        "network": {"name": "unet-2d", "width": 2, "levels": 2} if dimensions == 2 else DEEP_3D,
        "stages": [{"method": "bcp-pretrain", "steps": 4, **stage}, {"method": "bcp", "steps": 5, **stage}],
        "loop": {"log_every": 2, "checkpoint_every": 4, "snapshots": 1, "tensorboard": False},
    }


def tiny_recipe(dimensions: int = 2, **changes: Any) -> Recipe:
    """Return the tiny recipe with some parts replaced."""
    return parse_recipe(recipe_tree(dimensions) | changes, "tiny")


def tiny_networks(dimensions: int, classes: int = 3) -> Networks:
    """Return networks with a few hundred parameters."""
    name = "unet-2d" if dimensions == 2 else "vnet-bn"
    return Networks(NetworkSettings(name=name, width=2, levels=2), 1, classes)


def tiny_method(name: str, dimensions: int, seed: int = 0, **settings: Any) -> Method:
    """Return a method with tiny networks."""
    torch.manual_seed(seed)
    method = METHODS[name]
    return method(method.Config.model_validate(settings), tiny_networks(dimensions)).train()


def tiny_batch(dimensions: int, seed: int = 0, *, classes: int = 3, size: int = 4, side: int = 8) -> Batch:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    space = (side,) * dimensions
    images, others = (torch.randn(size, 1, *space, generator=generator) for _ in range(2))
    labels = torch.randint(classes, (size, *space), generator=generator)
    return Batch(Labeled(images, labels), others)
