"""The cases that the viewer shows: scans of a run, a folder of data, a folder of label maps, or one scan."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import class_name
from graftseg.core.predictions import MANIFEST, PredictedCase, read_manifest
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.data.dataset import Dataset
from graftseg.data.formats.nifti import first_voxels, is_nifti
from graftseg.data.formats.scan import Scan
from graftseg.data.layouts import read_layout
from graftseg.data.scans import VOLUMES_ARE_CHANNELS, is_label_map, read_case, read_label, read_scan, scan_stem
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.store import find_store, is_store, open_store
from graftseg.evaluation.references import references_in, stored_image
from graftseg.inference.ensemble import folder_of_network
from graftseg.inference.label_maps import LEVELS
from graftseg.reporting.results import Results, mean, read_results

Kind = Literal["run", "data", "labels", "scan"]
ReadScan = Callable[[], Scan]
MAX_LABEL_VALUES = 64  # scans with more different values than this are images, not label maps
MAX_LABEL = 255  # scans with larger values are images, not label maps
PEEKED_VOXELS = 2**20
"""Number of voxels that are read first. They often show that a file is an image. Reading a whole CT takes seconds."""
REMEDY = "choose a run, a folder of data, a folder of label maps or a scan"


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class of a case. The distance is in millimeters."""

    name: str
    dice: float
    hd95: float


@dataclass(frozen=True)
class ViewedCase:
    """A case to show."""

    name: str
    split: str
    image: ReadScan  # function that reads the image ``(C, *space)``
    # functions that read the maps ``(*space)`` named reference, prediction and uncertainty
    maps: Mapping[str, ReadScan] = field(default_factory=dict)
    dice: float | None = None  # mean Dice over the classes
    uncertainty: float | None = None  # mean uncertainty of the prediction
    scores: tuple[ClassScore, ...] = ()

    @property
    def layers(self) -> list[str]:
        """Return the names of the layers that can be shown over the image."""
        return [*self.maps, *(["difference"] if {"reference", "prediction"} <= self.maps.keys() else [])]


@dataclass(frozen=True)
class Collection:
    """All cases to show. ``classes`` are the class names by value, background first."""

    kind: Kind
    title: str
    classes: tuple[str, ...]
    cases: tuple[ViewedCase, ...]


def collect(what: Path) -> Collection:
    """Find the cases of a run, a folder of data, a folder of label maps, or one scan."""
    if not what.exists():
        raise UserError(Code.FILE_MISSING, what, "no such file or folder", REMEDY)
    run = RunFolder(what)
    if run.exists or run.folds_file.is_file():
        return collect_run(run)
    if is_store(what):
        raise UserError(Code.NOT_A_SCAN, what, "a prepared store, not a folder of scans", REMEDY)
    title = what.resolve().name
    if (what / "imagesTr").is_dir():
        dataset = read_layout(what)
        return Collection("data", title, _class_names(dataset.classes), tuple(_of_dataset(dataset)))
    if (what / MANIFEST).is_file():
        manifest = read_manifest(what, REMEDY)
        cases = tuple(_of_prediction(what, predicted) for predicted in manifest.cases) if manifest else ()
        return Collection("labels", title, manifest.classes if manifest else (), cases)
    return _of_scans(what, title)


def require_case(collection: Collection, case: str, what: Path) -> None:
    """Raise a UserError if there are no cases, or if the requested case is not among them."""
    names = [viewed.name for viewed in collection.cases]
    if not names:
        raise UserError(Code.TOO_FEW_CASES, what, "there is no case to show", "choose a folder with scans")
    if case and case not in names:
        finding = f"{what} has no such case"
        raise UserError(Code.UNKNOWN_NAME, f"--case {case}", finding, f"choose a case such as {names[0]}")


def collect_run(run: RunFolder) -> Collection:
    """Return the tested cases of a run, worst first, and then the scans that it was trained on."""
    folder, _ = folder_of_network(run, "shipped", None)
    facts = folder.training_manifest() if folder.exists else folder.fold(0).training_manifest()
    classes = tuple(facts["store"]["classes"])
    held_out = []
    for number, names in enumerate(held_out_by_fold(run) if run.folds_file.is_file() else ()):
        cases_of_fold = _tested_cases(run.fold(number).predictions, classes)
        split = f"held out of fold {number}"
        held_out += [replace(case, split=split) for case in cases_of_fold if case.name in names]
    # the ensemble of all folds has seen every held-out case, so the network of the fold comes first
    tested = _unique([*held_out, *_tested_cases(folder.predictions, classes)])
    tested.sort(key=lambda case: (case.dice is None, case.dice, case.name))
    cases = _unique([*tested, *_training_cases(folder)])
    return Collection("run", run.path.resolve().name, classes, tuple(cases))


def _unique(cases: Iterable[ViewedCase]) -> list[ViewedCase]:
    by_name: dict[str, ViewedCase] = {}
    for case in cases:
        by_name.setdefault(case.name, case)
    return [*by_name.values()]


def _tested_cases(predictions: Path, classes: tuple[str, ...]) -> list[ViewedCase]:
    manifest = read_manifest(predictions, "predict again") if predictions.is_dir() else None
    if manifest is None:
        return []
    results = read_results(predictions)
    references = _references(results, manifest.cases, predictions, classes)
    return [_of_prediction(predictions, each, references.get(each.case), results) for each in manifest.cases]


