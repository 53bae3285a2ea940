"""NRRD and MetaImage files (``.nrrd``, ``.nhdr``, ``.mha``, ``.mhd``), read with SimpleITK.

SimpleITK does not detect damaged compressed voxels, so their checksum is verified here. A header that refers to a file
outside of its folder is refused.
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
from graftseg.data.formats.scan import (
    FourthAxis,
    Scan,
    damaged,
    lps_geometry,
    optional,
    read_head,
    refuse_absent,
    refuse_bytes,
    short_reason,
    without_folder,
)

SUFFIXES: tuple[str, ...] = (".nrrd", ".nhdr", ".mha", ".mhd")
HEADERS = (".nhdr", ".mhd")  # suffixes of headers with the voxels in another file
_MAX_HEADER_BYTES = 2**20
_CHUNK = 4 * 2**20  # bytes read at once
_FIELD = re.compile(r"([A-Za-z][\w ]*?)\s*[=:]\s*(.*)")
_ANATOMICAL = re.compile(r"(?i)(right-anterior|left-anterior|left-posterior)-superior(-time)?|(ras|las|lps)t?")
"""Values of the NRRD field ``space`` that define the axes in the patient, such as right-anterior-superior."""
_DIRECTIONS = {"transformmatrix", "orientation", "rotation"}
"""MetaImage fields with axis directions."""
_MAX_EXPANSION = {"raw": 1, "zlib": 1100, "other": 50_000}
"""Maximum number of decoded bytes per byte of the file, by encoding."""


@dataclass(frozen=True)
class _HeaderText:
    """The header fields by lowercase name without spaces, the file with the voxels, and the offset of the voxels."""

    fields: dict[str, str]
    voxels: Path
    offset: int

    @property
    def encoding(self) -> str:
        """The encoding: raw, zlib or other."""
        encoding = self.fields.get("encoding", "raw").lower()
        if encoding in ("gzip", "gz") or self.fields.get("compresseddata", "").lower() == "true":
            return "zlib"
        binary = self.fields.get("binarydata", "true").lower() == "true"
        return "raw" if encoding == "raw" and binary else "other"

    @property
    def is_placed(self) -> bool:
        """Whether the header contains the directions of the axes in the patient."""
        if "ndims" in self.fields:
            return not _DIRECTIONS.isdisjoint(self.fields)
        return "spacedirections" in self.fields and bool(_ANATOMICAL.fullmatch(self.fields.get("space", "")))


@dataclass(frozen=True)
class _Header:
    """The checked header. ``size`` is the number of bytes of all voxels."""

    reader: Any
    text: _HeaderText
    geometry: Geometry
    size: int
    fourth: FourthAxis


def itk_files(path: Path) -> list[Path]:
    """Return the file. If its voxels are in a separate file, return that file too."""
    try:
        refuse_absent(path)
        voxels = _read_text(path).voxels
    except UserError:
        # the error is raised again when the scan is read
        return [path]
    return [path] if voxels == path else [path, voxels]


def itk_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header. Refuse a time series, unless ``dataset.json`` lists a channel per volume."""
    return _read_header(path, channel_count).geometry


def read_itk(path: Path, channel_count: int | None = None) -> Scan:
    """Read voxels ``(C, *space)`` of an image or label map. Vector components or the fourth axis become channels."""
    header = _read_header(path, channel_count)
    if header.text.encoding == "zlib":
        _verify_checksum(path, header)
    try:
        image = header.reader.Execute()
    except RuntimeError as error:
        raise damaged(path, f"the voxels cannot be read ({_itk_reason(error, path)})") from None
    array: NDArray[Any] = _simple_itk().GetArrayFromImage(image)
    if array.dtype.kind not in "iuf":
        remedy = "save one real number per voxel and channel"
        raise UserError(Code.SCAN_UNSUPPORTED, path, f"unsupported voxel type {array.dtype}", remedy)
    if image.GetNumberOfComponentsPerPixel() > 1:
        array = np.moveaxis(array, -1, 0)
    shape = header.geometry.shape
    # SimpleITK returns the last spatial axis first
    channels = array.reshape(-1, *shape[::-1]).transpose(0, *range(len(shape), 0, -1))
    return Scan(channels, header.geometry, header.fourth.guesses(path, channel_count))


