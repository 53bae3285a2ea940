"""JPEG pictures: 2-D scans in 8-bit gray or RGB, but no label maps.

JPEG has no checksum, and decoders fill missing pixels with gray. Therefore, each picture is decoded twice, the
second time with additional bytes where its pixels end. They change the result only if pixels are missing.
"""

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.packages import import_optional
from graftseg.data.formats import scan
from graftseg.data.formats.png_chunks import damaged_picture

SUFFIXES: tuple[str, ...] = (".jpg", ".jpeg")
_SOI, _SCAN, _END = b"\xff\xd8", 0xDA, 0xD9  # JPEG markers: start of the picture, start of a scan, end of the picture
_JFIF, _EXIF, _ADOBE, _PROGRESSIVE = 0xE0, 0xE1, 0xEE, 0xC2
_HUFFMAN = (0xC0, 0xC1, _PROGRESSIVE)
_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}  # markers of the header, one for each kind of JPEG
_DROPPED = {*range(0xE0, 0xF0), 0xFE} - {_JFIF, _ADOBE}  # texts, color profiles and previews
_MARKER, _SCAN_END = re.compile(rb"\xff+([\x01-\xfe])"), re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")
_RESTART = re.compile(rb"\xff+([\xd0-\xd7])")
_FILLER = bytes.fromhex("9f41bd5bcbb0f1d7") * 4  # decoders skip it if the pixels before are complete
_MAX_SCANS = 100  # a progressive picture usually has about 10, and each takes time
_FREE_EXPANSION = 64 * 2**20  # bytes of pixels, for which decoders may need five times the memory
_ORIENTATION = 274  # number of an EXIF tag
_EXPORT = "save it as PNG or TIFF"


def read_size(path: Path) -> tuple[int, int, int]:
    """Return width, height and number of channels from the header."""
    content = _read(path)
    for marker, data, _ in _segments(path, content):
        if marker in _FRAMES:
            return _frame_size(path, marker, data, len(content))
    raise damaged_picture(path, "the header is missing")


def read_pixels(path: Path, is_label: bool) -> NDArray[Any]:
    """Return ``(rows, columns)`` or ``(rows, columns, channels)``. Refuse label maps."""
    if is_label:
        finding = "a label map in JPEG, whose compression changes class numbers"
        raise scan.unsupported(path, finding, "save label maps as PNG, from the originals and not from JPEG")
    content = _read(path)
    parts, longer, scans, channels, kind = [_SOI], [_SOI], 0, 0, 0
    complete: set[tuple[int, int]] = set()  # components and their frequencies that are stored with all bits
    for marker, data, pixels in _segments(path, content):
        if marker in _DROPPED:
            continue
        if marker in _FRAMES:
            kind, (_, _, channels) = marker, _frame_size(path, marker, data, len(content))
        if marker == _SCAN and len(data) >= 6:
            scans += 1
            first, last, missing_bits = (*data[-3:-1], data[-1] & 15) if kind == _PROGRESSIVE else (0, 63, 0)
            if not missing_bits:
                complete |= {(component, k) for component in data[1:-3:2] for k in range(first, last + 1)}
        segment = bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data
        parts += [segment, pixels]
        longer += [segment, _with_filler(path, pixels) if marker == _SCAN else b""]
    if not channels or len(complete) < 64 * channels:
        raise damaged_picture(path, "some of its parts are missing")
    if scans > _MAX_SCANS:
        raise scan.unsupported(path, f"a JPEG file with {scans} scans", _EXPORT)
    end = bytes((0xFF, _END))
    decoded, other = (_decode(path, b"".join([*stream, end])) for stream in (parts, longer))
    if not np.array_equal(decoded, other):
        raise damaged_picture(path, "some of its pixels are missing")
    return decoded


def _read(path: Path) -> bytes:
    return scan.read_content(path, "JPEG", _SOI + b"\xff")


