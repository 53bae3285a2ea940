"""The networks that predict together, of one run or of several, used as one."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.data.grid import Grid
from graftseg.inference.averaging import mean_of, over_flips
from graftseg.inference.label_maps import ExtraMaps, ScanMaps
from graftseg.inference.model import TrainedNetwork, build_network, load_weights
from graftseg.inference.predictor import Predictor
from graftseg.recipes.recipe import Recipe, load_recipe

Checkpoint = Literal["shipped", "best"]
CHECKPOINTS: tuple[Checkpoint, ...] = get_args(Checkpoint)


@dataclass(frozen=True)
class Weights:
    """A network's file, its hash where the run tells it, and how it was chosen, in words."""

    path: Path
    sha256: str | None
    chosen: str


def select_weights(run: RunFolder, checkpoint: Checkpoint) -> Weights:
    """The network that a run ships, or the best of those that it scored on the way."""
    facts = run.manifest()
    shipped = Weights(run.weights_file, facts.get("weights"), str(facts.get("checkpoint", "last")))
    if checkpoint == "shipped":
        return shipped
    best = facts.get("best")
    if not best or not run.best_file.is_file():
        remedy = "train with selection.every, on the test cases with selection.oracle=true"
        raise UserError(Code.NO_BEST_CHECKPOINT, run.path, "the run kept no best checkpoint", remedy)
    if best["sha256"] == shipped.sha256:
        return Weights(run.best_file, best["sha256"], shipped.chosen)
    chosen = f"best on {best['on']}, step {best['step']}" + (" (oracle)" if best["on"] == "test" else "")
    return Weights(run.best_file, best["sha256"], chosen)


@dataclass(frozen=True)
class Ensemble:
    """Trained networks that take the same images, and the recipe that says how they are used."""

    members: tuple[TrainedNetwork, ...]
    weights: tuple[Weights, ...]
    recipe: Recipe

    @classmethod
    def of(
        cls, runs: Sequence[RunFolder], device: torch.device, overrides: Iterable[str], checkpoint: Checkpoint
    ) -> "Ensemble":
        """The networks of some runs; ``overrides`` change settings under ``inference``."""
        weights = tuple(select_weights(run, checkpoint) for run in runs)
        chosen = _inference_only(overrides)
        members = tuple(_loaded(run, device, chosen, one) for run, one in zip(runs, weights, strict=True))
        for run, member in zip(runs, members, strict=True):
            if _input_of(member) != _input_of(members[0]):
                finding = f"its network takes other images than that of {runs[0].path}"
                raise UserError(Code.RECIPE_MISMATCH, run.path, finding, "predict with one of the two, as with --fold")
        return cls(members, weights, members[0].recipe)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, the background first."""
        return self.members[0].classes

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return self.members[0].channels

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.members[0].device

    @property
    def chosen(self) -> str:
        """How the networks were chosen among those of their trainings, in words."""
        return "; ".join(sorted({one.chosen for one in self.weights}))

    @property
    def is_mirrored(self) -> bool:
        """Whether the networks saw mirrored scans in their training; others take a mirrored organ for another."""
        return all(member.recipe.batches.augment.rotate_flip > 0 for member in self.members)

    @property
    def opinions(self) -> str:
        """Whose probabilities are averaged before their entropy is taken, in words."""
        if len(self.members) > 1:
            return f"{len(self.members)} networks" + (", flipped" if self.recipe.inference.flips else "")
        if self.recipe.inference.flips or self.is_mirrored:
            return "one network, flipped"
        return "one network"

    @property
    def predictor(self) -> Predictor:
        """All of them, as they are used on whole scans.

        A single network that knows mirrored scans is asked about those too to tell how sure it is: mirrored along the
        first two axes, as in its training. Its label map stays that of the scan as it is, unless flips are asked for.
        """
        segment = mean_of([member.method.segment for member in self.members])
        alone = len(self.members) == 1 and not self.recipe.inference.flips
        return Predictor(
            segment,
            patch=self.recipe.batches.patch,
            settings=self.recipe.inference,
            classes=len(self.classes),
            device=self.device,
            fit=self.recipe.batches.fit,
            doubt=over_flips(segment, axes=2) if alone and self.is_mirrored else None,
        )

    def identity(self) -> str:
        """The hash of the network's file; of several networks, that of all their hashes."""
        hashes = [sha256_of(one.path) for one in self.weights]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def try_out(self) -> None:
        """Predict an empty patch: settings that cannot work are refused before anything is touched."""
        patch = self.recipe.batches.patch
        predicted(self.predictor, torch.zeros(self.channels, *patch), Grid.identity(patch), ExtraMaps(), "inference")


def predicted(predictor: Predictor, image: torch.Tensor, grid: Grid, wanted: ExtraMaps, where: str | Path) -> ScanMaps:
    """The maps of an image ``(C, *space)`` on the scan's grid; a full memory is told in a sentence."""
    try:
        return predictor.maps(image, grid, wanted)
    except (torch.OutOfMemoryError, MemoryError):
        remedy = "add --set inference.windows_per_forward=1 or use --device cpu"
        raise UserError(Code.OUT_OF_MEMORY, where, f"the memory of {predictor.device} is full", remedy) from None


def _loaded(run: RunFolder, device: torch.device, overrides: Sequence[str], weights: Weights) -> TrainedNetwork:
    store, recipe = run.training_manifest()["store"], load_recipe(run.recipe_file, overrides)
    shipped = build_network(recipe, tuple(store["classes"]), store["channels"], device)
    load_weights(shipped.method, weights.path, weights.sha256)
    return shipped


def _input_of(member: TrainedNetwork) -> tuple[object, ...]:
    batches = member.recipe.batches
    return member.classes, member.channels, member.recipe.data, batches.patch, batches.fit


def _inference_only(overrides: Iterable[str]) -> list[str]:
    chosen = list(overrides)
    for override in chosen:
        if not override.startswith("inference."):
            finding = "a trained network can be used otherwise, not changed"
            raise UserError(
                Code.RECIPE_MISMATCH,
                f"--set {override}",
                finding,
                "set keys under inference, as in inference.overlap=0.75",
            )
    return chosen
