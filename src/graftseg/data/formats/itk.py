"""NRRD and MetaImage files (``.nrrd``, ``.nhdr``, ``.mha``, ``.mhd``), through SimpleITK.

SimpleITK does not see a flipped bit within compressed voxels, so their checksum is looked at here. A header that sends
the reader to a file outside its own folder is refused.
"""

import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.formats.fourth_axis import FourthAxis
from graftseg.data.formats.scan import (
    AGAIN,
    Scan,
    lps_geometry,
    optional,
    refuse_absent,
    refuse_bytes,
    without_folder,
    words,
)

SUFFIXES: tuple[str, ...] = (".nrrd", ".nhdr", ".mha", ".mhd")
HEADERS = (".nhdr", ".mhd")
_HEADER_BYTES = 2**20
_PIECE = 4 * 2**20
_FIELD = re.compile(r"([A-Za-z][\w ]*?)\s*[=:]\s*(.*)")
_ANATOMICAL = re.compile(
    r"(right-anterior|left-anterior|left-posterior)-superior(-time)?|(ras|las|lps)t?",
    re.IGNORECASE,
)
"""The spaces of NRRD whose axes are those of the patient."""
_TURNS = {"transformmatrix", "orientation", "rotation"}
"""What the directions of the axes are called in MetaImage."""
_GAIN = {"raw": 1, "zlib": 1100, "other": 50_000}
"""How many bytes one byte of the file can become."""


@dataclass(frozen=True)
class _Text:
    """The fields of a header by their names in small letters without spaces, and where the voxels begin and in what."""

    fields: dict[str, str]
    voxels: Path
    offset: int

    @property
    def encoding(self) -> str:
        """raw, zlib or other."""
        named = self.fields.get("encoding", "raw").lower()
        if named in ("gzip", "gz") or self.fields.get("compresseddata", "").lower() == "true":
            return "zlib"
        binary = self.fields.get("binarydata", "true").lower() == "true"
        return "raw" if named == "raw" and binary else "other"

    @property
    def is_placed(self) -> bool:
        """Whether the header tells where the axes point in the patient."""
        if "ndims" in self.fields:
            return not _TURNS.isdisjoint(self.fields)
        return "spacedirections" in self.fields and bool(_ANATOMICAL.fullmatch(self.fields.get("space", "")))


@dataclass(frozen=True)
class _Described:
    """What a header says, checked; ``size`` is in bytes."""

    reader: Any
    text: _Text
    geometry: Geometry
    size: int
    fourth: FourthAxis


def itk_files(path: Path) -> list[Path]:
    """The file and, where its voxels are in another one that is there, that one."""
    try:
        refuse_absent(path)
        voxels = _read_text(path).voxels
    except UserError:
        # reading says what is wrong
        return [path]
    return [path] if voxels == path else [path, voxels]


def itk_geometry(path: Path, named: int | None = None) -> Geometry:
    """Where the voxels lie, from the header alone; a time series is refused unless so many channels are named."""
    return _describe(path, named).geometry


def read_itk(path: Path, named: int | None = None) -> Scan:
    """Voxels ``(C, *space)``; components of a vector and axes after the third are channels. A label map likewise."""
    described = _describe(path, named)
    if described.text.encoding == "zlib":
        _check_sum(path, described)
    try:
        image = described.reader.Execute()
    except RuntimeError as error:
        raise UserError(Code.SCAN_DAMAGED, path, f"its voxels cannot be read ({_reason(error, path)})", AGAIN) from None
    array: NDArray[Any] = _simple_itk().GetArrayFromImage(image)
    if array.dtype.kind not in "iuf":
        raise UserError(
            Code.SCAN_UNSUPPORTED,
            path,
            f"its voxels are of type {array.dtype}",
            "save one real number a voxel and channel",
        )
    if image.GetNumberOfComponentsPerPixel() > 1:
        array = np.moveaxis(array, -1, 0)
    shape = described.geometry.shape
    # SimpleITK's arrays have the last axis of space first
    channels = array.reshape(-1, *shape[::-1])
    turned = channels.transpose(0, *range(len(shape), 0, -1))
    return Scan(turned, described.geometry, described.fourth.guesses(path, named))


