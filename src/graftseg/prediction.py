"""A run and scans -> label maps in the scans' own geometry."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import torch

from graftseg.console import track
from graftseg.data.layouts import scan_cases
from graftseg.data.prepare import prepare_image
from graftseg.data.scans import read_case, write_label
from graftseg.environment import versions
from graftseg.errors import UserError
from graftseg.files import write_json
from graftseg.inference import predict_labels
from graftseg.methods import Method
from graftseg.models import build_method, load_weights
from graftseg.recipe import Recipe, load_recipe
from graftseg.runs import RunFolder
from graftseg.types import Case


@dataclass(frozen=True)
class PredictedCase:
    """A label map that was written."""

    case: str
    images: tuple[str, ...]
    output: str
    seconds: float


@dataclass(frozen=True)
class Predicted:
    """The label maps of a call, and what could not be predicted, each with its reason."""

    folder: Path
    cases: tuple[PredictedCase, ...]
    failures: tuple[UserError, ...]


def predict_scans(run: RunFolder, scans: Path, out: Path, device: torch.device) -> Predicted:
    """Predict every scan; one that cannot be read is named at the end and does not stop the others."""
    manifest, recipe = run.manifest(), load_recipe(run.recipe_file)
    classes, channels = manifest["store"]["classes"], manifest["store"]["channels"]
    method = build_method(recipe, recipe.stages[-1], channels, len(classes), device)
    load_weights(method, run.weights_file)
    method.eval()
    cases = scan_cases(scans, channels)
    _check_target(out, cases)
    done, failures = [], []
    for case in track(cases, "Predicting", len(cases)):
        try:
            done.append(_predict_case(method, recipe, case, out, len(classes), device))
        except UserError as error:
            failures.append(error)
    predicted = Predicted(out, tuple(done), tuple(failures))
    _write_manifest(predicted, run, classes, device)
    return predicted


def _predict_case(
    method: Method, recipe: Recipe, case: Case, out: Path, classes: int, device: torch.device
) -> PredictedCase:
    began = perf_counter()
    scan = read_case(case.images)
    image, grid = prepare_image(scan, recipe.data, where=case.images[0])
    labels = predict_labels(
        method.segment,
        torch.from_numpy(image),
        grid,
        patch=recipe.batches.patch,
        settings=recipe.inference,
        classes=classes,
        device=device,
    )
    output = out / f"{case.name}.nii.gz"
    write_label(output, labels, scan.geometry)
    images = tuple(str(path.resolve()) for path in case.images)
    return PredictedCase(case.name, images, output.name, round(perf_counter() - began, 3))


def _check_target(out: Path, cases: Sequence[Case]) -> None:
    """Never write a label map over a scan."""
    inputs = {path.resolve() for case in cases for path in case.images}
    for case in cases:
        target = (out / f"{case.name}.nii.gz").resolve()
        if target in inputs:
            raise UserError(target, "the label map would overwrite a scan", "name another folder as --out")


def _write_manifest(predicted: Predicted, run: RunFolder, classes: Sequence[str], device: torch.device) -> None:
    content = {
        "run": str(run.path.resolve()),
        "classes": list(classes),
        "checkpoint": "last",
        "device": str(device),
        "versions": versions(),
        "cases": [asdict(case) for case in predicted.cases],
        "failures": [str(failure) for failure in predicted.failures],
    }
    write_json(predicted.folder / "manifest.json", content)