def _segments(path: Path, content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield marker, content and following pixels of each segment of a JPEG file up to the end mark."""
    place = len(_SOI)
    while match := _MARKER.match(content, place):
        marker, start = match[1][0], match.end()
        if marker == _END:
            if _SOI + b"\xff" in content[start:]:
                raise scan.unsupported(path, "a JPEG file with several pictures", "save one picture per file")
            return
        place = start + int.from_bytes(content[start : start + 2], "big")
        data, pixels = content[start + 2 : place], b""
        if not start + 2 <= place <= len(content):
            break
        if marker == _EXIF:
            _refuse_turned(path, data)
        if marker == _SCAN:
            scan_end = _SCAN_END.search(content, place)
            pixels = content[place : scan_end.start() if scan_end else None]
            place += len(pixels)
        yield marker, data, pixels
    raise damaged_picture(path, "the end is missing" if place >= len(content) else f"invalid content at byte {place}")


def _refuse_turned(path: Path, data: bytes) -> None:
    exif = import_optional("PIL.Image", "JPEG files", package="pillow").Exif()
    try:
        exif.load(data if data.startswith(b"Exif\0\0") else b"")
        orientation = exif.get(_ORIENTATION, 1)
    except Exception:
        return  # viewers ignore damaged EXIF tags, too
    if orientation not in (0, 1):
        finding = f"the pixels are stored turned or mirrored (Orientation {orientation})"
        raise scan.unsupported(path, finding, "save it upright, for example with ImageOps.exif_transpose of Pillow")


def _frame_size(path: Path, marker: int, data: bytes, file_bytes: int) -> tuple[int, int, int]:
    """Return width, height and number of channels. Refuse kinds of JPEG that Pillow cannot decode."""
    if len(data) < 6:
        raise damaged_picture(path, "the header is invalid")
    bits, height, width, channels = struct.unpack(">BHHB", data[:6])
    if marker not in _HUFFMAN:
        kind = "a lossless" if marker & 3 == 3 else "an arithmetic-coded" if marker > 0xC8 else "a hierarchical"
        raise scan.unsupported(path, f"{kind} JPEG file", _EXPORT)
    if bits != 8:
        raise scan.unsupported(path, f"a JPEG file with {bits} bits per channel", _EXPORT)
    if channels == 4:
        raise scan.unsupported(path, "the color space of the picture is CMYK or YCCK", "convert it to gray or RGB")
    if channels not in (1, 3):
        raise scan.unsupported(path, f"a picture with {channels} channels", "save gray or RGB, or one file per channel")
    if not width or not height:
        raise damaged_picture(path, "the header is invalid")
    needed = width * height * channels
    scan.refuse_bytes(path, needed)
    scan.refuse_expansion(path, needed, file_bytes, _FREE_EXPANSION)
    return width, height, channels


def _with_filler(path: Path, pixels: bytes) -> bytes:
    """Return the pixels of a scan with filler before each restart, and with a restart and filler at the end."""
    numbers = [found[1][0] for found in _RESTART.finditer(pixels)]
    expected = [0xD0 + index % 8 for index in range(len(numbers) + 1)]
    if numbers != expected[:-1]:
        raise damaged_picture(path, "some of its pixels are missing")
    filled = _RESTART.sub(lambda restart: _FILLER + restart[0], pixels)
    return filled + _FILLER + bytes((0xFF, expected[-1])) + _FILLER


def _decode(path: Path, content: bytes) -> NDArray[Any]:
    image = import_optional("PIL.Image", "JPEG files", package="pillow")
    # the limit of Pillow is too low for large scans, and the size is already checked
    image.MAX_IMAGE_PIXELS = None
    import_optional("PIL.ImageFile", "JPEG files", package="pillow").LOAD_TRUNCATED_IMAGES = False
    try:
        with image.open(BytesIO(content), formats=("JPEG",)) as picture:
            return np.array(picture)
    except MemoryError:
        raise
    except Exception as error:
        raise damaged_picture(path, scan.short_reason(error, path)) from None
