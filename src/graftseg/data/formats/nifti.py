"""NIfTI files. Sizes are checked before memory is allocated. Compressed files are read to their checksum."""

import gzip
import itertools
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import nibabel
import numpy as np
from nibabel.nifti1 import data_type_codes
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.reading import open_regular
from graftseg.core.types import Geometry
from graftseg.data.formats import scan
from graftseg.data.formats.scan import FourthAxis, Scan
from graftseg.data.grid import grid_difference, is_valid_affine

SUFFIXES: tuple[str, ...] = (".nii.gz", ".nii")
_CHUNK = 4 * 2**20  # bytes read at once
_MAX_OFFSET = 2**28  # maximum bytes before the voxels, which may be extensions of the header
_MAX_TRAILING = 2**20  # more bytes after the voxels of a compressed file are an error
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_PACKED_CHUNK = 2**18  # compressed bytes read at once
_UNITS = {0: "unknown", 1: "meter", 2: "mm", 3: "micron"}
_SECONDS, _OTHER_TIME_UNITS = 8, (16, 24)  # NIfTI codes. Many programs write seconds even for channels
_TIME_SERIES_INTENT = 2001
_TIME_WORDS = re.compile(rb"time.?(series|course)|fmri|\bbold\b|\bcine\b", re.IGNORECASE)


def is_nifti(path: Path) -> bool:
    """Return whether the name of a file has a NIfTI suffix."""
    return path.name.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class _Header:
    geometry: Geometry
    channels: int
    dtype: np.dtype[Any]
    offset: int
    scaling: tuple[float, float] | None
    fourth: FourthAxis

    @property
    def size(self) -> int:
        """Bytes of all voxels."""
        return math.prod(self.geometry.shape) * self.channels * self.dtype.itemsize


def nifti_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header. Refuse a time series, unless ``dataset.json`` lists a channel per volume."""
    with _open_nifti(path, channel_count) as (_, header):
        return header.geometry


def read_nifti(path: Path, channel_count: int | None = None) -> Scan:
    """Read voxels ``(C, *space)`` in their stored type, or as floats if the header contains a scaling."""
    with _open_nifti(path, channel_count) as (stream, header):
        stream.seek(header.offset)
        content = _read_bytes(stream, header.size)
        if len(content) < header.size:
            raise scan.damaged(path, f"truncated after {len(content)} of {header.size} bytes of voxels")
        if isinstance(stream, _GzipReader) and len(_read_bytes(stream, _MAX_TRAILING + 1)) > _MAX_TRAILING:
            raise scan.damaged(path, f"more data than the {header.size} bytes of voxels according to the header")
    flat = np.frombuffer(content, header.dtype)
    flat = _scaled(flat.astype(header.dtype.newbyteorder("="), copy=False), header.scaling)
    array = flat.reshape((*header.geometry.shape, header.channels), order="F")
    return Scan(np.moveaxis(array, -1, 0), header.geometry, header.fourth.guesses(path, channel_count))


def first_voxels(path: Path, count: int) -> NDArray[Any]:
    """Read at most ``count`` voxels from the start of a file, flat. The rest of the file is not checked."""
    with _open_nifti(path, None) as (stream, header):
        stream.seek(header.offset)
        content = _read_bytes(stream, min(header.size, count * header.dtype.itemsize))
    whole = len(content) // header.dtype.itemsize * header.dtype.itemsize
    return _scaled(np.frombuffer(content[:whole], header.dtype), header.scaling)


@contextmanager
def _open_nifti(path: Path, channel_count: int | None) -> Iterator[tuple["BinaryIO | _GzipReader", _Header]]:
    """Open a NIfTI file, compressed or not, and check its header against the size of the file."""
    try:
        scan.refuse_absent(path)
        with open_regular(path) as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = _GzipReader(file) if compressed else file
            header = _read_header(path, stream)
            available = path.stat().st_size * (scan.MAX_EXPANSION if compressed else 1)
            scan.refuse_bytes(path, header.offset + header.size, available)
            header.fourth.refuse_time(path, channel_count)
            yield stream, header
    except (EOFError, zlib.error) as error:
        raise scan.damaged(path, f"the compressed data is damaged or truncated ({error})") from None
    except OSError as error:
        raise scan.unreadable(path, error) from None


class _GzipReader:
    """The content of a gzip file, from start to end. Checksums are verified.

    The module ``gzip`` takes a third longer in Python 3.11, because it reads 8 KB at once.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._packed, self._position = file, b"", 0
        self._member = zlib.decompressobj(_GZIP)

    def read(self, count: int) -> bytes:
        """Return between 1 and ``count`` bytes, or none at the end."""
        while not self._member.eof or self._find_member():
            self._packed = self._packed or self._file.read(_PACKED_CHUNK)
            is_end = not self._packed
            content = self._member.decompress(self._packed, count)
            self._packed = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self._position += len(content)
            if content:
                return content
            if is_end and not self._member.eof:
                raise EOFError("no end of the compressed data")
        return b""

    def _find_member(self) -> bool:
        """Skip zeros after a member, and return whether there is another one."""
        self._packed = self._packed.lstrip(b"\0")
        while not self._packed and (packed := self._file.read(_PACKED_CHUNK)):
            self._packed = packed.lstrip(b"\0")
        if self._packed:
            self._member = zlib.decompressobj(_GZIP)
        return bool(self._packed)

    def seek(self, position: int) -> None:
        """Skip the bytes before a position, which must not have been read yet."""
        while self._position < position and self.read(min(_CHUNK, position - self._position)):
            pass


