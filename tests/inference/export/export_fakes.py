"""Run folders with random weights, without a training."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from graftseg.core.files import write_text
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.inference.model import build_method, save_weights
from graftseg.methods import Method
from graftseg.recipes.recipe import Recipe, parse_recipe


def write_run(
    folder: Path,
    recipe: Recipe,
    classes: tuple[str, ...],
    *,
    channels: int = 1,
    store: Store | None = None,
    seed: int = 0,
) -> RunFolder:
    """Write a finished run with random weights of a seed."""
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    save_weights(_weights(recipe.to_yaml(), channels, len(classes), seed), run.weights_file)
    facts: dict[str, Any] = {
        "identity": "none" if store is None else store.identity,
        "classes": list(classes),
        "channels": channels,
        "path": str(folder / "store" if store is None else store.path),
    }
    run.update_manifest(
        {
            "status": "finished",
            "store": facts,
            "device": "cpu",
            "versions": {},
            "started": "",
            "weights": sha256_of(run.weights_file),
        }
    )
    write_text(run.recipe_file, recipe.to_yaml())
    return run


@cache
def _weights(recipe_text: str, channels: int, classes: int, seed: int) -> dict[str, torch.Tensor]:
    recipe = parse_recipe(yaml.safe_load(recipe_text), "export")
    torch.manual_seed(seed)
    method = build_method(recipe, recipe.stages[-1], channels, classes, torch.device("cpu"))
    _settle(method, torch.randn(4, channels, *recipe.batches.patch))
    return method.student.state_dict()


@torch.no_grad()
def _settle(method: Method, images: torch.Tensor) -> None:
    """Update normalization statistics and balance the classes, as after a training."""
    for _ in range(30):
        method.train().student(images)
    head = getattr(method.eval().student, "head", None)
    if isinstance(head, torch.nn.Conv2d | torch.nn.Conv3d) and head.bias is not None and head.out_channels > 1:
        head.weight *= 20
        head.bias -= method.student(images).transpose(0, 1).flatten(1).mean(1)
