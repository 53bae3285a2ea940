"""Export to an nnU-Net raw data set: labeled scans with their labels, and unlabeled scans with label maps of a run.

Cases count as unlabeled if the recipe of the run did not use their labels.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, link_or_copy, read_json, write_json
from graftseg.core.names import nfc
from graftseg.core.phrases import counted
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset
from graftseg.data.labels import check_label_values
from graftseg.data.scans import grid_difference, read_label, write_label, write_scan
from graftseg.data.scans_to_predict import check_channels
from graftseg.data.store import find_store, open_store
from graftseg.inference.export import Request, label_maps_of
from graftseg.inference.inputs import read_training_cases
from graftseg.recipes.recipe import load_recipe

NAME = re.compile(r"Dataset\d{3}_[A-Za-z0-9_-]+")
ENDING = ".nii.gz"
PSEUDO_LABELS = "pseudo_labels.json"
SPLITS = "splits_final.json"
MAX_FOLDS = 5  # Number of folds of nnU-Net. With fewer labeled cases, there is one fold for each of them.


def write(request: Request) -> list[str]:
    """Write ``imagesTr``, ``labelsTr``, ``dataset.json``, the folds and the list of pseudo-labeled cases."""
    if not NAME.fullmatch(request.out.name):
        remedy = "name the folder DatasetNNN_Name, such as Dataset501_Liver"
        raise UserError(Code.OPTION_INVALID, request.out, "not the name of an nnU-Net data set", remedy)
    store = request.run.training_manifest()["store"]
    classes, channels = store["classes"], store["channels"]
    dataset = read_training_cases(request.data or _scans_of(request), load_recipe(request.run.recipe_file).batches)
    labeled = sorted(dataset.of("labeled"), key=lambda case: case.name)
    unlabeled = sorted(dataset.of("unlabeled"), key=lambda case: case.name)
    predicted = label_maps_of(request)
    pseudo = [case for case in unlabeled if nfc(case.name) in predicted]
    if not pseudo:
        finding = f"none of the {len(unlabeled)} unlabeled cases has a label map"
        scans = unlabeled[0].images[0].parent if unlabeled else "DATA/imagesUn"
        remedy = f"run graftseg predict RUN {scans} first, and name the folder of the label maps as --predictions"
        raise UserError(Code.PREDICTIONS_MISMATCH, request.label_maps, finding, remedy)
    folds, values = _folds(labeled, pseudo), {0}
    with atomic_folder(request.out) as folder:
        labels = folder / "labelsTr"
        for case in (*labeled, *pseudo):
            _write_images(dataset, case, channels, folder / "imagesTr")
        for case in labeled:
            label = dataset.reader.label(case)
            write_label(labels / f"{case.name}{ENDING}", label.array, label.geometry)
        for case in pseudo:
            path = predicted[nfc(case.name)]
            values |= _check_prediction(path, dataset.reader.image(case).geometry, classes)
            _write_prediction(path, labels / f"{case.name}{ENDING}")
        write_json(folder / "dataset.json", _description(dataset, classes, channels, len(labeled) + len(pseudo)))
        write_json(folder / PSEUDO_LABELS, {"pseudo_labeled": [case.name for case in pseudo]})
        write_json(folder / SPLITS, folds)
    counts = f"{counted(len(labeled), 'labeled case')} and {counted(len(pseudo), 'case')} with label maps of the run"
    lines = [f"{request.out}: {counts}"]
    if missing := len(unlabeled) - len(pseudo):
        lines.append(f"left out {counted(missing, 'unlabeled case')} without a label map in {request.label_maps}")
    subject = "fold 0 validates" if len(folds) == 1 else f"folds 0 to {len(folds) - 1} validate"
    lines.append(f"{SPLITS}: {subject} on labeled cases only; copy the file to nnUNet_preprocessed/{request.out.name}")
    if absent := [name for value, name in enumerate(classes) if value not in values]:
        finding = f"Warning: not found in any label map of the run: {', '.join(absent)}"
        lines.append(f"{finding}. nnU-Net learns these classes as background in the pseudo-labeled cases.")
    return lines


def _folds(labeled: Sequence[Case], pseudo: Sequence[Case]) -> list[dict[str, list[str]]]:
    """Return the content of ``splits_final.json``. Each labeled case is used for validation once."""
    folds = []
    for number in range(min(MAX_FOLDS, len(labeled))):
        held_out = labeled[number::MAX_FOLDS]
        train = [case.name for case in (*labeled, *pseudo) if case not in held_out]
        folds.append({"train": train, "val": [case.name for case in held_out]})
    return folds


def _scans_of(request: Request) -> Path:
    remedy = "name the folder of the scans as --data"
    folder = Path(open_store(find_store(request.run, remedy)).root)
    if not folder.exists():
        raise UserError(Code.FOLDER_MISSING, folder, "the scans of the run are missing", remedy)
    return folder


def _write_images(dataset: Dataset, case: Case, channels: int, folder: Path) -> None:
    """Write one file per channel, with voxels and geometry but nothing else from the header of the scan."""
    targets = [folder / f"{case.name}_{channel:04d}{ENDING}" for channel in range(channels)]
    scan = dataset.reader.image(case)
    check_channels(case.images[0], len(scan.array), channels)
    for channel, target in zip(scan.array, targets, strict=True):
        write_scan(target, np.ascontiguousarray(channel), scan.geometry)


def _check_prediction(path: Path, geometry: Geometry, classes: Sequence[str]) -> set[int]:
    """Return the label values of a label map. Raise an error if the values or the grid are wrong."""
    label = read_label(path)
    check_label_values(path, label.array, range(len(classes)))
    if difference := grid_difference(geometry, label.geometry):
        finding = f"the label map is not on the grid of its scan: {difference}"
        raise UserError(Code.GEOMETRY_MISMATCH, path, finding, "predict the scans of this data set")
    return set(np.unique(label.array).tolist())


def _write_prediction(path: Path, target: Path) -> None:
    """Write a label map of the run. A .nii.gz file is linked or copied, and other formats are converted."""
    if path.name.lower().endswith(ENDING):
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path, target)
    else:
        label = read_label(path)
        write_label(target, label.array, label.geometry)


def _description(dataset: Dataset, classes: Sequence[str], channels: int, cases: int) -> dict[str, Any]:
    """Return the content of ``dataset.json`` for nnU-Net v2, which requires ``background`` and unique class names.

    Channel names are copied from the ``dataset.json`` of the scans, because nnU-Net normalizes CT channels differently.
    """
    values = {"background": 0}
    for value, name in enumerate(classes[1:], start=1):
        values[name if name not in values else f"{name} {value}"] = value
    path = dataset.root / "dataset.json"
    content = read_json(path) if path.is_file() else {}
    names = content.get("channel_names") or content.get("modality") if isinstance(content, dict) else None
    if not isinstance(names, dict) or len(names) != channels:
        names = {}
    channel_names = {str(channel): str(names.get(str(channel), f"channel {channel}")) for channel in range(channels)}
    return {"channel_names": channel_names, "labels": values, "numTraining": cases, "file_ending": ENDING}
