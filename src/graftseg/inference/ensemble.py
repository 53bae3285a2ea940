"""Trained networks of one or several runs that predict together."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from graftseg.core.devices import has_bf16
from graftseg.core.errors import Code, UserError
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder, Shipped, selected_on
from graftseg.core.types import Precision
from graftseg.data.formats.scan import Scan
from graftseg.data.grid import Grid
from graftseg.data.prepare import prepare_image, prepared_grid
from graftseg.data.scans_to_predict import check_channels
from graftseg.inference.bf16 import Bf16Segment
from graftseg.inference.combined_networks import mean_of, over_flips
from graftseg.inference.label_maps import LABELS_ONLY, ExtraMaps, ScanMaps
from graftseg.inference.model import TrainedNetwork, build_network, load_weights
from graftseg.inference.predictor import Predictor, check_memory
from graftseg.inference.sliding_window import Segment
from graftseg.networks.fused import fuse
from graftseg.recipes.recipe import Recipe, load_recipe

Checkpoint = Literal["shipped", "best"]
EXACT = "inference.precision=float32"
"""Override for predictions that are scored, so that bfloat16 on some devices does not change scores."""
NOT_CHOSEN = Shipped("run", "not yet compared with its baseline; finish the training with train --resume")


@dataclass(frozen=True)
class Weights:
    """A weights file, its hash if known, and how and on which cases the checkpoint was chosen."""

    path: Path
    sha256: str | None
    chosen: str
    selected_on: str | None


def select_weights(run: RunFolder, checkpoint: Checkpoint) -> Weights:
    """Return the weights that a run ships, or with ``best`` the weights with the best score during training."""
    manifest = run.manifest()
    chosen = str(manifest.get("checkpoint", "last"))
    shipped = Weights(run.weights_file, manifest.get("weights"), chosen, selected_on(manifest))
    if checkpoint == "shipped":
        return shipped
    best = manifest.get("best")
    if not best or not run.best_file.is_file():
        remedy = "train with selection.every, or with selection.oracle=true for the best checkpoint on the test cases"
        raise UserError(Code.NO_BEST_CHECKPOINT, run.path, "the run has no best checkpoint", remedy)
    if best["sha256"] == shipped.sha256:
        return replace(shipped, path=run.best_file)
    chosen = f"best on {best['on']}, step {best['step']}" + (" (oracle)" if best["on"] == "test" else "")
    return Weights(run.best_file, best["sha256"], chosen, best["on"])


def folder_of_network(run: RunFolder, checkpoint: Checkpoint, fold: int | None) -> tuple[RunFolder, Shipped | None]:
    """Return the folder of the network that predicts, and the choice between the run and its baseline.

    The choice is None if the run has no baseline, or if the best checkpoint or a fold of the run is requested. Until
    the baseline is finished, the network of the run predicts.
    """
    if checkpoint != "shipped" or fold is not None:
        return run, None
    shipped = run.shipped()
    if shipped is None and run.baseline.exists:
        shipped = replace(NOT_CHOSEN, both_supervised=run.is_supervised_only)
    return run.baseline if shipped is not None and shipped.network == "baseline" else run, shipped


@dataclass(frozen=True)
class Ensemble:
    """Trained networks with the same input, their weights files, and the recipe with the inference settings."""

    members: tuple[TrainedNetwork, ...]
    weights: tuple[Weights, ...]
    recipe: Recipe

    @classmethod
    def load(
        cls, runs: Sequence[RunFolder], device: torch.device, overrides: Iterable[str], checkpoint: Checkpoint
    ) -> "Ensemble":
        """Load the networks of several runs. ``overrides`` change settings under ``inference``."""
        changes = list(overrides)
        if rejected := [change for change in changes if not change.startswith("inference.")]:
            finding = "only settings under inference can be changed after training"
            remedy = "set keys such as inference.overlap=0.75"
            raise UserError(Code.OPTION_INVALID, f"--set {rejected[0]}", finding, remedy)
        weights = tuple(select_weights(run, checkpoint) for run in runs)
        members = []
        for run, chosen in zip(runs, weights, strict=True):
            recipe, store = load_recipe(run.recipe_file, changes), run.training_manifest()["store"]
            member = build_network(recipe, store, device, run.teacher_checks().trained_stage)
            load_weights(member.method, chosen.path, chosen.sha256)
            fuse(member.method.student)
            members.append(member)
            if _input_of(member) != _input_of(members[0]):
                finding = f"its network and the network of {runs[0].path} need different inputs"
                raise UserError(Code.RECIPE_MISMATCH, run.path, finding, "predict with one fold, selected by --fold")
        return cls(tuple(members), weights, members[0].recipe)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names, background first."""
        return self.members[0].classes

    @property
    def channels(self) -> int:
        """Return the number of image channels."""
        return self.members[0].channels

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self.members[0].device

    @property
    def precision(self) -> Precision:
        """Return the precision of the last predicted scan."""
        segment = self._segment
        return "bf16" if isinstance(segment, Bf16Segment) and not segment.is_rejected else "float32"

    @cached_property
    def _segment(self) -> Segment:
        """The mean of all networks, in bf16 if settings, device and methods allow it."""
        exact, wanted = self._exact, self.recipe.inference.precision
        is_supported = all(member.method.min_precision == "bf16" for member in self.members)
        if wanted == "float32" or not is_supported or not has_bf16(self.device):
            return exact
        return Bf16Segment(exact, self.device, is_checked=wanted == "auto")

    @property
    def _exact(self) -> Segment:
        return mean_of([member.method.segment for member in self.members])

    @property
    def selected_on(self) -> str | None:
        """Return the cases on which the checkpoints were selected: ``test`` if this is true for one of them."""
        selected = [weights.selected_on or "" for weights in self.weights]
        return max(selected, key=("", "validation", "test").index) or None

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """Return the axes along which all networks were trained with mirrored scans. Other flips may do harm."""
        trained = [member.recipe.batches.mirrored_axes for member in self.members]
        return tuple(axis for axis in trained[0] if all(axis in axes for axes in trained))

    @property
    def flip_axes(self) -> tuple[int, ...] | None:
        """Return the axes of ``inference.flips``: the mirrored axes of a training with warps, otherwise all (None)."""
        is_warped = all(member.recipe.batches.warp is not None for member in self.members)
        return self.mirrored_axes if is_warped else None

    @property
    def uncertainty_source(self) -> str:
        """Describe the predictions that are averaged for the uncertainty."""
        if len(self.members) > 1:
            return f"{len(self.members)} networks" + (", flipped" if self.recipe.inference.flips else "")
        if self.recipe.inference.flips or self.mirrored_axes:
            return "one network, flipped"
        return "one network"

    @property
    def predictor(self) -> Predictor:
        """Return a predictor that averages the probabilities of all networks.

        For a single network, the uncertainty is computed from the mean over flips along its mirrored axes. The label
        map uses flips only with ``inference.flips``.
        """
        return self._predictor_of(self._segment)

    def _predictor_of(self, segment: Segment) -> Predictor:
        uses_flips = len(self.members) == 1 and not self.recipe.inference.flips and bool(self.mirrored_axes)
        uncertainty_segment = over_flips(segment, self.mirrored_axes) if uses_flips else None
        predictor = Predictor.for_recipe(self.recipe, segment, len(self.classes), self.device)
        return replace(predictor, uncertainty_segment=uncertainty_segment, flip_axes=self.flip_axes)

    def predict_scan(self, scan: Scan, where: str | Path, extras: ExtraMaps = LABELS_ONLY) -> ScanMaps:
        """Prepare and predict a scan that is in memory. Raise a UserError if it does not fit the networks or memory."""
        check_channels(where, len(scan.array), self.channels)
        predictor, settings = self.predictor, self.recipe.data
        grid = prepared_grid(scan.geometry, settings, where=where)
        check_memory(grid, len(scan.array), predictor, extras, where)
        image, _ = prepare_image(scan, settings, where=where)
        return predict_maps(predictor, torch.from_numpy(image), grid, extras, where)

    def identity(self) -> str:
        """Return the hash of a single weights file, or one hash of the hashes of several weights files."""
        hashes = [weights.sha256 or sha256_of(weights.path) for weights in self.weights]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def try_out(self) -> None:
        """Predict an empty volume of one patch, so that invalid settings fail before anything is written."""
        patch = self.recipe.batches.patch
        shape = patch if len(patch) == 3 else (*patch, 1)
        image, grid = torch.zeros(self.channels, *shape), Grid.identity(shape)
        predict_maps(self._predictor_of(self._exact), image, grid, LABELS_ONLY, "inference")


def predict_maps(predictor: Predictor, image: Tensor, grid: Grid, extras: ExtraMaps, where: str | Path) -> ScanMaps:
    """Return the maps of an image ``(C, *space)`` on the scan's grid. Raise a UserError if memory runs out."""
    try:
        return predictor.maps(image, grid, extras)
    except (torch.OutOfMemoryError, MemoryError):
        remedy = "add --set inference.windows_per_forward=1 or use --device cpu"
        raise UserError(Code.OUT_OF_MEMORY, where, f"out of memory on {predictor.device}", remedy) from None


def _input_of(member: TrainedNetwork) -> tuple[object, ...]:
    batches = member.recipe.batches
    return member.classes, member.channels, member.recipe.data, batches.patch, batches.fit
