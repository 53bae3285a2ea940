"""ACDC: right ventricle, myocardium and left ventricle in cine MR, in the h5 files that papers share.

``data/PATIENT_FRAME.h5`` is a volume ``(slices, rows, columns)`` with intensities from 0 to 1, and
``data/slices/PATIENT_FRAME_slice_N.h5`` are its slices. Either the volume or its slices are needed. The lists
``train.list`` (or ``train_slices.list``), ``val.list`` and ``test.list`` contain the names of the cases. Papers use
both frames of the first patients in ``train.list`` as labeled cases.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.case_lists import entries_of, find_repeated, missing_case
from graftseg.data.benchmarks.h5 import image_scan, label_scan, read_h5
from graftseg.data.dataset import Dataset
from graftseg.data.folders import visible_entries, with_children
from graftseg.data.scans import Scan

EXPECTED = "data/PATIENT_FRAME.h5 or data/slices/PATIENT_FRAME_slice_N.h5"
CLASSES = {0: "background", 1: "right ventricle", 2: "myocardium", 3: "left ventricle"}
LISTS: tuple[tuple[str, tuple[str, ...], Split], ...] = (
    ("train", ("train.list", "train_slices.list"), "labeled"),
    ("val", ("val.list",), "validation"),
    ("test", ("test.list",), "test"),
)
VOLUME = re.compile(r"(?P<patient>patient\d+)_frame\d+")
SLICE = re.compile(rf"(?P<volume>{VOLUME.pattern})_slice_(?P<number>\d+)")


@dataclass(frozen=True)
class AcdcFiles:
    """Reader of one file per volume or per slice. Slices are stacked along the last axis."""

    def image(self, case: Case) -> Scan:
        """Read the image without its labels, which are in the same files."""
        return image_scan(_stacked(case, "image"))

    def label(self, case: Case) -> Scan:
        """Read the label map."""
        return label_scan(_stacked(case, "label"))


def find_acdc(folder: Path) -> list[Path]:
    """Return the given folder if it has the ACDC layout, otherwise all subfolders with this layout."""
    return [folder] if _data(folder) else [child for child in with_children(folder) if _data(child)]


def read_acdc(root: Path) -> Dataset:
    """Return the cases of a folder with the ACDC layout, in the order of the lists."""
    data = _data(root) or root
    lists = root.parent if data == root and root.name == "data" else root
    files = _files(data)
    cases: list[Case] = []
    problems: list[UserError] = []
    for name, names, split in LISTS:
        source, entries = entries_of(lists, f"acdc-{name}.list", *names)
        for volume in _volumes(source, entries):
            if volume in files:
                problems += _find_gaps(files[volume])
                # the label path only marks the case as labeled, because images and labels are in the same files
                cases.append(Case(volume, files[volume], files[volume][0], split))
            else:
                problems.append(missing_case(root, source, volume, f"data/{volume}.h5"))
    problems += find_repeated(root, cases)
    problems += _find_patients_in_two_lists(root, cases)
    return Dataset(root, "acdc", tuple(cases), CLASSES, tuple(problems), reader=AcdcFiles())


def _data(root: Path) -> Path | None:
    """Return the folder that contains volumes or the folder ``slices``, or None if the layout differs."""
    folders = (root / "data", root)
    patterns = ("patient*_frame*.h5", "slices/patient*_frame*_slice_*.h5")
    return next((folder for folder in folders if any(next(folder.glob(pattern), None) for pattern in patterns)), None)


def _files(data: Path) -> dict[str, tuple[Path, ...]]:
    """Return the files of each volume: its single file, or else its slices in order."""
    slices: dict[str, list[Path]] = {}
    for path in visible_entries(data / "slices"):
        if path.suffix == ".h5" and (match := SLICE.fullmatch(path.stem)):
            slices.setdefault(match["volume"], []).append(path)
    files = {volume: tuple(sorted(paths, key=_number)) for volume, paths in slices.items()}
    volumes = (path for path in visible_entries(data) if path.suffix == ".h5" and VOLUME.fullmatch(path.stem))
    return files | {path.stem: (path,) for path in volumes}


def _number(path: Path) -> int:
    match = SLICE.fullmatch(path.stem)
    return int(match["number"]) if match else 0


def _volumes(source: Path, entries: Iterable[str]) -> list[str]:
    """Return the volumes in a list of volumes or slices, with patients in list order and sorted frames per patient."""
    patients: dict[str, list[str]] = {}
    slices: set[str] = set()
    for entry in entries:
        stem = entry.removesuffix(".h5")
        if match := SLICE.fullmatch(stem):
            if match["volume"] in slices:
                continue
            slices.add(match["volume"])
            stem = match["volume"]
        if not (match := VOLUME.fullmatch(stem)):
            finding = f"{entry!r} is not the name of a volume or slice"
            raise UserError(Code.BENCHMARK_MISMATCH, source, finding, "write lines such as patient001_frame01")
        patients.setdefault(match["patient"], []).append(stem)
    return [volume for volumes in patients.values() for volume in sorted(volumes)]


def _find_patients_in_two_lists(root: Path, cases: list[Case]) -> list[UserError]:
    """Return an error if the frames of a patient are in different lists, for example in training and test."""
    seen: dict[str, Case] = {}
    for case in cases:
        first = seen.setdefault(case.name.partition("_")[0], case)
        if first.split != case.split and first.name != case.name:
            finding = f"{first.name} and {case.name} are from one patient, but in different lists"
            return [UserError(Code.BENCHMARK_MISMATCH, root, finding, "keep both frames of a patient in one list")]
    return []


def _find_gaps(paths: tuple[Path, ...]) -> list[UserError]:
    """Return an error if a slice of a volume is missing or has two files."""
    numbers = [_number(path) for path in paths]
    for (number, path), (next_number, _) in pairwise(zip(numbers, paths, strict=True)):
        if number == next_number:
            finding = f"slice {number} of the volume has two files"
            return [UserError(Code.BENCHMARK_MISMATCH, path, finding, "keep one of them")]
    missing = set(range(min(numbers[0], 1), numbers[-1])) - set(numbers)  # slices are numbered from 0 or 1
    finding = f"slice {min(missing, default=0)} of the volume is missing"
    return [UserError(Code.FILE_MISSING, paths[0], finding, "add the file")] if missing else []


def _stacked(case: Case, name: Literal["image", "label"]) -> NDArray[Any]:
    if len(case.images) == 1 and not SLICE.fullmatch(case.images[0].stem):
        return np.moveaxis(read_h5(case.images[0], name, 3), 0, -1)
    slices = [read_h5(path, name, 2) for path in case.images]
    for path, array in zip(case.images, slices, strict=True):
        if array.shape != slices[0].shape:
            finding = f"the slice has the shape {array.shape}, but {case.images[0].name} has {slices[0].shape}"
            raise UserError(Code.BENCHMARK_MISMATCH, path, finding, "keep the slices of one volume only")
    return np.stack(slices, axis=-1)
