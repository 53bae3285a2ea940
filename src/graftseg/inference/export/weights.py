"""Weights, recipe, class names and channels in one safetensors file, and the way back."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_bytes
from graftseg.inference.export.request import Request
from graftseg.inference.model import TrainedNetwork, build_network, load_network, load_weights
from graftseg.recipes.recipe import parse_recipe

FORMAT = {"format": "graftseg weights", "version": "1"}
SUFFIX = ".safetensors"


def write(request: Request) -> list[str]:
    """Write the student with what builds its network."""
    if request.out.suffix != SUFFIX:
        raise UserError(
            Code.WEIGHTS_DAMAGED, request.out, "weights are one file", f"name a file that ends in {SUFFIX} as --out"
        )
    shipped = load_network(request.run)
    state = {name: tensor.contiguous() for name, tensor in shipped.method.student.state_dict().items()}
    metadata = {
        **FORMAT,
        "recipe": shipped.recipe.to_yaml(),
        "classes": json.dumps(shipped.classes),
        "channels": str(shipped.channels),
    }
    write_bytes(request.out, save(state, metadata))
    return [f"{request.out}: {len(state)} tensors of {len(shipped.classes)} classes"]


def load(path: str | Path, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Build the network back from the one file; no code in it is ever run."""
    file = Path(path)
    recipe, classes, channels = _described(file)
    shipped = build_network(parse_recipe(recipe, file), classes, channels, torch.device(device))
    load_weights(shipped.method, file)
    return shipped


def _described(file: Path) -> tuple[dict[str, Any], tuple[str, ...], int]:
    """Recipe, class names and number of channels, out of the file's head."""
    remedy = "make the file with graftseg export weights"
    if not file.is_file():
        raise UserError(Code.WEIGHTS_DAMAGED, file, "there is no such file", "check the path")
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
    except (SafetensorError, OSError):
        raise UserError(Code.WEIGHTS_DAMAGED, file, "not a safetensors file", remedy) from None
    if {key: metadata.get(key) for key in FORMAT} != FORMAT:
        raise UserError(Code.WEIGHTS_DAMAGED, file, "the file does not say which network its weights are for", remedy)
    try:
        classes, channels = json.loads(metadata["classes"]), int(metadata["channels"])
        recipe = yaml.safe_load(metadata["recipe"])
    except (KeyError, ValueError, yaml.YAMLError):
        raise UserError(Code.WEIGHTS_DAMAGED, file, "the description of the network is damaged", remedy) from None
    if not isinstance(recipe, dict) or not isinstance(classes, list) or not classes or channels < 1:
        raise UserError(Code.WEIGHTS_DAMAGED, file, "the description of the network is damaged", remedy)
    return recipe, tuple(map(str, classes)), channels
