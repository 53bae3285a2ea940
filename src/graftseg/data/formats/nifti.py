"""NIfTI files, ``.nii`` and ``.nii.gz``.

The header is read first; the bytes it asks for are compared with the bytes there are, and with ``MAX_BYTES``, before
memory is set aside. Compressed files are read to their very end, where the checksum stands: a damaged one never passes
for good.
"""

import gzip
import itertools
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import nibabel
import numpy as np
from nibabel.nifti1 import data_type_codes
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.types import Geometry
from graftseg.data.formats.fourth_axis import FourthAxis
from graftseg.data.formats.scan import AGAIN, MAX_BYTES, Scan, refuse_absent
from graftseg.data.grid import grid_difference

SUFFIXES: tuple[str, ...] = (".nii.gz", ".nii")
_PIECE = 4 * 2**20
_SLACK = 2**20  # bytes after the voxels of a compressed file that are read past in silence
_DEFLATE_GAIN = 1100  # one compressed byte never becomes more bytes than this
_GZIP_MAGIC = b"\x1f\x8b"
_UNITS = {0: "unknown", 1: "meter", 2: "mm", 3: "micron"}
_SECONDS, _OTHER_TIMES = 8, (16, 24)  # of time; seconds are what writers put without a thought
_TIME_SERIES = 2001  # as what the file is meant for
_WORDS_OF_TIME = re.compile(rb"time.?(series|course)|fmri|\bbold\b|\bcine\b", re.IGNORECASE)


def is_nifti(path: Path) -> bool:
    """Whether the name of a file is that of a NIfTI file."""
    return path.name.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class _Header:
    """What a NIfTI header says of the voxels, checked."""

    geometry: Geometry
    channels: int
    dtype: np.dtype[Any]
    offset: int
    scaling: tuple[float, float] | None
    fourth: FourthAxis

    @property
    def size(self) -> int:
        """Bytes of voxels."""
        return math.prod(self.geometry.shape) * self.channels * self.dtype.itemsize


def nifti_geometry(path: Path, named: int | None = None) -> Geometry:
    """Where the voxels lie, from the header alone; a time series is refused unless so many channels are named."""
    with _open_nifti(path, named) as (_, header):
        return header.geometry


def read_nifti(path: Path, named: int | None = None) -> Scan:
    """Voxels ``(C, *space)`` of the type they have in the file, or scaled as the header asks; a label map likewise."""
    with _open_nifti(path, named) as (stream, header):
        stream.seek(header.offset)
        content = _take(stream, header.size)
        if len(content) < header.size:
            raise UserError(
                Code.SCAN_DAMAGED, path, f"cut off after {len(content)} of {header.size} bytes of voxels", AGAIN
            )
        if isinstance(stream, gzip.GzipFile) and len(_take(stream, _SLACK + 1)) > _SLACK:
            raise UserError(
                Code.SCAN_DAMAGED, path, f"more data than the {header.size} bytes its header asks for", AGAIN
            )
    flat = np.frombuffer(content, header.dtype)
    flat = _scaled(flat.astype(header.dtype.newbyteorder("="), copy=False), header.scaling)
    array = flat.reshape((*header.geometry.shape, header.channels), order="F")
    return Scan(np.moveaxis(array, -1, 0), header.geometry, header.fourth.guesses(path, named))


@contextmanager
def _open_nifti(path: Path, named: int | None) -> Iterator[tuple[BinaryIO, _Header]]:
    """Open a NIfTI file, compressed or not, and check its header against the size of the file."""
    try:
        refuse_absent(path)
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file
            header = _read_header(path, stream)
            _refuse_size(path, header, path.stat().st_size * (_DEFLATE_GAIN if compressed else 1))
            header.fourth.refuse_time(path, named)
            yield stream, header
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            Code.SCAN_DAMAGED, path, f"its compressed data is damaged or cut off ({error})", AGAIN
        ) from None
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check the file's permissions"
        ) from None


def _take(stream: BinaryIO, count: int) -> bytearray:
    """Up to ``count`` bytes; memory grows with what really arrives, not with what was promised."""
    taken = bytearray()
    while len(taken) < count and (piece := stream.read(min(_PIECE, count - len(taken)))):
        taken += piece
    return taken


def _refuse_size(path: Path, header: _Header, available: int) -> None:
    needed = header.offset + header.size
    if needed > MAX_BYTES:
        raise UserError(
            Code.SCAN_TOO_LARGE, path, f"its header asks for {needed} bytes, above the limit of {MAX_BYTES}", AGAIN
        )
    if needed > available:
        raise UserError(Code.SCAN_DAMAGED, path, f"cut off: needs {needed} bytes and has at most {available}", AGAIN)


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
    raise UserError(Code.NOT_A_SCAN, path, "not a NIfTI file", "convert the scan to NIfTI (.nii or .nii.gz)")


