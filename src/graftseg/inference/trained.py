"""The network that a run ships, with all that its use elsewhere needs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graftseg.core.run_folder import RunFolder
from graftseg.inference.model import build_method, load_weights
from graftseg.methods import Method
from graftseg.recipes.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Shipped:
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


def shipped_network(run: RunFolder, device: torch.device | str = "cpu") -> Shipped:
    """Load the network of a finished run; one without weights, or with others than it saved, is refused."""
    facts, device = run.begun(), torch.device(device)
    recipe, store = load_recipe(run.recipe_file), facts["store"]
    shipped = build_shipped(recipe, tuple(store["classes"]), store["channels"], device)
    load_weights(shipped.method, run.weights_file, facts.get("weights"))
    return shipped


def build_shipped(recipe: Recipe, classes: tuple[str, ...], channels: int, device: torch.device) -> Shipped:
    """The same with fresh weights, for whoever has them from elsewhere."""
    method = build_method(recipe, recipe.stages[-1], channels, len(classes), device)
    return Shipped(method.eval(), recipe, classes, channels, device)
