"""Recognize images and label maps in swapped folders."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset, label_path
from graftseg.data.scans import Scan

GRAY_VALUES = 32
"""A label map with more values than this may be an image. An image with at most this many may be a label map."""
MAX_SAMPLES = 65536
"""Number of voxels in which values are counted."""


def read_label_of(dataset: Dataset, case: Case, scan: Scan) -> Scan:
    """Read the label map of a case whose image is ``scan``. Refuse an image in place of a label map, and the reverse.

    An image in place of a label map has many values, fractions, negative values or several channels. The scan then has
    few values, all integers from 0.
    """
    try:
        label = dataset.reader.label(case)
    except UserError as error:
        few = _class_numbers(scan.array[0])
        if error.code is Code.LABEL_INVALID and 1 < few <= GRAY_VALUES:
            raise _swapped(case) from error
        raise
    if label.array.max() > GRAY_VALUES:
        values = len(np.unique(_sample(label.array)))
        if values > GRAY_VALUES and 0 < 2 * _class_numbers(scan.array[0]) <= values:
            raise _swapped(case)
    return label


def _class_numbers(voxels: NDArray[Any]) -> int:
    """Return the number of values if all are integers from 0, and otherwise 0."""
    values = np.unique(_sample(voxels))
    return len(values) if values[0] >= 0 and (values == np.rint(values)).all() else 0


def _sample(voxels: NDArray[Any]) -> NDArray[Any]:
    """Return the same random voxels of all arrays of one shape."""
    if voxels.size <= MAX_SAMPLES:
        return voxels.ravel()
    chosen = np.random.default_rng(0).integers(voxels.size, size=MAX_SAMPLES)
    return voxels[np.unravel_index(chosen, voxels.shape)]


def _swapped(case: Case) -> UserError:
    path, images = label_path(case), case.images[0].parent.name
    finding = "the label map looks like an image, and its image looks like a label map"
    remedy = f"if the folders {images} and {path.parent.name} are swapped, exchange their names"
    return UserError(Code.LABEL_INVALID, path, finding, remedy)
