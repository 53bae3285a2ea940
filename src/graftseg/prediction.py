"""A run and scans -> label maps in the scans' own geometry, beside a manifest that says where they come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from graftseg.console import track
from graftseg.data.grid import Grid
from graftseg.data.scans import write_label
from graftseg.environment import versions
from graftseg.errors import UserError
from graftseg.files import PARTIAL, locked, make_folder, sha256_of
from graftseg.inference import predict_labels
from graftseg.inputs import Source, sources_in
from graftseg.manifest import Manifest, PredictedCase, read_manifest
from graftseg.methods import Method
from graftseg.models import build_method, load_weights
from graftseg.recipe import Recipe, load_recipe
from graftseg.runs import RunFolder

SCORES = ("metrics.csv", "metrics.json")
ELSEWHERE = "name another folder as --out"
Checkpoint = Literal["shipped", "best"]
CHECKPOINTS: tuple[Checkpoint, ...] = get_args(Checkpoint)


@dataclass(frozen=True)
class Predicted:
    """The label maps of a call, and what could not be predicted, each with its reason."""

    folder: Path
    cases: tuple[PredictedCase, ...]
    failures: tuple[UserError, ...]


@dataclass(frozen=True)
class Weights:
    """A network's file, its hash where the run tells it, and how it was chosen, in words."""

    path: Path
    sha256: str | None
    chosen: str


def weights_of(run: RunFolder, checkpoint: Checkpoint) -> Weights:
    """The network that a run ships, or the best of those that it scored on the way."""
    facts = run.manifest()
    shipped = Weights(run.weights_file, facts.get("weights"), str(facts.get("checkpoint", "last")))
    if checkpoint == "shipped":
        return shipped
    best = facts.get("best")
    if not best or not run.best_file.is_file():
        remedy = "train with selection.every, on the test cases with selection.oracle=true"
        raise UserError(run.path, "the run kept no best checkpoint", remedy)
    if best["sha256"] == shipped.sha256:
        return Weights(run.best_file, best["sha256"], shipped.chosen)
    chosen = f"best on {best['on']}, step {best['step']}" + (" (oracle)" if best["on"] == "test" else "")
    return Weights(run.best_file, best["sha256"], chosen)


def predict_scans(
    run: RunFolder,
    scans: Path,
    out: Path,
    device: torch.device,
    *,
    overrides: Iterable[str] = (),
    checkpoint: Checkpoint = "shipped",
) -> Predicted:
    """Predict every scan; one that cannot be predicted is named at the end and does not stop the others.

    ``scans`` is a scan, a folder of scans or a prepared store, of which the test cases are taken. ``overrides``
    change settings under ``inference``. Label maps of other cases that the same network wrote into ``out`` stay;
    everything else there is refused or left alone.
    """
    network = _Network.of(run, device, overrides, weights_of(run, checkpoint))
    cases, failures = sources_in(scans, network.recipe.data, network.channels)
    _check_inputs(out, cases)
    network.try_out()
    done: list[PredictedCase] = []
    make_folder(out)
    with locked(out, "another prediction writes into this folder"):
        outputs = {_output(name) for name in (*failures, *(case.name for case in cases))}
        manifest = _begin(out, network.manifest(run), outputs)
        try:
            for case in track(cases, "Predicting", len(cases)):
                try:
                    done.append(_predict_case(network, case, out))
                except UserError as error:
                    failures[case.name] = error
        finally:
            _end(out, manifest, done, failures)
    return Predicted(out, tuple(done), tuple(failures.values()))


@dataclass(frozen=True)
class _Network:
    """A trained network and all that its use needs."""

    method: Method
    recipe: Recipe
    classes: tuple[str, ...]
    channels: int
    device: torch.device
    weights: Weights

    @classmethod
    def of(cls, run: RunFolder, device: torch.device, overrides: Iterable[str], weights: Weights) -> "_Network":
        """A network of a run."""
        store, recipe = run.begun()["store"], load_recipe(run.recipe_file, _inference_only(overrides))
        classes, channels = tuple(store["classes"]), store["channels"]
        method = build_method(recipe, recipe.stages[-1], channels, len(classes), device)
        load_weights(method, weights.path, weights.sha256)
        method.eval()
        return cls(method, recipe, classes, channels, device, weights)

    def labels(self, image: torch.Tensor, grid: Grid, where: str | Path) -> NDArray[np.uint8]:
        """The label map of an image ``(C, *space)`` on the scan's grid."""
        try:
            return predict_labels(
                self.method.segment,
                image,
                grid,
                patch=self.recipe.batches.patch,
                settings=self.recipe.inference,
                classes=len(self.classes),
                device=self.device,
                fit=self.recipe.batches.fit,
            )
        except (torch.OutOfMemoryError, MemoryError):
            remedy = "add --set inference.windows_per_forward=1 or use --device cpu"
            raise UserError(where, f"the memory of {self.device} is full", remedy) from None

    def try_out(self) -> None:
        """Predict an empty patch: settings that cannot work are refused before anything is touched."""
        patch = self.recipe.batches.patch
        self.labels(torch.zeros(self.channels, *patch), Grid.identity(patch), "inference")

    def manifest(self, run: RunFolder) -> Manifest:
        """The manifest of label maps by this network, without any case."""
        return Manifest(
            run=str(run.path.resolve()),
            weights=sha256_of(self.weights.path),
            inference=self.recipe.inference.model_dump(mode="json"),
            classes=self.classes,
            checkpoint=self.weights.chosen,
            device=str(self.device),
            versions=versions(),
        )