def _describe(path: Path, named: int | None) -> _Described:
    refuse_absent(path)
    itk = _simple_itk()
    text = _read_text(path)
    try:
        reader = itk.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
    except RuntimeError as error:
        raise UserError(Code.SCAN_DAMAGED, path, f"its header cannot be read ({_reason(error, path)})", AGAIN) from None
    sizes, components = reader.GetSize(), reader.GetNumberOfComponents()
    bits = re.search(r"(\d+)-bit", itk.GetPixelIDValueAsString(reader.GetPixelID()))
    needed = math.prod(sizes) * components * (int(bits[1]) if bits else 64) // 8
    refuse_bytes(path, needed)
    available = (text.voxels.stat().st_size - text.offset) * _GAIN[text.encoding]
    if needed > available:
        raise UserError(
            Code.SCAN_DAMAGED, path, f"cut off: needs {needed} bytes of voxels and has at most {available}", AGAIN
        )
    if not 2 <= len(sizes) <= 4 or 0 in sizes:
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"its header tells of {len(sizes)} axes", "save two or three axes of space"
        )
    says_time = "time" in text.fields.get("kinds", "").lower().split()
    fourth = FourthAxis(sizes[3] if len(sizes) > 3 else 1, reader.GetSpacing()[-1], says_time)
    for axis in (fourth, FourthAxis(components, 1.0)):
        axis.refuse_time(path, named)
    return _Described(reader, text, _geometry(path, reader, text.is_placed), needed, fourth)


def _geometry(path: Path, reader: Any, is_placed: bool) -> Geometry:
    shape = tuple(int(size) for size in reader.GetSize()[:3])
    count, axes = len(shape), reader.GetDimension()
    direction = np.array(reader.GetDirection()).reshape(axes, axes)[:count, :count]
    spacing, origin = (np.array(values[:count], np.float64) for values in (reader.GetSpacing(), reader.GetOrigin()))
    usable = np.isfinite(direction).all() and np.isfinite(spacing).all() and np.isfinite(origin).all()
    if not usable or spacing.min() <= 0 or abs(np.linalg.det(direction)) < 1e-6:
        raise UserError(
            Code.SCAN_HEADER, path, "no usable voxel size and orientation in its header", "export the scan again"
        )
    return lps_geometry(shape, direction, spacing, origin, is_placed=is_placed)


def _read_text(path: Path) -> _Text:
    """The lines before the voxels: to an empty one in NRRD, to the name of the data file in MetaImage."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check the file's permissions"
        ) from None
    fields: dict[str, str] = {}
    place = 0
    for line in head.split(b"\n"):
        place += len(line) + 1
        text = line.decode("latin-1").strip()
        if not text and head.startswith(b"NRRD"):
            break
        if field := _FIELD.fullmatch(text):
            name = re.sub(r"\s", "", field[1]).lower()
            fields[name] = field[2].strip()
            if name == "elementdatafile":
                break
    named = fields.get("elementdatafile", fields.get("datafile", "LOCAL"))
    if named.upper() == "LOCAL":
        return _Text(fields, path, min(place, len(head)))
    return _Text(fields, _beside(path, named), 0)


def _beside(path: Path, named: str) -> Path:
    """The file of the voxels, which must lie in the folder of its header."""
    # of a path in a header only the last part is told, whichever system wrote it
    name = PureWindowsPath(named).name
    if Path(named).name != named:
        finding = f"its voxels are in {name!r}, outside the folder of the header"
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, finding, "move the two files into one folder and correct the header"
        )
    voxels = path.parent / named
    if not voxels.is_file():
        finding = f"its voxels should be in one file called {name!r}, which is not there"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "copy that file too, or save the scan in one file")
    return voxels


def _check_sum(path: Path, described: _Described) -> None:
    """Decompress the voxels once, piece by piece, to their checksum."""
    if {"lineskip", "byteskip"} & described.text.fields.keys():
        return
    inflate, count = zlib.decompressobj(47), 0
    try:
        with described.text.voxels.open("rb") as file:
            file.seek(described.text.offset)
            while not inflate.eof and count <= described.size and (piece := file.read(_PIECE)):
                while piece and count <= described.size:
                    count += len(inflate.decompress(piece, _PIECE))
                    piece = inflate.unconsumed_tail
    except zlib.error as error:
        raise UserError(Code.SCAN_DAMAGED, path, f"its compressed data is damaged ({error})", AGAIN) from None
    if not inflate.eof or count != described.size:
        finding = f"its compressed data holds {count} of {described.size} bytes of voxels, or is cut off"
        raise UserError(Code.SCAN_DAMAGED, path, finding, AGAIN)


def _reason(error: RuntimeError, path: Path) -> str:
    """The last line of what ITK says, without the paths before it."""
    lines = [line for line in without_folder(str(error), path).splitlines() if line.strip()]
    return words(RuntimeError(lines[-1].split("):")[-1] if lines else "no reason given"), path)


def _simple_itk() -> Any:
    itk = optional("SimpleITK", "SimpleITK", "NRRD and MHA files")
    itk.ProcessObject.SetGlobalWarningDisplay(False)
    return itk