def _read_header(path: Path, channel_count: int | None) -> _Header:
    refuse_absent(path)
    itk = _simple_itk()
    text = _read_text(path)
    try:
        reader = itk.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
    except RuntimeError as error:
        raise damaged(path, f"the header cannot be read ({_itk_reason(error, path)})") from None
    sizes, components = reader.GetSize(), reader.GetNumberOfComponents()
    bits = re.search(r"(\d+)-bit", itk.GetPixelIDValueAsString(reader.GetPixelID()))
    needed = math.prod(sizes) * components * (int(bits[1]) if bits else 64) // 8
    refuse_bytes(path, needed, (text.voxels.stat().st_size - text.offset) * _MAX_EXPANSION[text.encoding])
    if not 2 <= len(sizes) <= 4 or 0 in sizes:
        finding = f"the header lists {len(sizes)} axes" if all(sizes) else "the volume is empty"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "save two or three spatial axes")
    says_time = "time" in text.fields.get("kinds", "").lower().split()
    fourth = FourthAxis(sizes[3] if len(sizes) > 3 else 1, reader.GetSpacing()[-1], says_time)
    for axis in (fourth, FourthAxis(components, 1.0)):
        axis.refuse_time(path, channel_count)
    return _Header(reader, text, _geometry(path, reader, text.is_placed), needed, fourth)


def _geometry(path: Path, reader: Any, is_placed: bool) -> Geometry:
    shape = tuple(int(size) for size in reader.GetSize()[:3])
    count, axes = len(shape), reader.GetDimension()
    direction = np.array(reader.GetDirection()).reshape(axes, axes)[:count, :count]
    spacing, origin = (np.array(values[:count], np.float64) for values in (reader.GetSpacing(), reader.GetOrigin()))
    usable = np.isfinite(direction).all() and np.isfinite(spacing).all() and np.isfinite(origin).all()
    if not usable or spacing.min() <= 0 or abs(np.linalg.det(direction)) < 1e-6:
        finding = "the header has no valid voxel size and orientation"
        raise UserError(Code.SCAN_HEADER, path, finding, "export the scan again")
    return lps_geometry(shape, direction, spacing, origin, is_placed=is_placed)


def _read_text(path: Path) -> _HeaderText:
    """Read the header, which ends with an empty line in NRRD and with the name of the data file in MetaImage."""
    head = read_head(path, _MAX_HEADER_BYTES)
    fields: dict[str, str] = {}
    offset = 0
    for line in head.split(b"\n"):
        offset += len(line) + 1
        text = line.decode("latin-1").strip()
        if not text and head.startswith(b"NRRD"):
            break
        if field := _FIELD.fullmatch(text):
            name = re.sub(r"\s", "", field[1]).lower()
            fields[name] = field[2].strip()
            if name == "elementdatafile":
                break
    data_file = fields.get("elementdatafile", fields.get("datafile", "LOCAL"))
    if data_file.upper() == "LOCAL":
        return _HeaderText(fields, path, min(offset, len(head)))
    return _HeaderText(fields, _data_file(path, data_file), 0)


def _data_file(path: Path, data_file: str) -> Path:
    """Return the file with the voxels, which must be in the folder of its header."""
    # errors show only the file name, without a folder in Windows or POSIX spelling
    name = PureWindowsPath(data_file).name
    if Path(data_file).name != data_file:
        finding = f"the voxels are in {name!r}, outside of the header's folder"
        remedy = "move the two files into one folder and correct the header"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, remedy)
    voxels = path.parent / data_file
    if not voxels.is_file():
        finding = f"the file with the voxels, {name!r}, does not exist"
        raise UserError(Code.FILE_MISSING, path, finding, "copy that file too, or save the scan in one file")
    return voxels


def _verify_checksum(path: Path, header: _Header) -> None:
    """Decompress the voxels in chunks to verify their checksum, unless the header skips lines or bytes."""
    if {"lineskip", "byteskip"} & header.text.fields.keys():
        return
    inflate, count = zlib.decompressobj(47), 0
    try:
        with header.text.voxels.open("rb") as file:
            file.seek(header.text.offset)
            while not inflate.eof and count <= header.size and (chunk := file.read(_CHUNK)):
                while chunk and count <= header.size:
                    count += len(inflate.decompress(chunk, _CHUNK))
                    chunk = inflate.unconsumed_tail
    except zlib.error as error:
        raise damaged(path, f"the compressed data is damaged ({error})") from None
    if not inflate.eof or count != header.size:
        raise damaged(path, f"the compressed data is truncated: {count} of {header.size} bytes of voxels")


def _itk_reason(error: RuntimeError, path: Path) -> str:
    """Return the last line of an ITK message without paths."""
    lines = [line for line in without_folder(str(error), path).splitlines() if line.strip()]
    return short_reason(RuntimeError(lines[-1].split("):")[-1] if lines else "no reason given"), path)


def _simple_itk() -> Any:
    itk = optional("SimpleITK", "SimpleITK", "NRRD and MHA files")
    itk.ProcessObject.SetGlobalWarningDisplay(False)
    return itk
