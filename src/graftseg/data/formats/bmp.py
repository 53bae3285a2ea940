"""BMP pictures: uncompressed 2-D scans in 8-bit gray or RGB, and label maps."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.data.formats import scan
from graftseg.data.formats.png_chunks import damaged_picture

SUFFIXES: tuple[str, ...] = (".bmp",)
_BGR = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)  # bit masks of red, green and blue


def read_size(path: Path) -> tuple[int, int, int]:
    """Return width, height and number of channels from the header."""
    header = _read_header(path, _read(path))
    return header.width, header.height, header.channels


def read_pixels(path: Path, is_label: bool) -> NDArray[Any]:
    """Return ``(rows, columns)`` or ``(rows, columns, channels)``. Pixels of a label map may be palette indices."""
    content = _read(path)
    header = _read_header(path, content)
    shape = header.height, header.row_bytes
    rows = np.frombuffer(content, np.uint8, shape[0] * shape[1], header.offset).reshape(shape)
    if not header.is_top_down:
        rows = rows[::-1]
    if header.bits > 8:
        pixels = rows[:, : header.width * header.bits // 8].reshape(header.height, header.width, -1)
        return pixels[..., [2, 1, 0, 3][: header.channels]]
    if header.bits < 8:
        bits = np.unpackbits(rows, axis=1).reshape(header.height, -1, header.bits)
        rows = np.right_shift(np.packbits(bits, axis=2)[..., 0], 8 - header.bits, dtype=np.uint8)
    indices = rows[:, : header.width]
    if (top := int(indices.max())) >= len(header.palette):
        raise damaged_picture(path, f"color {top} is not in the palette")
    if is_label:
        return indices.copy()
    if (header.palette != header.palette[:, :1]).any(axis=1)[indices].any():
        raise scan.unsupported(path, "the picture has palette colors", "convert it to gray or RGB")
    return header.palette[:, 0][indices]


def _read(path: Path) -> bytes:
    return scan.read_content(path, "BMP", b"BM")


@dataclass(frozen=True)
class _Header:
    """The header of a BMP file. ``palette`` is (colors, 3), and empty without a palette."""

    width: int
    height: int
    is_top_down: bool
    bits: int  # per pixel
    channels: int
    offset: int  # of the pixels
    palette: NDArray[np.uint8]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, a multiple of four."""
        return (self.width * self.bits + 31) // 32 * 4


def _read_header(path: Path, content: bytes) -> _Header:
    try:
        offset, size = struct.unpack_from("<II", content, 10)
        is_old, compression, colors = size == 12, 0, 0
        width, height, _, bits = struct.unpack_from("<HHHH" if is_old else "<iiHH", content, 18)
        if not is_old:
            compression, _, _, _, colors, _ = struct.unpack_from("<IIiiII", content, 30)
    except struct.error:
        raise damaged_picture(path, "the header is incomplete") from None
    has_masks = compression == 3 and bits == 32 and content[54:66] == _BGR
    if (size < 40 and not is_old) or bits not in (1, 4, 8, 24, 32) or not (compression == 0 or has_masks):
        finding = f"a BMP file with {bits} bits per pixel and compression {compression}"
        raise scan.unsupported(path, finding, "save it uncompressed with 8 or 24 bits per pixel")
    if width <= 0 or height == 0 or offset < 14 + size:
        raise damaged_picture(path, "the header is invalid")
    # four bytes per color, or three in the oldest kind of file
    stored = content[14 + size : offset] if bits <= 8 else b""
    entry = 3 if is_old else 4
    stored = stored[: min(colors or 2**bits, 2**bits, len(stored) // entry) * entry]
    palette = np.frombuffer(stored, np.uint8).reshape(-1, entry)[:, :3]
    channels = 1 if bits <= 8 else 4 if has_masks and size >= 56 and content[66:70] == b"\0\0\0\xff" else 3
    header = _Header(width, abs(height), height < 0, bits, channels, offset, palette)
    scan.refuse_bytes(path, header.width * header.height * channels)
    scan.refuse_bytes(path, header.row_bytes * header.height, max(0, len(content) - offset))
    return header
