"""Pancreas-CT of the NIH: contrast CT with the pancreas labeled, from its DICOM release or as NIfTI files.

``PANCREAS_0001/.../*.dcm``, or a NIfTI file with the four digits in its name, is a scan; ``label0001.nii.gz``, or such
a file in a folder called labels, its label map. Two protocols are in use, which differ in cases and in preparation:
``pancreas`` (80 scans, 62 to train with and 18 to test) and ``pancreas-62`` (82 scans, 62 and 20). The labeled cases of
a paper are the first of the list.

In both, scans are cropped around the label, also those that are then trained without it: their labels are opened for
that box, as in the published preparation, and for nothing else.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Literal

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Split
from graftseg.data.benchmarks.lists import PUBLISHED, absent, read_list, repeated
from graftseg.data.benchmarks.pancreas_files import PancreasFiles
from graftseg.data.dataset import Dataset
from graftseg.data.folders import visible_entries
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.scans import scan_stem

Protocol = Literal["pancreas", "pancreas-62"]
LOOKED_FOR = "PANCREAS_0001/.../*.dcm (or PANCREAS_0001.nii.gz) and label0001.nii.gz"
CLASSES = {0: "background", 1: "pancreas"}
LISTS: tuple[tuple[str, Split], ...] = (("train", "labeled"), ("test", "test"))
SERIES = re.compile(r"PANCREAS_(\d{4})", re.IGNORECASE)
DIGITS = re.compile(r"(?<!\d)(\d{4})(?!\d)")
DEPTH = 3


@dataclass(frozen=True)
class _Found:
    """The files of a folder by the number of their case."""

    images: dict[str, Path]
    labels: dict[str, Path]
    problems: tuple[UserError, ...]

    @property
    def root(self) -> Path:
        """The smallest folder that holds them all."""
        return Path(commonpath([path.parent for path in (*self.images.values(), *self.labels.values())]))


def find_pancreas(folder: Path) -> list[Path]:
    """The folder with scans and label maps, if they have the names of the release."""
    found = _found(folder)
    images = any(SERIES.match(path.name) for path in found.images.values())
    labels = any(path.name.startswith("label") for path in found.labels.values())
    return [found.root] if images and labels else []


def find_numbered(folder: Path) -> list[Path]:
    """The folder with scans and label maps, whatever stands before and after their four digits."""
    found = _found(folder)
    return [found.root] if found.images and found.labels else []


def read_pancreas(root: Path, protocol: Protocol) -> Dataset:
    """The cases of a folder that was found, in the order of ``train.list`` and ``test.list`` or the published lists."""
    found = _found(root)
    cases: list[Case] = []
    problems = list(found.problems)
    for name, split in LISTS:
        source = root / f"{name}.list"
        source = source if source.is_file() or source.is_symlink() else PUBLISHED / f"{protocol}-{name}.list"
        for number in _numbers(source):
            if number in found.images and number in found.labels:
                cases.append(_case(number, found, split))
            else:
                lacks = "its scan" if number not in found.images else f"label{number}.nii.gz"
                problems.append(absent(root, source, number, lacks))
    problems += repeated(root, cases)
    return Dataset(root, protocol, tuple(cases), CLASSES, tuple(problems), reader=PancreasFiles(protocol))


def _case(number: str, found: _Found, split: Split) -> Case:
    """A case; the last of its images is the label map that it is cropped around, labeled or not."""
    image, label = found.images[number], found.labels[number]
    slices = _series(image) if image.is_dir() else [image]
    return Case(number, (*slices, label), label, split)


def _series(folder: Path) -> list[Path]:
    """The slices of the only series below a folder, by name."""
    slices = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".dcm" and path.is_file())
    if not slices:
        raise UserError(
            Code.BENCHMARK_MISMATCH, folder, "the folder holds no .dcm file", "copy or download the series again"
        )
    folders = sorted({path.parent for path in slices})
    if len(folders) > 1:
        finding = f"it holds two series, in {folders[0].name} and {folders[1].name}"
        raise UserError(Code.BENCHMARK_MISMATCH, folder, finding, "keep the one that the label map belongs to")
    return slices


def _numbers(source: Path) -> list[str]:
    numbers = []
    for entry in read_list(source):
        match = DIGITS.search(entry)
        if match is None:
            raise UserError(
                Code.BENCHMARK_MISMATCH, source, f"{entry!r} has no number of four digits", "write lines such as 0001"
            )
        numbers.append(match[1])
    return numbers


def _found(folder: Path) -> _Found:
    images: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    problems = []
    for path in _walk(folder, DEPTH):
        series = path.is_dir()
        if match := SERIES.match(path.name) if series else DIGITS.search(scan_stem(path)):
            is_label = not series and "label" in f"{path.parent.name}/{path.name}".lower()
            taken = (labels if is_label else images).setdefault(match[1], path)
            if taken != path:
                kind = "label maps" if is_label else "scans"
                finding = f"two {kind} have the number {match[1]}, {taken.name} and {path.name}"
                problems.append(UserError(Code.BENCHMARK_MISMATCH, folder, finding, "keep one of them"))
    return _Found(images, labels, tuple(problems))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """The scan files of a folder and the folders of series, down to some depth."""
    for path in visible_entries(folder):
        if path.is_dir():
            if SERIES.fullmatch(path.name):
                yield path
            elif depth > 1:
                yield from _walk(path, depth - 1)
        elif is_nifti(path):
            yield path
