"""NRRD and MetaImage files, the formats of ITK. All numbers of a header are checked before voxels are read."""

import bz2
import os
import zlib
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import open_regular
from graftseg.core.types import Geometry
from graftseg.data.formats import scan
from graftseg.data.formats.header_text import MAX_AXES, MAX_HEADER_BYTES, MAX_NUMBER_LENGTH, Header
from graftseg.data.formats.metaimage import LOCAL, metaimage_fields, read_metaimage
from graftseg.data.formats.nrrd import MAGIC, nrrd_fields, read_nrrd

SUFFIXES: tuple[str, ...] = (".nrrd", ".nhdr", ".mha", ".mhd")
HEADERS = (".nhdr", ".mhd")  # suffixes of headers with the voxels in another file
_TEXT_CHUNK = 2**18  # bytes of text parsed at once
_MAX_LINES = 10_000  # lines to skip before the voxels


def itk_files(path: Path) -> list[Path]:
    """Return the file. If its voxels are in a separate file, return that file too."""
    try:
        scan.refuse_absent(path)
        head = scan.read_head(path, MAX_HEADER_BYTES)
        fields, _ = (nrrd_fields if head.startswith(MAGIC) else metaimage_fields)(path, head)
        name = fields.text("datafile") or fields.text("elementdatafile", LOCAL)
        return [path] if name.upper() == LOCAL else [path, fields.data_file(name)]
    except UserError:
        # the error is raised again when the scan is read
        return [path]


