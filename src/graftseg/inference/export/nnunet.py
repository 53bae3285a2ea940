"""Export to an nnU-Net raw data set: labeled scans with their labels, unlabeled scans with label maps of a run.

Labels that the recipe of the run did not use are not exported; these cases count as unlabeled.
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
from graftseg.data.scans import grid_difference, read_label, write_label, write_scan
from graftseg.data.store import find_store, open_store
from graftseg.inference.export.label_maps import LabelMaps, check_values, label_maps_of
from graftseg.inference.export.request import Request, atomic_folder
from graftseg.inference.inputs import read_training_cases
from graftseg.recipes.recipe import load_recipe

NAME = re.compile(r"Dataset\d{3}_[A-Za-z0-9_-]+")
ENDING = ".nii.gz"
NOTES = "pseudo_labels.json"


def write(request: Request) -> list[str]:
    """Write ``imagesTr``, ``labelsTr``, ``dataset.json`` and the list of pseudo-labeled cases."""
    if not NAME.fullmatch(request.out.name):
        remedy = "name the folder DatasetNNN_Name, such as Dataset501_Liver"
        raise UserError(Code.OPTION_INVALID, request.out, "not the name of an nnU-Net data set", remedy)
    facts = request.run.training_manifest()["store"]
    dataset = read_training_cases(request.data or _scans_of(request), load_recipe(request.run.recipe_file).batches)
    task = _Export(dataset, tuple(facts["classes"]), facts["channels"], label_maps_of(request))
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
        lines.append(f"{len(missing)} unlabeled cases have no label map in {task.predictions.folder} and are left out")
    return lines


@dataclass(frozen=True)
class _Export:
    """The cases to export, the classes and channels of the run, and its label maps."""

    dataset: Dataset
    classes: tuple[str, ...]
    channels: int
    predictions: LabelMaps

    def cases(self) -> tuple[list[Case], list[Case], list[Case]]:
        """Return labeled cases, unlabeled cases with a label map, and unlabeled cases without."""
        labeled = sorted(self.dataset.of("labeled"), key=lambda case: case.name)
        unlabeled = sorted(self.dataset.of("unlabeled"), key=lambda case: case.name)
        pseudo = [case for case in unlabeled if self.predictions.of(case.name)]
        missing = [case for case in unlabeled if case not in pseudo]
        if not pseudo:
            finding = f"none of the {len(unlabeled)} unlabeled cases has a label map"
            remedy = "predict them first with graftseg predict RUN DATA/imagesUn, and name that folder as --predictions"
            raise UserError(Code.PREDICTIONS_MISMATCH, self.predictions.folder, finding, remedy)
        return labeled, pseudo, missing

    def write_images(self, case: Case, folder: Path) -> None:
        """Write one file per channel. Files in the right format are linked or copied."""
        names = [f"{case.name}_{channel:04d}{ENDING}" for channel in range(self.channels)]
        if len(case.images) == self.channels and all(_is_ready(path) for path in case.images):
            for path, name in zip(case.images, names, strict=True):
                _link(path, folder / name)
        else:
            scan = self.dataset.reader.image(case)
            if len(scan.array) != self.channels:
                finding = f"has {len(scan.array)} channels, but the run was trained on {self.channels}"
                remedy = "give the data that the run was trained on as --data"
                raise UserError(Code.CHANNELS_MISMATCH, case.images[0], finding, remedy)
            for channel, name in zip(scan.array, names, strict=True):
                write_scan(folder / name, np.ascontiguousarray(channel), scan.geometry)

    def write_given(self, case: Case, folder: Path) -> None:
        """Write the given label map of a labeled case."""
        target = folder / f"{case.name}{ENDING}"
        if case.label is not None and _is_ready(case.label):
            _link(case.label, target)
        else:
            label = self.dataset.reader.label(case)
            write_label(target, label.array, label.geometry)

    def write_predicted(self, case: Case, folder: Path) -> None:
        """Write the predicted label map. Raise an error if it is not on the grid of its scan."""
        path = self.predictions.of(case.name)
        assert path is not None
        label, geometry = read_label(path), self.dataset.reader.image(case).geometry
        check_values(path, label.array, self.classes)
        if difference := grid_difference(geometry, label.geometry):
            finding = f"the label map is not on the grid of its scan: {difference}"
            raise UserError(Code.GEOMETRY_MISMATCH, path, finding, "predict the scans of this data set")
        target = folder / f"{case.name}{ENDING}"
        if _is_ready(path):
            _link(path, target)
        else:
            write_label(target, label.array, label.geometry)

    def description(self, cases: int) -> dict[str, Any]:
        """Return the content of ``dataset.json`` for nnU-Net v2."""
        names = {str(channel): name for channel, name in enumerate(self._channel_names())}
        return {
            "channel_names": names,
            "labels": _label_values(self.classes),
            "numTraining": cases,
            "file_ending": ENDING,
        }

    def _channel_names(self) -> Sequence[str]:
        """Return the channel names in the data set's ``dataset.json``, because nnU-Net treats CT differently."""
        path = self.dataset.root / "dataset.json"
        content = read_json(path) if path.is_file() else {}
        named = content.get("channel_names") or content.get("modality") if isinstance(content, dict) else None
        if isinstance(named, dict) and len(named) == self.channels:
            return [str(named.get(str(channel), f"channel {channel}")) for channel in range(self.channels)]
        return [f"channel {channel}" for channel in range(self.channels)]


def _scans_of(request: Request) -> Path:
    """Return the folder that the run's store was prepared from."""
    remedy = "name the folder of the scans as --data"
    folder = Path(open_store(find_store(request.run, remedy)).root)
    if not folder.exists():
        raise UserError(Code.FOLDER_MISSING, folder, "the scans of the run are missing", remedy)
    return folder


def _label_values(classes: Sequence[str]) -> dict[str, int]:
    """Return label values by class name. nnU-Net requires ``background`` and unique names."""
    names = {"background": 0}
    for value, name in enumerate(classes[1:], start=1):
        names[name if name not in names else f"{name} {value}"] = value
    return names


def _is_ready(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(ENDING)


def _link(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
