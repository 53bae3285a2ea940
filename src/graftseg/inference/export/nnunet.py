"""Labeled scans with their labels, and unlabeled ones with the label maps of a run, as an nnU-Net raw data set.

Unlabeled means what it meant to the run: labels that its recipe left out are not looked for.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_json
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset
from graftseg.data.layouts import read_layout
from graftseg.data.scans import grid_difference, read_label, write_label, write_scan
from graftseg.data.store import find_store, open_store
from graftseg.inference.export.label_maps import check_values, label_map_of, predictions_of
from graftseg.inference.export.request import Request, atomic_folder
from graftseg.recipes.recipe import load_recipe

NAME = re.compile(r"Dataset\d{3}_[A-Za-z0-9_-]+")
ENDING = ".nii.gz"
NOTES = "pseudo_labels.json"


def write(request: Request) -> list[str]:
    """Write ``imagesTr``, ``labelsTr``, ``dataset.json`` and the list of the cases that the run labeled."""
    if not NAME.fullmatch(request.out.name):
        finding = "not the name of an nnU-Net data set"
        raise UserError(
            Code.EXPORT_UNSUPPORTED, request.out, finding, "name the folder DatasetNNN_Name, such as Dataset501_Liver"
        )
    facts = request.run.training_manifest()["store"]
    task = _Task(_dataset(request), tuple(facts["classes"]), facts["channels"], predictions_of(request))
    labeled, pseudo, missing = task.cases()
    with atomic_folder(request.out) as folder:
        for case in (*labeled, *pseudo):
            task.write_images(case, folder / "imagesTr")
        for case in labeled:
            task.write_given(case, folder / "labelsTr")
        for case in pseudo:
            task.write_predicted(case, folder / "labelsTr")
        write_json(folder / "dataset.json", task.description(len(labeled) + len(pseudo)))
        write_json(folder / NOTES, {"pseudo_labeled": [case.name for case in pseudo]})
    lines = [f"{request.out}: {len(labeled)} labeled cases and {len(pseudo)} with label maps of the run"]
    if missing:
        lines.append(f"{len(missing)} unlabeled cases have no label map in {task.predictions} and are left out")
    return lines


@dataclass(frozen=True)
class _Task:
    """The cases and what is known of them."""

    dataset: Dataset
    classes: tuple[str, ...]
    channels: int
    predictions: Path

    def cases(self) -> tuple[list[Case], list[Case], list[Case]]:
        """Labeled cases, unlabeled ones with a label map, and those without one."""
        labeled = sorted(self.dataset.of("labeled"), key=lambda case: case.name)
        unlabeled = sorted(self.dataset.of("unlabeled"), key=lambda case: case.name)
        pseudo = [case for case in unlabeled if label_map_of(self.predictions, case.name)]
        missing = [case for case in unlabeled if case not in pseudo]
        if not pseudo:
            finding = f"none of the {len(unlabeled)} unlabeled cases has a label map there"
            remedy = "predict them first, as in graftseg predict RUN DATA/imagesUn, and name that folder"
            raise UserError(Code.EXPORT_UNSUPPORTED, self.predictions, finding, f"{remedy} as --predictions")
        return labeled, pseudo, missing

    def write_images(self, case: Case, folder: Path) -> None:
        """One file a channel; those that are so already are linked, or copied, as they are."""
        names = [f"{case.name}_{channel:04d}{ENDING}" for channel in range(self.channels)]
        if len(case.images) == self.channels and all(_is_ready(path) for path in case.images):
            for path, name in zip(case.images, names, strict=True):
                _link(path, folder / name)
        else:
            scan = self.dataset.reader.image(case)
            if len(scan.array) != self.channels:
                finding = f"the number of channels is {len(scan.array)} where the run was trained on {self.channels}"
                raise UserError(
                    Code.EXPORT_UNSUPPORTED,
                    case.images[0],
                    finding,
                    "give the data that the run was trained on as --data",
                )
            for channel, name in zip(scan.array, names, strict=True):
                write_scan(folder / name, np.ascontiguousarray(channel), scan.geometry)

    def write_given(self, case: Case, folder: Path) -> None:
        """The label map that a person made."""
        target = folder / f"{case.name}{ENDING}"
        if case.label is not None and _is_ready(case.label):
            _link(case.label, target)
        else:
            label = self.dataset.reader.label(case)
            write_label(target, label.array, label.geometry)

    def write_predicted(self, case: Case, folder: Path) -> None:
        """The label map of the run, if it lies on the grid of its scan."""
        path = label_map_of(self.predictions, case.name)
        assert path is not None
        label, geometry = read_label(path), self.dataset.reader.image(case).geometry
        check_values(path, label.array, self.classes)
        if difference := grid_difference(geometry, label.geometry):
            finding = f"the label map does not lie on the grid of its scan: {difference}"
            raise UserError(Code.EXPORT_UNSUPPORTED, path, finding, "predict the scans of this data set")
        target = folder / f"{case.name}{ENDING}"
        if _is_ready(path):
            _link(path, target)
        else:
            write_label(target, label.array, label.geometry)

    def description(self, cases: int) -> dict[str, Any]:
        """The content of ``dataset.json`` in the form of nnU-Net's second version."""
        names = {str(channel): name for channel, name in enumerate(self._channel_names())}
        return {
            "channel_names": names,
            "labels": _label_values(self.classes),
            "numTraining": cases,
            "file_ending": ENDING,
        }

    def _channel_names(self) -> Sequence[str]:
        """Those of the data's own description, since nnU-Net treats CT apart; names that say nothing otherwise."""
        path = self.dataset.root / "dataset.json"
        content = read_json(path) if path.is_file() else {}
        named = content.get("channel_names") or content.get("modality") if isinstance(content, dict) else None
        if isinstance(named, dict) and len(named) == self.channels:
            return [str(named.get(str(channel), f"channel {channel}")) for channel in range(self.channels)]
        return [f"channel {channel}" for channel in range(self.channels)]


def _dataset(request: Request) -> Dataset:
    """The data set, as the run was allowed to see it."""
    batches = load_recipe(request.run.recipe_file).batches
    dataset = read_layout(request.data or _scans_of(request))
    if dataset.problems:
        raise dataset.problems[0]
    return dataset.for_training(batches.labeled_cases, batches.validation_cases, batches.held_out)


def _scans_of(request: Request) -> Path:
    """The folder that the run's store was made from."""
    remedy = "name the folder of the scans as --data"
    folder = Path(open_store(find_store(request.run, remedy)).root)
    if not folder.exists():
        raise UserError(Code.STORE_MISSING, request.run.path, f"its scans are no longer at {folder}", remedy)
    return folder


def _label_values(classes: Sequence[str]) -> dict[str, int]:
    """Name -> value; nnU-Net wants ``background``, and a name only once."""
    names = {"background": 0}
    for value, name in enumerate(classes[1:], start=1):
        names[name if name not in names else f"{name} {value}"] = value
    return names


def _is_ready(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(ENDING)


def _link(source: Path, target: Path) -> None:
    """A second name of the same file, or a copy where the disk has no such thing; the file itself stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