def _inference_only(overrides: Iterable[str]) -> list[str]:
    chosen = list(overrides)
    for override in chosen:
        if not override.startswith("inference."):
            finding = "a trained network can be used otherwise, not changed"
            raise UserError(f"--set {override}", finding, "set keys under inference, as in inference.overlap=0.75")
    return chosen


def _predict_case(network: _Network, case: Source, out: Path) -> PredictedCase:
    began = perf_counter()
    given = case.read()
    if len(given.image) != network.channels:
        finding = f"the number of channels is {len(given.image)} where the run was trained on {network.channels}"
        raise UserError(case.files[0], finding, "give it the same channels, as CASE_0000, CASE_0001 or in one file")
    labels = network.labels(given.image, given.grid, case.files[0])
    write_label(out / _output(case.name), labels, given.geometry)
    images = tuple(str(path.resolve()) for path in case.files)
    seconds = round(perf_counter() - began, 3)
    return PredictedCase(case.name, images, _output(case.name), seconds, is_empty=not labels.any())


def _output(name: str) -> str:
    return f"{name}.nii.gz"


def _check_inputs(out: Path, cases: Sequence[Source]) -> None:
    """Never write a label map over a scan."""
    inputs = {path.resolve() for case in cases for path in case.files}
    for case in cases:
        target = (out / _output(case.name)).resolve()
        if target in inputs:
            raise UserError(target, "the label map would overwrite a scan", ELSEWHERE)


def _begin(out: Path, planned: Manifest, outputs: set[str]) -> Manifest:
    """Write down what is about to be made; scores of what was there go, since they would be out of date.

    Label maps of an earlier call stay until their successors are whole, unless other settings made them. Only files
    that an earlier manifest lists are ever replaced or removed; another network's are refused.
    """
    for left in out.glob(f"{PARTIAL}*"):
        left.unlink()
    before = _earlier(out, planned)
    known = before.outputs if before else set()
    for name in sorted(outputs - known):
        if (out / name).exists():
            raise UserError(out / name, "the file exists and is not a label map of this run", ELSEWHERE)
    if before is None:
        manifest = replace(planned, unfinished=tuple(sorted(outputs)))
        manifest.save(out)
        return manifest
    stays = [case for case in before.cases if case.output not in outputs and (out / case.output).is_file()]
    if stays and before.inference != planned.inference:
        finding = f"holds {len(stays)} label maps of other cases made with other inference settings"
        raise UserError(out, finding, ELSEWHERE)
    failures = {name: why for name, why in before.failures.items() if _output(name) not in outputs}
    manifest = replace(planned, cases=tuple(stays), failures=failures, unfinished=tuple(sorted(outputs)))
    manifest.save(out)
    stale = outputs & known if before.inference != planned.inference else set()
    for name in (*stale, *SCORES):
        (out / name).unlink(missing_ok=True)
    return manifest


def _earlier(out: Path, planned: Manifest) -> Manifest | None:
    """The manifest of an earlier call with the same network; any other manifest is refused."""
    manifest = read_manifest(out, ELSEWHERE)
    if manifest is not None and manifest.weights != planned.weights:
        raise UserError(out, f"holds label maps of another network, trained in {manifest.run}", ELSEWHERE)
    return manifest


def _end(out: Path, manifest: Manifest, done: Sequence[PredictedCase], failures: Mapping[str, UserError]) -> None:
    for name in failures:
        (out / _output(name)).unlink(missing_ok=True)
    ended = {case.output for case in done} | {_output(name) for name in failures}
    replace(
        manifest,
        cases=tuple(sorted((*manifest.cases, *done), key=lambda case: case.case)),
        failures={**manifest.failures, **{name: str(error) for name, error in failures.items()}},
        unfinished=tuple(name for name in manifest.unfinished if name not in ended),
    ).save(out)