def _references(
    results: Results | None, cases: Iterable[PredictedCase], folder: Path, classes: tuple[str, ...]
) -> dict[str, ReadScan]:
    """Return the functions that read the reference label maps. Without scores, the references are unknown."""
    if results is None or results.references is None or not results.references.exists():
        return {}
    images = {predicted.case: folder / predicted.images[0] for predicted in cases if predicted.images}
    references = references_in(results.references, images.keys(), images, dict(enumerate(classes)))
    return {case: reference.read for case, reference in references.items()}


def _of_prediction(
    folder: Path, predicted: PredictedCase, reference: ReadScan | None = None, results: Results | None = None
) -> ViewedCase:
    maps: dict[str, ReadScan] = {} if reference is None else {"reference": reference}
    maps["prediction"] = partial(read_label, folder / predicted.output)
    if predicted.uncertainty is not None:
        maps["uncertainty"] = partial(_read_levels, folder / predicted.uncertainty)
    rows = [row for row in (results.evaluation.rows if results else ()) if row.case == predicted.case]
    return ViewedCase(
        predicted.case,
        "test",
        partial(_predicted_image, folder, predicted),
        maps,
        dice=mean([row.dice for row in rows]) if rows else None,
        uncertainty=predicted.mean_uncertainty,
        scores=tuple(ClassScore(row.name, row.dice, row.hd95_mm) for row in rows),
    )


def _predicted_image(folder: Path, predicted: PredictedCase) -> Scan:
    """Read the scan of a predicted case, from its files or from the store that it was predicted from."""
    images = [folder / path for path in predicted.images]
    if not images or not all(path.exists() for path in images):
        finding = "the scan has been moved or deleted"
        raise UserError(Code.FILE_MISSING, predicted.case, finding, "put it back or predict again")
    if predicted.sha256 is None:
        return read_case(images, VOLUMES_ARE_CHANNELS)
    store = open_store(images[0].parents[1])
    return stored_image(store, next(case for case in store.cases if case.name == predicted.case))


def _read_levels(path: Path) -> Scan:
    """Read an uncertainty map from 0 to 1 as integers from 0 to ``LEVELS``."""
    scan = read_scan(path)
    return Scan(np.rint(scan.array[0] * LEVELS).astype(np.uint8), scan.geometry)


def _training_cases(run: RunFolder) -> list[ViewedCase]:
    """Return the training scans of a run, from their files if they still exist, else from the store."""
    try:
        store = open_store(find_store(run if run.exists else run.fold(0)))
    except UserError:
        return []
    root = Path(store.root)
    if (root / "imagesTr").is_dir():
        return _of_dataset(read_layout(root))
    return [ViewedCase(case.name, case.split, partial(stored_image, store, case)) for case in store.cases]


def _of_dataset(dataset: Dataset) -> list[ViewedCase]:
    cases = []
    for case in dataset.cases:
        maps = {} if case.label is None else {"reference": partial(dataset.reader.label, case)}
        cases.append(ViewedCase(case.name, case.split, partial(dataset.reader.image, case), maps))
    return cases


def _of_scans(what: Path, title: str) -> Collection:
    """Return the scans of a plain folder, or one scan. Label maps are shown over an empty image."""
    cases, failures = scan_cases(what, 1)
    if not cases:
        raise next(iter(failures.values()))
    first = cases[0].images[0]
    if values := _label_values(first):
        labels = tuple(_of_label(case.images[0]) for case in cases)
        return Collection("labels", title, _class_names({value: class_name(value) for value in values}), labels)
    scans = tuple(ViewedCase(case.name, "", partial(read_case, case.images, VOLUMES_ARE_CHANNELS)) for case in cases)
    return Collection("scan" if len(scans) == 1 else "data", title, (), scans)


def _label_values(path: Path) -> list[int]:
    """Return the values of a scan if it is a label map, else an empty list."""
    try:
        if not is_label_map(path):
            return []
        if is_nifti(path) and not _may_be_labels(np.unique(first_voxels(path, PEEKED_VOXELS))):
            return []
        values = np.unique(read_label(path).array)
    except UserError:
        return []
    is_label = _may_be_labels(values) and values[0] == 0
    return [int(value) for value in values if value] if is_label else []


def _may_be_labels(values: NDArray[Any]) -> bool:
    """Return whether these values, sorted, can be class numbers."""
    is_class = values[0] >= 0 and values[-1] <= MAX_LABEL and np.array_equal(values, np.rint(values))
    return bool(is_class) and len(values) <= MAX_LABEL_VALUES


def _of_label(path: Path) -> ViewedCase:
    def image() -> Scan:
        scan = read_label(path)
        return Scan(np.zeros((1, *scan.array.shape), np.uint8), scan.geometry)

    return ViewedCase(scan_stem(path), "", image, {"prediction": partial(read_label, path)})


def _class_names(classes: Mapping[int, str]) -> tuple[str, ...]:
    """Return class names by value. Values without a name are numbered."""
    count = max(classes, default=0) + 1
    return tuple(classes.get(value, class_name(value)) for value in range(count))
