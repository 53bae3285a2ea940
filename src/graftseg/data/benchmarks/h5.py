"""The h5 files of benchmarks: arrays with an image or a label map, and their scans with voxels of 1 mm."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.packages import import_optional
from graftseg.core.types import Geometry
from graftseg.data.formats.scan import refuse_absent, refuse_bytes, short_reason
from graftseg.data.scans import Scan, class_numbers, refuse_non_finite

AGAIN = "copy or download the file again"


def read_h5(path: Path, name: Literal["image", "label"], axes: int) -> NDArray[Any]:
    """Read an array with ``axes`` axes. Refuse values that are not finite, and labels that are not integers from 0."""
    array = _read_array(path, name, axes)
    refuse_non_finite(path, array[None])
    return class_numbers(path, array) if name == "label" else array


def image_scan(image: NDArray[Any]) -> Scan:
    """Return an image ``(*space)`` as a scan of one channel, with voxels of 1 mm and unknown orientation."""
    return replace(label_scan(image), array=image[None])


def label_scan(label: NDArray[Any]) -> Scan:
    """Return a label map ``(*space)`` as a scan with voxels of 1 mm and unknown orientation."""
    return Scan(label, Geometry(label.shape, tuple(map(tuple, np.eye(4).tolist())), qform_code=0, sform_code=0))


def _read_array(path: Path, name: str, axes: int) -> NDArray[Any]:
    h5py = import_optional("h5py", "h5 files")
    refuse_absent(path)
    try:
        with h5py.File(path, "r") as file:
            array = file.get(name)
            if not isinstance(array, h5py.Dataset):
                raise UserError(Code.BENCHMARK_MISMATCH, path, f"the file has no array {name!r}", AGAIN)
            if array.ndim != axes or 0 in array.shape or array.dtype.kind not in "fiub":
                finding = f"{name} has type {array.dtype} and shape {array.shape}, expected {axes} axes of numbers"
                raise UserError(Code.BENCHMARK_MISMATCH, path, finding, AGAIN)
            refuse_bytes(path, array.nbytes)
            return np.asarray(array[()])
    except (OSError, KeyError, RuntimeError) as error:
        finding = f"not a readable h5 file ({short_reason(error, path)})"
        raise UserError(Code.SCAN_DAMAGED, path, finding, AGAIN) from None
