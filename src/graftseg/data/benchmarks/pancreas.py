"""Pancreas-CT of the NIH: contrast CT with labels of the pancreas, as DICOM (the release) or NIfTI.

A scan is ``PANCREAS_0001/.../*.dcm`` or a NIfTI file with four digits in its name. A label map is a NIfTI file with the
same digits and "label" in its name or in the name of its folder. Two protocols with different cases and preparations
are in use: ``pancreas`` (62 scans for training, 18 for test) and ``pancreas-62`` (62 for training, 20 for test). Papers
use the first cases of the training list as labeled cases.

Both protocols crop all scans around the label, including training scans that are used without a label. As in the
published preparation, the labels of these training scans are read only for the crop.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Literal

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.lists import PUBLISHED, find_repeated, missing_case, read_list
from graftseg.data.benchmarks.pancreas_files import PancreasFiles
from graftseg.data.dataset import Dataset
from graftseg.data.folders import visible_entries
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.scans import scan_stem

Protocol = Literal["pancreas", "pancreas-62"]
EXPECTED = "PANCREAS_0001/.../*.dcm (or PANCREAS_0001.nii.gz) and label0001.nii.gz"
CLASSES = {0: "background", 1: "pancreas"}
LISTS: tuple[tuple[str, Split], ...] = (("train", "labeled"), ("test", "test"))
SERIES = re.compile(r"PANCREAS_(\d{4})", re.IGNORECASE)
DIGITS = re.compile(r"(?<!\d)(\d{4})(?!\d)")
SEARCH_DEPTH = 3  # levels of folders that are searched, including the given folder


@dataclass(frozen=True)
class _Files:
    """The scans and label maps of a folder by case number."""

    images: dict[str, Path]
    labels: dict[str, Path]
    problems: tuple[UserError, ...]

    @property
    def root(self) -> Path:
        """The deepest folder that contains all files."""
        return Path(commonpath([path.parent for path in (*self.images.values(), *self.labels.values())]))


def find_pancreas(folder: Path) -> list[Path]:
    """Return the folder with scans and label maps if they are named as in the release."""
    files = _find_files(folder)
    images = any(SERIES.match(path.name) for path in files.images.values())
    labels = any(path.name.startswith("label") for path in files.labels.values())
    return [files.root] if images and labels else []


def find_numbered(folder: Path) -> list[Path]:
    """Return the folder with scans and label maps if their names contain four digits."""
    files = _find_files(folder)
    return [files.root] if files.images and files.labels else []


def read_pancreas(root: Path, protocol: Protocol) -> Dataset:
    """Return the cases in the order of ``train.list`` and ``test.list``. The published lists replace missing lists."""
    files = _find_files(root)
    cases: list[Case] = []
    problems = list(files.problems)
    for name, split in LISTS:
        source = root / f"{name}.list"
        source = source if source.is_file() or source.is_symlink() else PUBLISHED / f"{protocol}-{name}.list"
        for number in _numbers(source):
            if number in files.images and number in files.labels:
                image, label = files.images[number], files.labels[number]
                slices = _series(image) if image.is_dir() else [image]
                # the last path is the label map, which every case needs for the crop
                cases.append(Case(number, (*slices, label), label, split))
            else:
                file = "its scan" if number not in files.images else f"label{number}.nii.gz"
                problems.append(missing_case(root, source, number, file))
    problems += find_repeated(root, cases)
    return Dataset(root, protocol, tuple(cases), CLASSES, tuple(problems), reader=PancreasFiles(protocol))


def _series(folder: Path) -> list[Path]:
    """Return the slices of the only series below a folder, sorted by name."""
    slices = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".dcm" and path.is_file())
    if not slices:
        finding = "the folder contains no .dcm file"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, "copy or download the series again")
    folders = sorted({path.parent for path in slices})
    if len(folders) > 1:
        finding = f"two series, in {folders[0].name} and {folders[1].name}"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, "keep the series that the label map belongs to")
    return slices


def _numbers(source: Path) -> list[str]:
    numbers = []
    for entry in read_list(source):
        match = DIGITS.search(entry)
        if match is None:
            finding = f"{entry!r} has no four-digit number"
            raise UserError(Code.BENCHMARK_MISMATCH, source, finding, "write lines such as 0001")
        numbers.append(match[1])
    return numbers


def _find_files(folder: Path) -> _Files:
    images: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    problems = []
    for path in _walk(folder, SEARCH_DEPTH):
        is_series = path.is_dir()
        if match := SERIES.match(path.name) if is_series else DIGITS.search(scan_stem(path)):
            is_label = not is_series and "label" in f"{path.parent.name}/{path.name}".lower()
            first = (labels if is_label else images).setdefault(match[1], path)
            if first != path:
                kind = "label maps" if is_label else "scans"
                finding = f"two {kind} have the number {match[1]}, {first.name} and {path.name}"
                problems.append(UserError(Code.CASE_DUPLICATE, folder, finding, "keep one of them"))
    return _Files(images, labels, tuple(problems))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the NIfTI files and the folders of series, in up to ``depth`` levels of folders."""
    for path in visible_entries(folder):
        if path.is_dir():
            if SERIES.fullmatch(path.name):
                yield path
            elif depth > 1:
                yield from _walk(path, depth - 1)
        elif is_nifti(path):
            yield path