def itk_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header. Refuse a time series, unless ``dataset.json`` lists a channel per volume."""
    return _geometry(path, _read_header(path, channel_count))


def read_itk(path: Path, channel_count: int | None = None) -> scan.Scan:
    """Read voxels ``(C, *space)`` of an image or label map. Vector components or the fourth axis become channels."""
    header = _read_header(path, channel_count)
    geometry = _geometry(path, header)
    voxels: NDArray[Any] = read_voxels(path, header)
    sizes = list(header.sizes)
    sizes.insert(header.channel_axis, header.channels)
    # numpy has the slowest axis first
    array = np.moveaxis(voxels.reshape(sizes[::-1]), len(sizes) - 1 - header.channel_axis, 0)
    shape = geometry.shape
    channels = array.reshape(-1, *shape[::-1]).transpose(0, *range(len(shape), 0, -1))
    return scan.Scan(channels, geometry, _fourth_axis(header).guesses(path, channel_count))


def _read_header(path: Path, channel_count: int | None) -> Header:
    scan.refuse_absent(path)
    head = scan.read_head(path, MAX_HEADER_BYTES)
    header = (read_nrrd if head.startswith(MAGIC) else read_metaimage)(path, head)
    refuse_size(path, header)
    if not 2 <= len(header.sizes) <= MAX_AXES:
        raise scan.unsupported(path, f"the header lists {len(header.sizes)} axes", scan.TWO_OR_THREE_AXES)
    for axis in (_fourth_axis(header), scan.FourthAxis(header.channels, 1.0)):
        axis.refuse_time(path, channel_count)
    return header


def _fourth_axis(header: Header) -> scan.FourthAxis:
    return scan.FourthAxis(header.sizes[3] if len(header.sizes) > 3 else 1, float(header.spacing[-1]), header.says_time)


def _geometry(path: Path, header: Header) -> Geometry:
    shape = header.sizes[:3]
    count = len(shape)
    direction, spacing, origin = header.directions[:count, :count], header.spacing[:count], header.origin[:count]
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(direction * spacing).all() and np.isfinite(origin).all()
        is_usable = is_finite and spacing.min() > 0 and abs(np.linalg.det(direction)) >= 1e-6
    if not is_usable:
        finding = "the header has no valid voxel size and orientation"
        raise UserError(Code.SCAN_HEADER, path, finding, "export the scan again")
    return scan.lps_geometry(shape, direction, spacing, origin, is_placed=header.is_placed)


def refuse_size(path: Path, header: Header) -> None:
    """Raise a UserError if the file cannot contain as many voxels as its header claims."""
    voxels = header.voxels
    available = max(0, voxels.path.stat().st_size - voxels.offset - max(voxels.skip, 0))
    if voxels.encoding == "text":
        # a digit and a separator per number
        available = (available + 1) // 2 * voxels.dtype.itemsize
    elif voxels.encoding == "zlib":
        available *= scan.MAX_EXPANSION
    elif voxels.encoding == "bzip2":
        scan.refuse_expansion(path, header.size, available)
        available = header.size
    scan.refuse_bytes(path, header.size, available)


def read_voxels(path: Path, header: Header) -> NDArray[Any]:
    """Return all numbers in stored order, in the byte order of this machine."""
    scan.refuse_memory(path, header.size)
    read = {"raw": _read_raw, "text": _read_text}.get(header.voxels.encoding, _read_compressed)
    try:
        with open_regular(header.voxels.path) as stream:
            stream.seek(header.voxels.offset)
            numbers = read(path, header, stream)
    except OSError as error:
        if error.strerror is None:  # raised by bz2
            raise scan.damaged(path, f"the compressed data is damaged ({error})") from None
        raise scan.unreadable(path, error) from None
    if numbers.dtype.isnative:
        return numbers
    return numbers.byteswap(inplace=True).view(numbers.dtype.newbyteorder("="))


def _read_raw(path: Path, header: Header, stream: BinaryIO) -> NDArray[Any]:
    voxels = header.voxels
    if voxels.lines > _MAX_LINES:
        raise scan.damaged(path, f"the header skips {voxels.lines} lines")
    for _ in range(voxels.lines):
        stream.readline()
    if voxels.skip < 0:
        stream.seek(-header.size, os.SEEK_END)
    else:
        stream.seek(voxels.skip, os.SEEK_CUR)
    numbers = np.fromfile(stream, voxels.dtype, header.size // voxels.dtype.itemsize)
    if numbers.nbytes != header.size:
        raise scan.damaged(path, f"truncated: {numbers.nbytes} of {header.size} bytes of voxels")
    return numbers


def _read_compressed(path: Path, header: Header, stream: BinaryIO) -> NDArray[Any]:
    """Decompress the voxels. The decompressor verifies their checksum."""
    # 47: zlib or gzip
    decompressor = zlib.decompressobj(47) if header.voxels.encoding == "zlib" else bz2.BZ2Decompressor()
    try:
        content = scan.decompress_up_to(header.size, decompressor, iter(partial(stream.read, scan.CHUNK), b""))
    except (zlib.error, EOFError) as error:
        raise scan.damaged(path, f"the compressed data is damaged ({error})") from None
    if len(content) != header.size:
        finding = f"truncated or too long: {len(content)} of {header.size} bytes of voxels"
        raise scan.damaged(path, f"the compressed data is {finding}")
    return np.frombuffer(content, header.voxels.dtype)


def _read_text(path: Path, header: Header, stream: BinaryIO) -> NDArray[Any]:
    """Parse numbers between spaces or commas."""
    dtype = header.voxels.dtype.newbyteorder("=")
    values = np.empty(header.size // dtype.itemsize, dtype)
    count, rest = 0, b""
    while count < len(values) and (chunk := stream.read(_TEXT_CHUNK)):
        text = (rest + chunk).replace(b",", b" ")
        words = text.split()
        # the last word of a chunk may continue in the next chunk
        rest = words.pop() if words and not text[-1:].isspace() and len(words[-1]) <= MAX_NUMBER_LENGTH else b""
        count = _parse(path, words, values, count)
    if rest:
        count = _parse(path, [rest], values, count)
    if count < len(values):
        raise scan.damaged(path, f"truncated: {count} of {len(values)} numbers")
    return values


def _parse(path: Path, words: list[bytes], values: NDArray[Any], count: int) -> int:
    """Write the numbers of words into values, starting at ``count``, and return the new count."""
    used = words[: len(values) - count]
    try:
        if any(len(word) > MAX_NUMBER_LENGTH or b"_" in word for word in used):
            raise ValueError("not a number")
        number = float if values.dtype.kind == "f" else int
        values[count : count + len(used)] = [number(word) for word in used]
    except (ValueError, OverflowError):
        finding = f"the text after number {count} of the voxels is not numbers of type {values.dtype}"
        raise scan.damaged(path, finding) from None
    return count + len(used)
