"""The h5 files that papers of this field share: two arrays, ``image`` and ``label``, without any geometry."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.scans import MAX_BYTES, class_numbers, refuse_non_finite

AGAIN = "copy or download the file again"


def read_h5_image(path: Path, axes: int) -> NDArray[Any]:
    """The image of a file, of so many axes and finite."""
    image = _read(path, "image", axes)
    refuse_non_finite(path, image[None])
    return image


def read_h5_label(path: Path, axes: int) -> NDArray[Any]:
    """The label map of a file, of so many axes and whole numbers from 0."""
    label = _read(path, "label", axes)
    refuse_non_finite(path, label[None])
    return class_numbers(path, label)


def _read(path: Path, name: str, axes: int) -> NDArray[Any]:
    h5py = _h5py()
    if not path.is_file():
        raise UserError(Code.FILE_MISSING, path, "the file is missing", "check that the data set is complete")
    try:
        with h5py.File(path, "r") as file:
            _check(path, file.get(name), name, axes, h5py.Dataset)
            return np.asarray(file[name][()])
    except (OSError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(Code.BENCHMARK_MISMATCH, path, f"not an h5 file that can be read ({reason})", AGAIN) from None


def _check(path: Path, found: Any, name: str, axes: int, kind: type) -> None:
    if not isinstance(found, kind):
        raise UserError(
            Code.BENCHMARK_MISMATCH,
            path,
            f"the file has no array called {name}",
            "keep image and label in it, or download it again",
        )
    array: Any = found
    if array.ndim != axes or 0 in array.shape or array.dtype.kind not in "fiub":
        finding = f"{name} is of type {array.dtype} and shape {array.shape} where {axes} axes of numbers are expected"
        raise UserError(Code.BENCHMARK_MISMATCH, path, finding, AGAIN)
    if array.nbytes > MAX_BYTES:
        raise UserError(
            Code.SCAN_TOO_LARGE, path, f"{name} asks for {array.nbytes} bytes, above the limit of {MAX_BYTES}", AGAIN
        )


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UserError(Code.PACKAGE_MISSING, "h5 files", "h5py is not installed", "pip install h5py") from None
    return h5py