def _checked_header(path: Path, raw: Any) -> _Header:
    if bytes(raw["magic"].item()) != raw.single_magic:
        raise UserError(Code.NOT_A_SCAN, path, "not a NIfTI file of one part", "convert the scan to .nii or .nii.gz")
    shape, channels = _axes(path, raw)
    offset = float(raw["vox_offset"])
    if not (raw.single_vox_offset <= offset < MAX_BYTES and offset.is_integer()):
        raise UserError(Code.SCAN_UNSUPPORTED, path, f"its voxels cannot start at byte {offset:g}", AGAIN)
    return _Header(
        geometry=_geometry(path, raw, shape),
        channels=channels,
        dtype=_dtype(path, raw),
        offset=int(offset),
        scaling=_scaling(path, raw),
        fourth=_fourth(raw),
    )


def _fourth(raw: Any) -> FourthAxis:
    unit = int(raw["xyzt_units"]) & 56
    words = bytes(raw["descrip"].item()) + b" " + bytes(raw["intent_name"].item())
    meant = int(raw["intent_code"]) == _TIME_SERIES or _WORDS_OF_TIME.search(words) is not None
    return FourthAxis(
        volumes=int(raw["dim"][4]) if raw["dim"][0] > 3 else 1,
        step=float(raw["pixdim"][4]),
        says_time=unit in _OTHER_TIMES or meant,
        in_seconds=unit == _SECONDS,
    )


def _axes(path: Path, raw: Any) -> tuple[tuple[int, ...], int]:
    count, *sizes = (int(size) for size in raw["dim"])
    if not 2 <= count <= 7:
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"its header tells of {count} axes", "save two or three axes of space"
        )
    sizes = sizes[:count]
    if min(sizes) < 1:
        size = "x".join(map(str, sizes))
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"an empty volume: its header tells of {size} voxels", "export the scan again"
        )
    return tuple(sizes[:3]), math.prod(sizes[3:])


def _dtype(path: Path, raw: Any) -> np.dtype[Any]:
    code = int(raw["datatype"])
    if code not in data_type_codes.dtype:
        raise UserError(Code.SCAN_UNSUPPORTED, path, f"its voxels are of the unknown type {code}", AGAIN)
    dtype: np.dtype[Any] = np.dtype(raw.get_data_dtype())
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        finding = f"its voxels are of type {data_type_codes.label[code]}"
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, finding, "save one real number of at most 64 bits a voxel and channel"
        )
    return dtype


def _scaling(path: Path, raw: Any) -> tuple[float, float] | None:
    slope, intercept = float(raw["scl_slope"]), float(raw["scl_inter"])
    if slope == 0 or not math.isfinite(slope) or (slope, intercept) == (1, 0):
        return None
    if not math.isfinite(intercept):
        raise UserError(Code.SCAN_HEADER, path, f"its header scales voxels by {slope:g} and adds {intercept}", AGAIN)
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
        raise UserError(
            Code.SCAN_HEADER, path, "no usable voxel size and orientation in its header", "mend its sform or qform"
        )
    return Geometry(
        shape=shape,
        affine=tuple(tuple(float(value) for value in row) for row in matrix),
        units=_UNITS.get(int(raw["xyzt_units"]) & 7, "unknown"),
        qform_code=int(raw["qform_code"]),
        sform_code=int(raw["sform_code"]),
    )


def write_nifti(path: Path, array: NDArray[Any], geometry: Geometry, slope: float = 1.0) -> None:
    """Write ``(C, *space)``, to be read as ``slope`` times that. The same voxels and geometry give the same bytes."""
    if not is_nifti(path):
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, "a scan is written as .nii or .nii.gz", "change the name of the file"
        )
    if len(array) > 1 and len(geometry.shape) == 2:
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"{len(array)} channels of a 2-D scan in one file", "write one file a channel"
        )
    space_first = np.moveaxis(array, 0, -1) if len(array) > 1 else array[0]
    header = _new_header(path, space_first, geometry, slope)
    # The transpose in C order is the Fortran order that NIfTI asks for.
    voxels = np.ascontiguousarray(space_first.T, dtype=array.dtype.newbyteorder("<"))
    with atomic_path(path) as partial, partial.open("wb") as file:
        if path.name.lower().endswith(".gz"):
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
                stream.write(header)
                stream.write(voxels.data)
        else:
            file.write(header)
            file.write(voxels.data)


def _new_header(path: Path, array: NDArray[Any], geometry: Geometry, slope: float) -> bytes:
    """The bytes before the voxels. The affine wins: a qform too coarse for it is joined by an sform."""
    raw = (nibabel.Nifti1Header if max(array.shape) <= 32767 else nibabel.Nifti2Header)(endianness="<")
    raw.set_data_shape(array.shape)
    raw.set_data_dtype(array.dtype)
    raw["vox_offset"] = raw.single_vox_offset
    raw["scl_slope"], raw["scl_inter"] = slope, 0
    raw["xyzt_units"] = next(code for code, units in _UNITS.items() if units == geometry.units)
    raw.set_qform(geometry.matrix, code=0)
    raw.set_sform(geometry.matrix, code=0)
    raw["qform_code"], raw["sform_code"] = geometry.qform_code, geometry.sform_code
    if not geometry.sform_code and grid_difference(geometry, _geometry(path, raw, geometry.shape)):
        raw["sform_code"] = geometry.qform_code or 1
    return bytes(raw.binaryblock) + bytes(4)