def _read_bytes(stream: BinaryIO | _GzipReader, count: int) -> bytearray:
    """Read up to ``count`` bytes in chunks, so that memory grows only with the real content."""
    content = bytearray()
    while len(content) < count and (chunk := stream.read(min(_CHUNK, count - len(content)))):
        content += chunk
    return content


def _scaled(flat: NDArray[Any], scaling: tuple[float, float] | None) -> NDArray[Any]:
    if scaling is None:
        return flat
    wide = flat.astype(np.float32 if np.can_cast(flat.dtype, np.float32) else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(wide, scaling[0], out=wide)
        np.add(wide, scaling[1], out=wide)
    return wide


def _read_header(path: Path, stream: BinaryIO | _GzipReader) -> _Header:
    start = _read_bytes(stream, 4)
    for kind, order in itertools.product((nibabel.Nifti1Header, nibabel.Nifti2Header), ("<", ">")):
        length = kind.template_dtype.itemsize
        if int.from_bytes(start, "little" if order == "<" else "big") == length:
            block = bytes(start + _read_bytes(stream, length - 4))
            if len(block) == length:
                return _checked_header(path, kind(block, order, check=False))
    raise UserError(Code.NOT_A_SCAN, path, "not a NIfTI file", "convert the scan to NIfTI (.nii or .nii.gz)")


def _checked_header(path: Path, raw: Any) -> _Header:
    if bytes(raw["magic"].item()) != raw.single_magic:
        finding = "a NIfTI header with voxels in a second file"
        raise UserError(Code.NOT_A_SCAN, path, finding, "convert the scan to .nii or .nii.gz")
    shape, channels = _axes(path, raw)
    offset = float(raw["vox_offset"])
    if not (raw.single_vox_offset <= offset <= _MAX_OFFSET and offset.is_integer()):
        raise scan.damaged(path, f"the voxels cannot start at byte {offset:g}")
    geometry, dtype, scaling = _geometry(path, raw, shape), _dtype(path, raw), _scaling(path, raw)
    return _Header(geometry, channels, dtype, int(offset), scaling, _fourth_axis(raw))


def _fourth_axis(raw: Any) -> FourthAxis:
    unit = int(raw["xyzt_units"]) & 56
    text = bytes(raw["descrip"].item()) + b" " + bytes(raw["intent_name"].item())
    is_time = int(raw["intent_code"]) == _TIME_SERIES_INTENT or _TIME_WORDS.search(text) is not None
    volumes = int(raw["dim"][4]) if raw["dim"][0] > 3 else 1
    says_time = unit in _OTHER_TIME_UNITS or is_time
    return FourthAxis(volumes, float(raw["pixdim"][4]), says_time, in_seconds=unit == _SECONDS)


def _axes(path: Path, raw: Any) -> tuple[tuple[int, ...], int]:
    count, *sizes = (int(size) for size in raw["dim"])
    if not 2 <= count <= 7:
        raise scan.unsupported(path, f"the header lists {count} axes", scan.TWO_OR_THREE_AXES)
    sizes = sizes[:count]
    if min(sizes) < 1:
        finding = f"the volume is empty: the header lists {'x'.join(map(str, sizes))} voxels"
        raise scan.unsupported(path, finding, "export the scan again")
    return tuple(sizes[:3]), math.prod(sizes[3:])


def _dtype(path: Path, raw: Any) -> np.dtype[Any]:
    code = int(raw["datatype"])
    if code not in data_type_codes.dtype:
        raise scan.damaged(path, f"unknown voxel type {code}")
    dtype: np.dtype[Any] = np.dtype(raw.get_data_dtype())
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        remedy = "save one real number of at most 64 bits per voxel and channel"
        raise scan.unsupported(path, f"unsupported voxel type {data_type_codes.label[code]}", remedy)
    return dtype


def _scaling(path: Path, raw: Any) -> tuple[float, float] | None:
    slope, intercept = float(raw["scl_slope"]), float(raw["scl_inter"])
    if slope == 0 or not math.isfinite(slope) or (slope, intercept) == (1, 0):
        return None
    if not math.isfinite(intercept):
        raise scan.damaged(path, f"invalid scaling in the header: slope {slope:g}, intercept {intercept}")
    return slope, intercept


def _geometry(path: Path, raw: Any, shape: tuple[int, ...]) -> Geometry:
    """Return the geometry from sform, else qform, else voxel size. Correct invalid fields as nibabel does."""
    for name in ("qform_code", "sform_code"):
        if not 0 <= int(raw[name]) <= 5:
            raw[name] = 0
    raw["pixdim"][1:4] = np.abs(raw["pixdim"][1:4])
    if len(shape) == 2 and raw["pixdim"][3] == 0:
        raw["pixdim"][3] = 1.0  # a 2-D scan has no slice distance
    if float(raw["pixdim"][0]) not in (-1.0, 1.0):
        raw["pixdim"][0] = 1.0
    with np.errstate(all="ignore"):
        try:
            matrix = np.asarray(raw.get_best_affine(), dtype=np.float64)
        except (HeaderDataError, ValueError):
            matrix = np.zeros((4, 4))
    if not is_valid_affine(matrix):
        finding = "the header has no valid voxel size and orientation"
        raise UserError(Code.SCAN_HEADER, path, finding, "correct its sform or qform")
    return Geometry(
        shape=shape,
        affine=tuple(tuple(float(value) for value in row) for row in matrix),
        units=_UNITS.get(int(raw["xyzt_units"]) & 7, "unknown"),
        qform_code=int(raw["qform_code"]),
        sform_code=int(raw["sform_code"]),
    )


def write_nifti(path: Path, array: NDArray[Any], geometry: Geometry, slope: float = 1.0) -> None:
    """Write ``(C, *space)`` with the scale factor ``slope``. Equal voxels and geometry give equal bytes."""
    if not is_nifti(path):
        raise UserError(Code.OPTION_INVALID, path, "not a .nii or .nii.gz file", "change the name of the file")
    if len(array) > 1 and len(geometry.shape) == 2:
        raise scan.unsupported(path, f"{len(array)} channels of a 2-D scan in one file", "write one file per channel")
    space_first = np.moveaxis(array, 0, -1) if len(array) > 1 else array[0]
    header = _new_header(path, space_first.shape, array.dtype, geometry, slope)
    # the transpose in C order is the Fortran order that NIfTI requires
    voxels = np.ascontiguousarray(space_first.T, dtype=array.dtype.newbyteorder("<"))
    with atomic_path(path) as partial, partial.open("wb") as file:
        is_gzip = path.name.lower().endswith(".gz")
        with gzip.GzipFile("", "wb", 6, file, mtime=0) if is_gzip else file as stream:
            stream.write(header)
            stream.write(voxels.data)


def encode_header(dtype: np.dtype[Any], geometry: Geometry, slope: float = 1.0) -> bytes:
    """Return the bytes before the voxels ``(*space)`` of an uncompressed NIfTI file."""
    return _new_header(Path("scan.nii"), geometry.shape, dtype, geometry, slope)


def _new_header(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], geometry: Geometry, slope: float) -> bytes:
    """Return the header as bytes. Add an sform if the qform cannot represent the affine."""
    raw = (nibabel.Nifti1Header if max(shape) <= 32767 else nibabel.Nifti2Header)(endianness="<")
    raw.set_data_shape(shape)
    raw.set_data_dtype(dtype)
    raw["vox_offset"] = raw.single_vox_offset
    raw["scl_slope"], raw["scl_inter"] = slope, 0
    raw["xyzt_units"] = next(code for code, units in _UNITS.items() if units == geometry.units)
    raw.set_qform(geometry.matrix, code=0)
    raw.set_sform(geometry.matrix, code=0)
    raw["qform_code"], raw["sform_code"] = geometry.qform_code, geometry.sform_code
    if not geometry.sform_code and grid_difference(geometry, _geometry(path, raw, geometry.shape)):
        raw["sform_code"] = geometry.qform_code or 1
    return bytes(raw.binaryblock) + bytes(4)
