"""Scan files: their voxels, and where these lie in the world. The only module that opens scan files.

A scan comes from elsewhere, so nothing in it is believed before it is checked. The header is read first; the
bytes it asks for are compared with the bytes there are, and with ``MAX_BYTES``, before memory is set aside.
Compressed files are read to their very end, where the checksum stands: a damaged one never passes for good.

Only voxels and geometry are kept; free text of the header, which may name a person, is never passed on.
"""

import gzip
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import nibabel
import numpy as np
from nibabel.nifti1 import data_type_codes
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from graftseg.data.grid import grid_difference as grid_difference
from graftseg.errors import UserError
from graftseg.files import atomic_path
from graftseg.types import Geometry

MAX_BYTES = 16 * 2**30
"""The most a file may ask for, in bytes: far above any scan, far below what stops a machine."""

_PIECE = 4 * 2**20
_SLACK = 2**20  # bytes after the voxels of a compressed file that are read past in silence
_DEFLATE_GAIN = 1100  # one compressed byte never becomes more bytes than this
_GZIP_MAGIC = b"\x1f\x8b"
_AGAIN = "copy or export the file again"
_UNITS = {0: "unknown", 1: "meter", 2: "mm", 3: "micron"}


@dataclass(frozen=True)
class Scan:
    """Voxels ``(C, *space)``, or ``(*space)`` for a label map, and where they lie."""

    array: NDArray[Any]
    geometry: Geometry


def is_scan(path: Path) -> bool:
    """Whether the name of the file is that of a scan."""
    return _suffix(path) is not None


def scan_stem(path: Path) -> str:
    """The name of a scan file without ``.nii`` or ``.nii.gz``."""
    return path.name[: len(path.name) - len(_suffix(path) or "")]


def read_geometry(path: Path) -> Geometry:
    """Where the voxels lie, from the header alone: only reading shows whether the voxels are sound."""
    return _format(path).geometry(path)


def read_scan(path: Path) -> Scan:
    """Read one file as ``(C, *space)``: all axes after the third are channels.

    Voxels keep the type they have in the file, or become float32 / float64 where the header scales them.
    A file of two axes is a 2-D scan, a file of three a volume, even if it is one slice thick.
    """
    scan = _format(path).scan(path)
    refuse_non_finite(path, scan.array)
    return scan


def read_case(images: Sequence[Path]) -> Scan:
    """Read the files of one case, one a channel, as ``(C, *space)``; all must lie on one grid."""
    scans = [read_scan(path) for path in images]
    geometry = scans[0].geometry
    for path, scan in zip(images, scans, strict=True):
        if difference := grid_difference(geometry, scan.geometry):
            finding = f"its grid is not that of {images[0].name}: {difference}"
            raise UserError(path, finding, "bring all channels of a case to one grid")
    if len(scans) == 1:
        return scans[0]
    return Scan(np.concatenate([scan.array for scan in scans]), geometry)


def read_label(path: Path) -> Scan:
    """Read a label map as ``(*space)``, uint8, or uint16 if a value is above 255.

    Labels stored as floats are taken if all of them are whole numbers.
    """
    scan = read_scan(path)
    if len(scan.array) != 1:
        raise UserError(path, f"a label map of {len(scan.array)} channels", "save one class number a voxel")
    return replace(scan, array=class_numbers(path, scan.array[0]))


