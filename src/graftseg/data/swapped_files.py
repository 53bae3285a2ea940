"""Detect exchanged images and label maps, and label maps that are copies of their image."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.scans import ROUNDING, Scan, read_scan

GRAY_VALUES = 32
"""A label map with more values may be an image. An image with at most this number of values may be a label map."""
MAX_SAMPLES = 65536  # number of voxels in which values are counted


def read_label_of(dataset: Dataset, case: Case, scan: Scan) -> Scan:
    """Read the label map of a case whose image is ``scan``. Refuse a label map that is an image."""
    path, image = label_path(case), case.images[0]
    try:
        label = dataset.reader.label(case)
    except UserError as error:
        if error.code is Code.LABEL_INVALID and isinstance(dataset.reader, ScanFiles):
            refuse_image(path, image, scan)
        raise
    refuse_many_values(path, label, image, scan)
    return label


def refuse_many_values(path: Path, label: Scan, image: Path, scan: Scan) -> None:
    """Refuse a label map with many values if ``scan``, its image, has few values or the same voxels."""
    if label.array.max() <= GRAY_VALUES or (values := len(np.unique(_sample(label.array)))) <= GRAY_VALUES:
        return
    if 0 < 2 * _count_classes(scan.array[0]) <= values:
        raise _swapped(path, image)
    if np.array_equal(label.array, scan.array[0]):
        raise _copied(path, image)


def refuse_image(path: Path, image: Path, scan: Scan) -> None:
    """Refuse a label map that cannot be read because it is an image, if ``scan`` is a label map or the same image."""
    if looks_like_labels(scan):
        raise _swapped(path, image)
    try:
        is_copy = np.array_equal(read_scan(path).array, scan.array)
    except UserError:
        return
    if is_copy:
        raise _copied(path, image)


def looks_like_labels(scan: Scan) -> bool:
    """Return whether a scan has few values, all integers from 0, and more than one."""
    return 1 < _count_classes(scan.array[0]) <= GRAY_VALUES


def _count_classes(voxels: NDArray[Any]) -> int:
    """Return the number of values if all are integers from 0 except for rounding, and otherwise 0."""
    values = np.unique(_sample(voxels))
    integers = np.rint(values)
    return len(np.unique(integers)) if integers[0] >= 0 and (np.abs(values - integers) <= ROUNDING).all() else 0


def _sample(voxels: NDArray[Any]) -> NDArray[Any]:
    """Return the same random voxels of all arrays of one shape."""
    if voxels.size <= MAX_SAMPLES:
        return voxels.ravel()
    chosen = np.random.default_rng(0).integers(voxels.size, size=MAX_SAMPLES)
    return voxels[np.unravel_index(chosen, voxels.shape)]


def _swapped(path: Path, image: Path) -> UserError:
    finding = "the label map looks like an image, and its image looks like a label map"
    folders = f"{image.parent.name} and {path.parent.name}"
    remedy = f"exchange these two files, or the names of the folders {folders} if all pairs are swapped"
    return UserError(Code.LABEL_INVALID, path, finding, remedy)


def _copied(path: Path, image: Path) -> UserError:
    remedy = f"put the label map of {image.name} into {path.parent.name}"
    return UserError(Code.LABEL_INVALID, path, "the label map has the voxels of its image", remedy)
