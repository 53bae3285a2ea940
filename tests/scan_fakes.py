"""NIfTI files with any header, on an oblique grid."""

import gzip
from pathlib import Path
from typing import Any, Literal

import nibabel
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.scans import Scan, read_scan
from user_errors import user_error

OBLIQUE = np.array([[0.9, -0.2, 0.1, -12.5], [0.2, 0.95, -0.3, 40.25], [0.0, 0.4, 2.5, 7.0], [0, 0, 0, 1]])
NAN = float("nan")
OBLIQUE = OBLIQUE.astype(np.float32).astype(np.float64)
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Shape = tuple[int, ...]
plain_and_compressed = pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])


def geometry(shape: Shape, **fields: Any) -> Geometry:
    return Geometry(shape, tuple(tuple(float(value) for value in row) for row in OBLIQUE), **fields)


def ramp(*shape: int, dtype: str = "int16") -> NDArray[Any]:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def nifti(array: NDArray[Any], fields: dict[str, Any] | None = None, kind: str = "Nifti1Header") -> bytes:
    """Return the bytes of a NIfTI file in the byte order of the array; ``fields`` may have any values."""
    order: Literal[">", "<"] = ">" if array.dtype.byteorder == ">" else "<"
    header = getattr(nibabel, kind)(endianness=order)
    header.set_data_shape(array.shape)
    header.set_data_dtype(array.dtype)
    header.set_sform(OBLIQUE, code=1)
    usual = {"vox_offset": header.single_vox_offset, "xyzt_units": 2, "scl_slope": 1, "scl_inter": 0}
    for name, value in {**usual, **(fields or {})}.items():
        header[name] = value
    return bytes(header.binaryblock) + bytes(4) + array.tobytes(order="F")


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def refused(path: Path, code: Code, keyword: str = "") -> str:
    """Expect a UserError with this code about this file; return its text."""
    with user_error(code, path, keyword) as caught:
        read_scan(path)
    return str(caught.value)


def assert_same(first: Scan, second: Scan) -> None:
    np.testing.assert_array_equal(first.array, second.array)
    assert first.array.dtype == second.array.dtype
    assert first.geometry == second.geometry
