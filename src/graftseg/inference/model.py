"""A recipe -> its networks and methods; their weights on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.files import sha256_of, write_bytes
from graftseg.core.run_folder import RunFolder
from graftseg.methods import METHODS, Method
from graftseg.networks import Networks
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.recipes.settings import StageSettings


def build_method(recipe: Recipe, stage: StageSettings, channels: int, classes: int, device: torch.device) -> Method:
    """The method of a stage with fresh networks, on its device, in the layout that convolutions are fast in."""
    method = METHODS[stage.method]
    networks = Networks(recipe.network, channels, classes)
    built = method(method.Config.model_validate(stage.settings), networks).to(device)
    return channels_last(built)


def channels_last(method: Method) -> Method:
    """Keep the weights of convolutions with their channels last, which spares conversions in every step."""
    nn.utils.convert_conv2d_weight_memory_format(method, torch.channels_last)
    for part in method.modules():
        if isinstance(part, nn.Conv3d | nn.ConvTranspose3d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last_3d)
    return method


def save_weights(method: Method, path: Path) -> None:
    """Write the student, the network that ships."""
    save_student(method.student.state_dict(), path)


def save_student(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a student that was kept apart from its method."""
    write_bytes(path, student_bytes(state))


def student_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The content of a student's file."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})


def check_weights_exist(path: Path, sha256: str | None) -> None:
    """Refuse a file of weights that is not there: not yet, or where the run tells its hash, not any more."""
    if path.is_file():
        return
    if sha256 is None:
        raise UserError(
            Code.RUN_UNFINISHED,
            path,
            "the run has no trained network yet",
            "let the training end, with --resume if it stopped",
        )
    remedy = "restore the file, or train again into another folder"
    raise UserError(Code.WEIGHTS_MISSING, path, "the trained network of the run is missing", remedy)


def check_weights(path: Path, sha256: str | None) -> None:
    """Refuse a file of weights that is not there, or not of that hash if one is given."""
    check_weights_exist(path, sha256)
    if sha256 is not None and sha256_of(path) != sha256:
        raise UserError(
            Code.WEIGHTS_DAMAGED,
            path,
            "the weights are not those that the run saved",
            "copy the file anew or train again",
        )


def load_weights(method: Method, path: Path, sha256: str | None = None) -> None:
    """Read the student, from a file of that hash if one is given."""
    check_weights(path, sha256)
    try:
        method.student.load_state_dict(load(path.read_bytes()))
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            Code.WEIGHTS_DAMAGED, path, f"the weights cannot be read ({reason})", "copy the file anew or train again"
        ) from None


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network in evaluation mode, the recipe of its training, and the facts of its data."""

    method: Method
    recipe: Recipe
    classes: tuple[str, ...]
    channels: int
    device: torch.device

    @property
    def patch(self) -> tuple[int, ...]:
        """Voxels of an input along the axes of space."""
        return self.recipe.batches.patch


class Probabilities(nn.Module):
    """Images ``(B, C, *space)`` to probabilities ``(B, K, *space)``, without anything that belongs to training."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """The network's logits through a softmax, as ``Method.segment`` has it."""
        logits: Tensor = self.network(images)
        return logits.float().softmax(1)


def load_network(run: RunFolder, device: torch.device | str = "cpu") -> TrainedNetwork:
    """Load the network of a finished run; one without weights, or with others than it saved, is refused."""
    facts, device = run.training_manifest(), torch.device(device)
    recipe, store = load_recipe(run.recipe_file), facts["store"]
    shipped = build_network(recipe, tuple(store["classes"]), store["channels"], device)
    load_weights(shipped.method, run.weights_file, facts.get("weights"))
    return shipped


def build_network(recipe: Recipe, classes: tuple[str, ...], channels: int, device: torch.device) -> TrainedNetwork:
    """The same with fresh weights, for whoever has them from elsewhere."""
    method = build_method(recipe, recipe.stages[-1], channels, len(classes), device)
    return TrainedNetwork(method.eval(), recipe, classes, channels, device)
