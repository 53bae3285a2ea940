"""Pancreas-CT of the NIH: contrast CT with labels of the pancreas, as DICOM (the release) or NIfTI.

A scan is ``PANCREAS_0001/.../*.dcm`` or a NIfTI file with four digits in its name. A label map is a NIfTI file with the
same digits and "label" in its name or in the name of its folder. Two protocols with different cases and preparations
are in use: ``pancreas`` (62 scans for training, 18 for test) and ``pancreas-62`` (62 for training, 20 for test). Papers
use the first cases of the training list as labeled cases.

Both protocols crop all scans around the label, including training scans that are used without a label. As in the
published preparation, the labels of these training scans are read only for the crop.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry, Split
from graftseg.data.benchmarks.case_lists import PUBLISHED, find_repeated, missing_case, read_list
from graftseg.data.benchmarks.h5 import image_scan, label_scan
from graftseg.data.dataset import Dataset, label_path
from graftseg.data.folders import visible_entries
from graftseg.data.formats.dicom_series import read_series, series_geometry
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.pieces import foreground_box
from graftseg.data.scans import Scan, read_geometry, read_label, read_scan, scan_stem

Protocol = Literal["pancreas", "pancreas-62"]
EXPECTED = "PANCREAS_0001/.../*.dcm (or PANCREAS_0001.nii.gz) and label0001.nii.gz"
CLASSES = {0: "background", 1: "pancreas"}
LISTS: tuple[tuple[str, Split], ...] = (("train", "labeled"), ("test", "test"))
SERIES = re.compile(r"PANCREAS_(\d{4})", re.IGNORECASE)
DIGITS = re.compile(r"(?<!\d)(\d{4})(?!\d)")
SEARCH_DEPTH = 3  # levels of folders that are searched, including the given folder
AXES = "LPS"
WINDOW = (-125.0, 275.0)  # HU
MARGIN = 25  # voxels around the label
MIN_SIZE = 96  # voxels per side
Number = TypeVar("Number", bound=np.generic)
Bounds = tuple[tuple[int, int], ...]  # start and stop voxel along each axis. The stop voxel is not included


@dataclass(frozen=True)
class _Files:
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


@dataclass(frozen=True)
class PancreasFiles:
    """Reader of DICOM or NIfTI scans that are cropped around their label maps."""

    protocol: Protocol

    def image(self, case: Case) -> Scan:
        """Read the image. The label map, which is the last file of the case, is used only for the crop."""
        *paths, label = case.images
        scan = _read_image(paths)
        grid, box = self._plan(paths, scan.geometry, label)[1:]
        oriented = _to_lps(scan.array[0], scan.geometry)
        if self.protocol == "pancreas":
            resampled = to_grid(oriented, grid, labels=False)
        else:
            from scipy.ndimage import zoom

            factors = [new / old for new, old in zip(grid.prepared_shape, oriented.shape, strict=True)]
            resampled = zoom(oriented.astype(np.float32), factors, order=3, mode="nearest", grid_mode=True)
        clipped = np.asarray(resampled).clip(*WINDOW)
        image = self._crop(normalize(clipped[None], IntensitySettings(rule="minmax"))[0], box)
        if self.protocol == "pancreas-62":
            image = normalize(image[None], IntensitySettings(rule="zscore"))[0]
        return image_scan(image)

    def label(self, case: Case) -> Scan:
        """Read the label map with the same crop as the image."""
        *paths, _ = case.images
        geometry = read_geometry(paths[0]) if is_nifti(paths[0]) else series_geometry(paths)
        resampled, _, box = self._plan(paths, geometry, label_path(case))
        return label_scan(self._crop(resampled, box))

    def _plan(self, paths: Sequence[Path], image: Geometry, label: Path) -> tuple[NDArray[Any], Grid, Bounds]:
        """Return the resampled label map, the grid with a spacing of 1 mm, and the crop box."""
        scan = read_label(label)
        oriented = _to_lps(scan.array, scan.geometry)
        shape = _lps_grid(image).prepared_shape
        # origins are not compared, because those of the released label maps differ from those of their series
        if oriented.shape != shape:
            finding = f"the label map has {oriented.shape} voxels, but the scan {paths[0].name} has {shape}"
            raise UserError(Code.BENCHMARK_MISMATCH, label, finding, "keep the label map of the same scan")
        spacing = _lps_grid(scan.geometry).prepared_spacing
        if self.protocol == "pancreas":
            spacing = (_lps_grid(image).prepared_spacing[0],) * 3
        affine = np.diag([*spacing, 1.0])
        grid = plan_grid(Geometry(shape, tuple(map(tuple, affine.tolist()))), orientation=None, spacing=(1, 1, 1))
        resampled = to_grid(oriented, grid, labels=True)
        box = foreground_box(resampled)
        if box is None:
            raise UserError(Code.LABELS_EMPTY, label, "the label map for the crop is empty", "restore the file")
        bounds, size = [(part.start, part.stop) for part in box], resampled.shape
        if self.protocol == "pancreas":
            return resampled, grid, widened(bounds, size, MARGIN, MIN_SIZE)
        return resampled, grid, (_in_plane(bounds[0], size[0]), _in_plane(bounds[1], size[1]), (0, size[2]))

    def _crop(self, array: NDArray[Any], box: Bounds) -> NDArray[Any]:
        return cropped(array, box, MIN_SIZE if self.protocol == "pancreas" else 0)


def _in_plane(bounds: tuple[int, int], size: int) -> tuple[int, int]:
    """Return the bounds of the published crop. Its margin after the label is one voxel smaller than before it."""
    first, last = bounds[0], bounds[1] - 1
    pad = max(MIN_SIZE - (last - first), 0) // 2
    return max(first - pad - MARGIN, 0), min(last + pad + MARGIN, size)


def _read_image(paths: Sequence[Path]) -> Scan:
    if not is_nifti(paths[0]):
        return read_series(paths)
    scan = read_scan(paths[0])
    if scan.array.shape[0] != 1 or len(scan.geometry.shape) != 3:
        raise UserError(Code.BENCHMARK_MISMATCH, paths[0], "not a volume with one channel", "convert the series again")
    return scan


def _lps_grid(geometry: Geometry) -> Grid:
    return plan_grid(geometry, orientation=AXES, spacing=None)


def _to_lps(array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    return to_grid(array, _lps_grid(geometry), labels=True)


def widened(box: Sequence[tuple[int, int]], shape: Sequence[int], margin: int, min_size: int) -> Bounds:
    """Add a margin to a box, then grow it evenly to at least ``min_size`` voxels per axis, within the image."""
    grown = []
    for (first, last), size in zip(box, shape, strict=True):
        start, stop = max(first - margin, 0), min(last + margin, size)
        if (missing := min_size - (stop - start)) > 0:
            start = min(max(start - missing // 2, 0), max(size - min_size, 0))
            stop = min(start + min_size, size)
        grown.append((start, stop))
    return tuple(grown)


def cropped(array: NDArray[Number], box: Bounds, min_size: int) -> NDArray[Number]:
    """Return the voxels in the box, padded with zeros to at least ``min_size`` voxels per axis."""
    inside = array[tuple(slice(start, stop) for start, stop in box)]
    missing = [max(min_size - size, 0) for size in inside.shape]
    return np.pad(inside, [(lack // 2, lack - lack // 2) for lack in missing])
