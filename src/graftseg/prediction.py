"""A run and scans -> label maps in the scans' own geometry, beside a manifest that says where they come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from graftseg.console import track
from graftseg.data.grid import Grid
from graftseg.data.layouts import scan_cases
from graftseg.data.prepare import prepare_image
from graftseg.data.scans import read_case, write_label
from graftseg.environment import versions
from graftseg.errors import UserError
from graftseg.files import PARTIAL, locked, make_folder, read_json, sha256_of, write_json
from graftseg.inference import predict_labels
from graftseg.methods import Method
from graftseg.models import build_method, load_weights
from graftseg.recipe import Recipe, load_recipe
from graftseg.runs import RunFolder
from graftseg.types import Case

MANIFEST = "manifest.json"
FORMAT = {"format": "graftseg predictions", "version": 1}
SCORES = ("metrics.csv", "metrics.json")
ELSEWHERE = "name another folder as --out"


@dataclass(frozen=True)
class PredictedCase:
    """A label map that was written."""

    case: str
    images: tuple[str, ...]
    output: str
    seconds: float
    is_empty: bool = False


@dataclass(frozen=True)
class Predicted:
    """The label maps of a call, and what could not be predicted, each with its reason."""

    folder: Path
    cases: tuple[PredictedCase, ...]
    failures: tuple[UserError, ...]


@dataclass(frozen=True)
class Manifest:
    """What a folder of label maps says of itself.

    ``weights`` is the hash of the network and ``inference`` how it was used. ``failures`` gives the reason for each
    case that has no label map. ``unfinished`` names the label maps that an interrupted call did not come to.
    """

    run: str
    weights: str
    inference: dict[str, Any]
    classes: tuple[str, ...]
    checkpoint: str
    device: str
    versions: dict[str, str]
    cases: tuple[PredictedCase, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.outputs:
            if Path(name).name != name:
                raise ValueError(f"{name} is not a file name")

    @property
    def outputs(self) -> set[str]:
        """Names of the label maps that this program wrote, or was about to write."""
        return {case.output for case in self.cases} | set(self.unfinished)

    def save(self, folder: Path) -> None:
        """Write the manifest."""
        write_json(folder / MANIFEST, FORMAT | _MANIFEST.dump_python(self, mode="json"))


_MANIFEST = TypeAdapter(Manifest)


def predict_scans(
    run: RunFolder, scans: Path, out: Path, device: torch.device, *, overrides: Iterable[str] = ()
) -> Predicted:
    """Predict every scan; one that cannot be predicted is named at the end and does not stop the others.

    ``overrides`` change settings under ``inference``. Label maps of other cases that the same network wrote into
    ``out`` stay; everything else there is refused or left alone.
    """
    network = _Network.of(run, device, overrides)
    cases, failures = scan_cases(scans, network.channels)
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

    @classmethod
    def of(cls, run: RunFolder, device: torch.device, overrides: Iterable[str]) -> "_Network":
        """The network that a run ships."""
        store, recipe = run.manifest()["store"], load_recipe(run.recipe_file, _inference_only(overrides))
        classes, channels = tuple(store["classes"]), store["channels"]
        method = build_method(recipe, recipe.stages[-1], channels, len(classes), device)
        load_weights(method, run.weights_file, run.manifest().get("weights"))
        method.eval()
        return cls(method, recipe, classes, channels, device)

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
            weights=sha256_of(run.weights_file),
            inference=self.recipe.inference.model_dump(mode="json"),
            classes=self.classes,
            checkpoint="last",
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


def _predict_case(network: _Network, case: Case, out: Path) -> PredictedCase:
    began = perf_counter()
    try:
        scan = read_case(case.images)
    except MemoryError:
        raise UserError(case.images[0], "does not fit into memory", "use a larger machine") from None
    if len(scan.array) != network.channels:
        finding = f"the number of channels is {len(scan.array)} where the run was trained on {network.channels}"
        raise UserError(case.images[0], finding, "give it the same channels, as CASE_0000, CASE_0001 or in one file")
    image, grid = prepare_image(scan, network.recipe.data, where=case.images[0])
    labels = network.labels(torch.from_numpy(image), grid, case.images[0])
    write_label(out / _output(case.name), labels, scan.geometry)
    images = tuple(str(path.resolve()) for path in case.images)
    seconds = round(perf_counter() - began, 3)
    return PredictedCase(case.name, images, _output(case.name), seconds, is_empty=not labels.any())


def _output(name: str) -> str:
    return f"{name}.nii.gz"


def _check_inputs(out: Path, cases: Sequence[Case]) -> None:
    """Never write a label map over a scan."""
    inputs = {path.resolve() for case in cases for path in case.images}
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
    path = out / MANIFEST
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or {key: content.get(key) for key in FORMAT} != FORMAT:
        raise UserError(path, "not a manifest of label maps", ELSEWHERE)
    try:
        manifest = _MANIFEST.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(path, f"damaged at {'.'.join(map(str, first['loc']))} ({first['msg']})", ELSEWHERE) from None
    if manifest.weights != planned.weights:
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