def class_numbers(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    """The label map ``(*space)`` of a file as uint8, or uint16 if a value is above 255; all must be whole numbers."""
    if labels.dtype.kind == "f":
        _refuse_labels(path, labels, labels != np.rint(labels), "not a whole number", "save class numbers")
    if labels.min() < 0:
        _refuse_labels(path, labels, labels < 0, "negative", "number the classes from 0, the background")
    top = int(labels.max())
    if top > 65535:
        _refuse_labels(path, labels, labels > 65535, "above 65535", "number the classes from 0 upwards")
    return _smallest(labels, top)


def write_label(path: Path, labels: NDArray[Any], geometry: Geometry) -> None:
    """Write a label map ``(*space)`` on the given grid, as uint8, or uint16 if a value is above 255."""
    if labels.dtype.kind not in "bui":
        raise ValueError(f"labels of type {labels.dtype} are not integers")
    low, top = int(labels.min()), int(labels.max())
    if low < 0 or top > 65535:
        raise ValueError(f"labels from {low} to {top} do not fit 0 to 65535")
    if labels.shape != geometry.shape:
        raise ValueError(f"labels of shape {labels.shape} on a grid of {geometry.shape}")
    _write_nifti(path, _smallest(labels, top)[None], geometry)


def write_scan(path: Path, array: NDArray[Any], geometry: Geometry) -> None:
    """Write ``(C, *space)`` or ``(*space)`` on the given grid; booleans become uint8 and float16 float32."""
    channels = array[None] if array.ndim == len(geometry.shape) else array
    if channels.shape[1:] != geometry.shape:
        raise ValueError(f"voxels of shape {array.shape} on a grid of {geometry.shape}")
    widened = {"bool": np.uint8, "float16": np.float32}.get(array.dtype.name, array.dtype)
    _write_nifti(path, channels.astype(widened, copy=False), geometry)


def _smallest(labels: NDArray[Any], top: int) -> NDArray[Any]:
    return labels.astype(np.uint8 if top <= 255 else np.uint16, copy=False)


def refuse_non_finite(path: Path, array: NDArray[Any]) -> None:
    """Raise a UserError that names the first voxel of ``(C, *space)`` that is no number."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    if count := int(np.count_nonzero(bad)):
        channel, *voxel = _first(bad)
        within = f" of channel {channel + 1}" if len(array) > 1 else ""
        finding = f"{count} of {array.size} voxels are NaN or infinite, the first at {tuple(voxel)}{within}"
        raise UserError(path, finding, "replace them by a number, such as the value of air")


def _refuse_labels(path: Path, labels: NDArray[Any], bad: NDArray[np.bool_], what: str, remedy: str) -> None:
    if bad.any():
        voxel = _first(bad)
        raise UserError(path, f"the label {labels[voxel]:g} at voxel {voxel} is {what}", remedy)


def _first(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(int(bad.argmax()), bad.shape))


@dataclass(frozen=True)
class _Header:
    """What a NIfTI header says of the voxels, checked."""

    geometry: Geometry
    channels: int
    dtype: np.dtype[Any]
    offset: int
    scaling: tuple[float, float] | None

    @property
    def size(self) -> int:
        """Bytes of voxels."""
        return math.prod(self.geometry.shape) * self.channels * self.dtype.itemsize


def _nifti_geometry(path: Path) -> Geometry:
    with _open_nifti(path) as (_, header):
        return header.geometry


def _read_nifti(path: Path) -> Scan:
    with _open_nifti(path) as (stream, header):
        stream.seek(header.offset)
        content = _take(stream, header.size)
        if len(content) < header.size:
            raise UserError(path, f"cut off after {len(content)} of {header.size} bytes of voxels", _AGAIN)
        if isinstance(stream, gzip.GzipFile) and len(_take(stream, _SLACK + 1)) > _SLACK:
            raise UserError(path, f"more data than the {header.size} bytes its header asks for", _AGAIN)
    flat = np.frombuffer(content, header.dtype)
    flat = _scaled(flat.astype(header.dtype.newbyteorder("="), copy=False), header.scaling)
    array = flat.reshape((*header.geometry.shape, header.channels), order="F")
    return Scan(np.moveaxis(array, -1, 0), header.geometry)


@contextmanager
def _open_nifti(path: Path) -> Iterator[tuple[BinaryIO, _Header]]:
    """Open a NIfTI file, compressed or not, and check its header against the size of the file."""
    try:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "not a file" if path.exists() else "the file is missing"
            raise UserError(path, found, "check the path")
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file
            header = _read_header(path, stream)
            _refuse_size(path, header, path.stat().st_size * (_DEFLATE_GAIN if compressed else 1))
            yield stream, header
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(path, f"its compressed data is damaged or cut off ({error})", _AGAIN) from None
    except OSError as error:
        raise UserError(path, f"cannot be read ({error.strerror})", "check the file's permissions") from None


def _take(stream: BinaryIO, count: int) -> bytearray:
    """Up to ``count`` bytes; memory grows with what really arrives, not with what was promised."""
    taken = bytearray()
    while len(taken) < count and (piece := stream.read(min(_PIECE, count - len(taken)))):
        taken += piece
    return taken


def _refuse_size(path: Path, header: _Header, available: int) -> None:
    needed = header.offset + header.size
    if needed > MAX_BYTES:
        raise UserError(path, f"its header asks for {needed} bytes, above the limit of {MAX_BYTES}", _AGAIN)
    if needed > available:
        raise UserError(path, f"cut off: needs {needed} bytes and has at most {available}", _AGAIN)


def _scaled(flat: NDArray[Any], scaling: tuple[float, float] | None) -> NDArray[Any]:
    if scaling is None:
        return flat
    wide = flat.astype(np.float32 if np.can_cast(flat.dtype, np.float32) else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(wide, scaling[0], out=wide)
        np.add(wide, scaling[1], out=wide)
    return wide


def _read_header(path: Path, stream: BinaryIO) -> _Header:
    start = stream.read(4)
    for kind, order in itertools.product((nibabel.Nifti1Header, nibabel.Nifti2Header), ("<", ">")):
        length = kind.template_dtype.itemsize
        if int.from_bytes(start, "little" if order == "<" else "big") == length:
            block = start + stream.read(length - 4)
            if len(block) == length:
                return _checked_header(path, kind(block, order, check=False))
    raise UserError(path, "not a NIfTI file", "convert the scan to NIfTI (.nii or .nii.gz)")


def _checked_header(path: Path, raw: Any) -> _Header:
    if bytes(raw["magic"].item()) != raw.single_magic:
        raise UserError(path, "not a NIfTI file of one part", "convert the scan to .nii or .nii.gz")
    shape, channels = _axes(path, raw)
    offset = float(raw["vox_offset"])
    if not (raw.single_vox_offset <= offset < MAX_BYTES and offset.is_integer()):
        raise UserError(path, f"its voxels cannot start at byte {offset:g}", _AGAIN)
    return _Header(_geometry(path, raw, shape), channels, _dtype(path, raw), int(offset), _scaling(path, raw))


def _axes(path: Path, raw: Any) -> tuple[tuple[int, ...], int]:
    count, *sizes = (int(size) for size in raw["dim"])
    if not 2 <= count <= 7:
        raise UserError(path, f"its header tells of {count} axes", "save two or three axes of space")
    sizes = sizes[:count]
    if min(sizes) < 1:
        size = "x".join(map(str, sizes))
        raise UserError(path, f"an empty volume: its header tells of {size} voxels", "export the scan again")
    return tuple(sizes[:3]), math.prod(sizes[3:])


def _dtype(path: Path, raw: Any) -> np.dtype[Any]:
    code = int(raw["datatype"])
    if code not in data_type_codes.dtype:
        raise UserError(path, f"its voxels are of the unknown type {code}", _AGAIN)
    dtype: np.dtype[Any] = np.dtype(raw.get_data_dtype())
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        finding = f"its voxels are of type {data_type_codes.label[code]}"
        raise UserError(path, finding, "save one real number of at most 64 bits a voxel and channel")
    return dtype


def _scaling(path: Path, raw: Any) -> tuple[float, float] | None:
    slope, intercept = float(raw["scl_slope"]), float(raw["scl_inter"])
    if slope == 0 or not math.isfinite(slope) or (slope, intercept) == (1, 0):
        return None
    if not math.isfinite(intercept):
        raise UserError(path, f"its header scales voxels by {slope:g} and adds {intercept}", _AGAIN)
    return slope, intercept


def _geometry(path: Path, raw: Any, shape: tuple[int, ...]) -> Geometry:
    """The sform, else the qform, else the voxel size; what NIfTI leaves open is read as nibabel reads it."""
    for name in ("qform_code", "sform_code"):
        if not 0 <= int(raw[name]) <= 5:
            raw[name] = 0
    raw["pixdim"][1:4] = np.abs(raw["pixdim"][1:4])
    if float(raw["pixdim"][0]) not in (-1.0, 1.0):
        raw["pixdim"][0] = 1.0
    with np.errstate(all="ignore"):
        try:
            matrix = np.asarray(raw.get_best_affine(), dtype=np.float64)
        except (HeaderDataError, ValueError):
            matrix = np.zeros((4, 4))
        volume = np.linalg.det(matrix[:3, :3] / np.linalg.norm(matrix[:3, :3], axis=0))
    if not (abs(volume) > 1e-6 and np.isfinite(matrix).all()):
        raise UserError(path, "no usable voxel size and orientation in its header", "mend its sform or qform")
    return Geometry(
        shape=shape,
        affine=tuple(tuple(float(value) for value in row) for row in matrix),
        units=_UNITS.get(int(raw["xyzt_units"]) & 7, "unknown"),
        qform_code=int(raw["qform_code"]),
        sform_code=int(raw["sform_code"]),
    )


def _write_nifti(path: Path, array: NDArray[Any], geometry: Geometry) -> None:
    """Write ``(C, *space)``. The same voxels and geometry give the same bytes."""
    suffix = _suffix(path)
    if suffix is None:
        raise UserError(path, "a scan is written as .nii or .nii.gz", "change the name of the file")
    if len(array) > 1 and len(geometry.shape) == 2:
        raise UserError(path, f"{len(array)} channels of a 2-D scan in one file", "write one file a channel")
    space_first = np.moveaxis(array, 0, -1) if len(array) > 1 else array[0]
    header = _new_header(path, space_first, geometry)
    # The transpose in C order is the Fortran order that NIfTI asks for.
    voxels = np.ascontiguousarray(space_first.T, dtype=array.dtype.newbyteorder("<"))
    with atomic_path(path) as partial, partial.open("wb") as file:
        if suffix == ".nii.gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
                stream.write(header)
                stream.write(voxels.data)
        else:
            file.write(header)
            file.write(voxels.data)


def _new_header(path: Path, array: NDArray[Any], geometry: Geometry) -> bytes:
    """The bytes before the voxels. The affine wins: a qform too coarse for it is joined by an sform."""
    raw = (nibabel.Nifti1Header if max(array.shape) <= 32767 else nibabel.Nifti2Header)(endianness="<")
    raw.set_data_shape(array.shape)
    raw.set_data_dtype(array.dtype)
    raw["vox_offset"] = raw.single_vox_offset
    raw["scl_slope"], raw["scl_inter"] = 1, 0
    raw["xyzt_units"] = next(code for code, units in _UNITS.items() if units == geometry.units)
    raw.set_qform(geometry.matrix, code=0)
    raw.set_sform(geometry.matrix, code=0)
    raw["qform_code"], raw["sform_code"] = geometry.qform_code, geometry.sform_code
    if not geometry.sform_code and grid_difference(geometry, _geometry(path, raw, geometry.shape)):
        raw["sform_code"] = geometry.qform_code or 1
    return bytes(raw.binaryblock) + bytes(4)


@dataclass(frozen=True)
class _Format:
    geometry: Callable[[Path], Geometry]
    scan: Callable[[Path], Scan]


_NIFTI = _Format(_nifti_geometry, _read_nifti)
_FORMATS = {".nii.gz": _NIFTI, ".nii": _NIFTI}


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((suffix for suffix in _FORMATS if name.endswith(suffix) and name != suffix), None)


def _format(path: Path) -> _Format:
    suffix = _suffix(path)
    if suffix is None:
        raise UserError(path, "not a scan by its name", f"use files that end in {' or '.join(_FORMATS)}")
    return _FORMATS[suffix]
