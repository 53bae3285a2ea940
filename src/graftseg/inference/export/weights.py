"""Export of weights, recipe, classes and channels to one safetensors file, and loading of an exported file."""

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
    """Write the weights of the student, with recipe, classes and channels as metadata."""
    if request.out.suffix != SUFFIX:
        finding = f"weights are exported to a {SUFFIX} file"
        raise UserError(Code.OPTION_INVALID, request.out, finding, f"end --out in {SUFFIX}")
    shipped = load_network(request.run)
    state = {name: tensor.contiguous() for name, tensor in shipped.method.student.state_dict().items()}
    metadata = {
        **FORMAT,
        "recipe": shipped.recipe.to_yaml(),
        "classes": json.dumps(shipped.classes),
        "channels": str(shipped.channels),
    }
    write_bytes(request.out, save(state, metadata))
    return [f"{request.out}: {len(state)} tensors of a network with {len(shipped.classes)} classes"]


def load(path: str | Path, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Build the network from an exported file. No code from the file is executed."""
    file = Path(path)
    description = _read_description(file)
    shipped = build_network(parse_recipe(description["recipe"], file), description, torch.device(device))
    load_weights(shipped.method, file)
    return shipped


def _read_description(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(Code.FILE_MISSING, file, "does not exist", "check the path")
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
        if {key: metadata.get(key) for key in FORMAT} != FORMAT:
            raise ValueError
        classes, channels = json.loads(metadata["classes"]), int(metadata["channels"])
        return {"recipe": yaml.safe_load(metadata["recipe"]), "classes": classes, "channels": channels}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        finding, remedy = "damaged, or not written by graftseg", "run graftseg export weights to recreate it"
        raise UserError(Code.WEIGHTS_DAMAGED, file, finding, remedy) from None
