"""Networks: how they are built from a recipe, and how their weights are saved and loaded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_bytes
from graftseg.core.reading import read_bytes
from graftseg.core.run_folder import RunFolder
from graftseg.methods import METHODS, Method
from graftseg.networks import Networks
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.recipes.settings import StageSettings


def build_method(recipe: Recipe, stage: StageSettings, channels: int, classes: int, device: torch.device) -> Method:
    """Build the method of a stage with new networks on a device, in channels-last memory format."""
    method = METHODS[stage.method]
    networks = Networks(recipe.network, channels, classes)
    return channels_last(method(method.Config.model_validate(stage.settings), networks).to(device))


def channels_last(method: Method) -> Method:
    """Convert convolution weights to channels-last memory format, which avoids conversions in every step."""
    nn.utils.convert_conv2d_weight_memory_format(method, torch.channels_last)
    for part in method.modules():
        if isinstance(part, nn.Conv3d | nn.ConvTranspose3d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last_3d)
    return method


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict to a safetensors file."""
    write_bytes(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}))


def check_weights_exist(path: Path, sha256: str | None) -> None:
    """Raise an error if the weights file of a run is missing. ``sha256`` is its hash according to ``run.json``."""
    if path.is_file():
        return
    if sha256 is None:  # the hash is recorded when training finishes
        remedy = "finish training; --resume continues a stopped run"
        raise UserError(Code.RUN_UNFINISHED, path, "the run has no trained network yet", remedy)
    remedy = "restore the file, or train again into another folder"
    raise UserError(Code.WEIGHTS_MISSING, path, "the trained network of the run is missing", remedy)


def load_weights(method: Method, path: Path, sha256: str | None = None) -> None:
    """Load the weights of a method's student. With ``sha256``, check the hash of the file."""
    remedy = "copy the file again or train again"
    check_weights_exist(path, sha256)
    try:
        content = read_bytes(path)
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            finding = "damaged or edited (its hash differs from the hash in run.json)"
            raise UserError(Code.WEIGHTS_DAMAGED, path, finding, remedy)
        method.student.load_state_dict(load(content))
    except PermissionError:
        raise
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(Code.WEIGHTS_DAMAGED, path, f"the weights cannot be read ({reason})", remedy) from None


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network in eval mode with its recipe, classes and number of channels."""

    method: Method
    recipe: Recipe
    classes: tuple[str, ...]
    channels: int
    device: torch.device

    @property
    def patch(self) -> tuple[int, ...]:
        """Return the size of an input in voxels."""
        return self.recipe.batches.patch


class Probabilities(nn.Module):
    """A network and a softmax: from images ``(B, C, *space)`` to probabilities ``(B, K, *space)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the softmax of the network's logits, as ``Method.segment`` does."""
        logits: Tensor = self.network(images)
        return logits.float().softmax(1)


def load_network(run: RunFolder, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Load the network of a finished run and check the hash of its weights."""
    manifest = run.training_manifest()
    network = build_network(
        load_recipe(run.recipe_file), manifest["store"], torch.device(device), run.teacher_checks().trained_stage
    )
    load_weights(network.method, run.weights_file, manifest.get("weights"))
    return network


def build_network(recipe: Recipe, store: Mapping[str, Any], device: torch.device, stage: int = -1) -> TrainedNetwork:
    """Build the network of a stage with random weights. ``store`` contains its ``classes`` and ``channels``."""
    classes, channels = tuple(store["classes"]), store["channels"]
    method = build_method(recipe, recipe.stages[stage], channels, len(classes), device)
    return TrainedNetwork(method.eval(), recipe, classes, channels, device)
