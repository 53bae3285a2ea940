"""ACDC: right ventricle, myocardium and left ventricle in cine MR, the h5 files that papers share.

``data/PATIENT_FRAME.h5`` is a volume ``(slices, rows, columns)`` with intensities from 0 to 1, and
``data/slices/PATIENT_FRAME_slice_N.h5`` are its slices; either is enough. ``train.list``, or ``train_slices.list``,
``val.list`` and ``test.list`` name the cases. The labeled cases of a paper are the first patients of the list, two
frames each.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.h5 import read_h5_image, read_h5_label
from graftseg.data.benchmarks.lists import absent, entries_of, repeated
from graftseg.data.benchmarks.placeless import without_geometry
from graftseg.data.dataset import Dataset
from graftseg.data.folders import visible_entries, with_children
from graftseg.data.scans import Scan

LOOKED_FOR = "data/PATIENT_FRAME.h5 or data/slices/PATIENT_FRAME_slice_N.h5"
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
    """A volume in a file, or a slice in each; slices become the last axis."""

    def image(self, case: Case) -> Scan:
        """The image, with the labels of the same files left alone."""
        image = _stacked(case, read_h5_image)
        return without_geometry(image[None], image.shape)

    def label(self, case: Case) -> Scan:
        """The label map."""
        label = _stacked(case, read_h5_label)
        return without_geometry(label, label.shape)


def find_acdc(folder: Path) -> list[Path]:
    """The folders of this layout: the one that is named, else those within it."""
    return [folder] if _data(folder) else [child for child in with_children(folder) if _data(child)]


def read_acdc(root: Path) -> Dataset:
    """The cases of a folder that was found, in the order of the lists."""
    data = _data(root) or root
    lists = root.parent if data == root and root.name == "data" else root
    files = _files(data)
    cases: list[Case] = []
    problems: list[UserError] = []
    for name, names, split in LISTS:
        source, entries = entries_of(lists, f"acdc-{name}.list", *names)
        for volume in _volumes(source, entries):
            if volume in files:
                problems += _gaps(files[volume])
                # A label lies in the same files as its image; its path says that it may be read.
                cases.append(Case(volume, files[volume], files[volume][0], split))
            else:
                problems.append(absent(root, source, volume, f"data/{volume}.h5"))
    problems += repeated(root, cases)
    problems += _split_patients(root, cases)
    return Dataset(root, "acdc", tuple(cases), CLASSES, tuple(problems), reader=AcdcFiles())


def _data(root: Path) -> Path | None:
    """The folder with the volumes or with the folder of slices, if this is a folder of the layout."""
    places = (root / "data", root)
    patterns = ("patient*_frame*.h5", "slices/patient*_frame*_slice_*.h5")
    return next((place for place in places if any(next(place.glob(pattern), None) for pattern in patterns)), None)


def _files(data: Path) -> dict[str, tuple[Path, ...]]:
    """The files of each volume: one that holds it whole, else its slices by number."""
    slices: dict[str, list[Path]] = {}
    for path in visible_entries(data / "slices"):
        if path.suffix == ".h5" and (match := SLICE.fullmatch(path.stem)):
            slices.setdefault(match["volume"], []).append(path)
    files = {volume: tuple(sorted(paths, key=_number)) for volume, paths in slices.items()}
    whole = (path for path in visible_entries(data) if path.suffix == ".h5" and VOLUME.fullmatch(path.stem))
    return files | {path.stem: (path,) for path in whole}


def _number(path: Path) -> int:
    match = SLICE.fullmatch(path.stem)
    return int(match["number"]) if match else 0


def _volumes(source: Path, entries: Iterable[str]) -> list[str]:
    """The volumes of a list of volumes or of slices: patients as they come, the frames of each in order."""
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


def _split_patients(root: Path, cases: list[Case]) -> list[UserError]:
    """Patients whose two frames are in different lists, so that one would be tested on what was trained on."""
    seen: dict[str, Case] = {}
    for case in cases:
        first = seen.setdefault(case.name.partition("_")[0], case)
        if first.split != case.split and first.name != case.name:
            finding = f"{first.name} and {case.name} are of one patient and in different lists"
            return [UserError(Code.BENCHMARK_MISMATCH, root, finding, "keep both frames of a patient in one list")]
    return []


def _gaps(paths: tuple[Path, ...]) -> list[UserError]:
    """Slices that are missing between others, or there twice."""
    numbers = [_number(path) for path in paths]
    for (one, path), (other, _) in pairwise(zip(numbers, paths, strict=True)):
        if one == other:
            return [
                UserError(
                    Code.BENCHMARK_MISMATCH, path, f"slice {one} of the volume is there twice", "keep one of its files"
                )
            ]
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
    if numbers[0] > 1:
        missing.insert(0, 1)
    return [
        UserError(Code.BENCHMARK_MISMATCH, paths[0], f"slice {number} of the volume is missing", "add its file")
        for number in missing[:1]
    ]


def _stacked(case: Case, read: Callable[[Path, int], NDArray[Any]]) -> NDArray[Any]:
    """The volume with its slices along the last axis."""
    if len(case.images) == 1 and not SLICE.fullmatch(case.images[0].stem):
        return np.moveaxis(read(case.images[0], 3), 0, -1)
    slices = [read(path, 2) for path in case.images]
    for path, one in zip(case.images, slices, strict=True):
        if one.shape != slices[0].shape:
            finding = f"the slice is {one.shape} where {case.images[0].name} is {slices[0].shape}"
            raise UserError(Code.BENCHMARK_MISMATCH, path, finding, "keep the slices of one volume only")
    return np.stack(slices, axis=-1)
