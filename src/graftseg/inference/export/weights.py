"""Export of weights, recipe, classes and channels to one safetensors file, and loading of such a file.

The metadata of the file contain a SHA-256 checksum of its tensors and other metadata. Files of version 1 have none.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.files import parse_json, write_bytes
from graftseg.core.reading import check_regular
from graftseg.inference.export import Request
from graftseg.inference.model import TrainedNetwork, build_network, load_network, load_weights
from graftseg.recipes.reading import read_yaml
from graftseg.recipes.recipe import parse_recipe

FORMAT = "graftseg weights"
VERSION = "2"
UNCHECKED_VERSION = "1"  # version of files without a checksum
SUFFIX = ".safetensors"
logger = logging.getLogger(__name__)


def write(request: Request) -> list[str]:
    """Write the weights of the student, with recipe, classes and channels as metadata."""
    if request.out.suffix != SUFFIX:
        finding = f"weights are exported to a {SUFFIX} file"
        raise UserError(Code.OPTION_INVALID, request.out, finding, f"end --out in {SUFFIX}")
    trained = load_network(request.run)
    state = {name: tensor.contiguous() for name, tensor in trained.method.student.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "recipe": trained.recipe.to_yaml(),
        "classes": json.dumps(trained.classes),
        "channels": str(trained.channels),
    }
    write_bytes(request.out, save(state, metadata | {"sha256": tensor_checksum(metadata, state)}))
    return [f"{request.out}: {len(state)} tensors of a network with {len(trained.classes)} classes"]


def load(path: str | Path, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Load the network in an exported file. No code from the file is executed."""
    file = Path(path)
    description = _read_description(file)
    trained = build_network(parse_recipe(description["recipe"], file), description, torch.device(device))
    load_weights(trained.method, file)
    return trained


def _read_description(file: Path) -> dict[str, Any]:
    """Return recipe, classes and channels. Raise a UserError if the file does not match its checksum."""
    if not file.is_file():
        raise UserError(Code.FILE_MISSING, file, "does not exist", "check the path")
    try:
        check_regular(file)
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
            state = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        if (metadata["format"], metadata["version"]) == (FORMAT, UNCHECKED_VERSION):
            logger.warning("%s: has no checksum, so damage cannot be detected; export it again", file)
        else:
            others = {key: value for key, value in metadata.items() if key != "sha256"}
            expected = (FORMAT, VERSION, tensor_checksum(others, state))
            if (metadata["format"], metadata["version"], metadata["sha256"]) != expected:
                raise ValueError
        classes, channels = parse_json(metadata["classes"]), int(metadata["channels"])
        return {"recipe": read_yaml(metadata["recipe"]), "classes": classes, "channels": channels}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        finding, remedy = "damaged, or not written by graftseg", "run graftseg export weights to recreate it"
        raise UserError(Code.WEIGHTS_DAMAGED, file, finding, remedy) from None


def tensor_checksum(metadata: Mapping[str, str], state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the sorted metadata, and of name, type, shape and bytes of the sorted tensors."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(state.items()):
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
