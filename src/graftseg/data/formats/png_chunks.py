"""The chunks of a PNG file, with all checksums and sizes verified before pixels are decoded."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_bytes
from graftseg.data.formats.scan import AGAIN, damaged, decompressed, read_head, refuse_bytes, unreadable

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # number of channels by color type
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # bits per sample by color type
_HEADER_END = 33  # the signature, and the first chunk of 13 bytes with its length, name and checksum
_MAX_SIDE = 2**31 - 1
_PLAIN = ((0, 0, 1, 1),)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column, first row, column step and row step of each pass of an interlaced picture."""


@dataclass(frozen=True)
class Header:
    """The first chunk: size of the picture, bits per sample, color type, and whether it is interlaced."""

    width: int
    height: int
    bits: int
    color_type: int
    is_interlaced: bool

    @property
    def stream_bytes(self) -> int:
        """Bytes of all rows before compression. Each row begins with one byte for its filter."""
        total, bits_per_pixel = 0, self.bits * CHANNELS[self.color_type]
        for left, top, across, down in _ADAM7 if self.is_interlaced else _PLAIN:
            columns, rows = -((left - self.width) // across), -((top - self.height) // down)
            total += max(0, rows) * (1 + -(-columns * bits_per_pixel // 8)) if columns > 0 else 0
        return total

    def packed(self) -> bytes:
        """Return the content of the chunk."""
        return struct.pack(">IIBBBBB", self.width, self.height, self.bits, self.color_type, 0, 0, self.is_interlaced)


@dataclass(frozen=True)
class Chunks:
    """The chunks that pixels depend on, and the number of pictures. Texts and color profiles are not kept."""

    header: Header
    palette: bytes | None
    data: bytes
    frames: int

    def as_file(self, header: Header) -> bytes:
        """Return a PNG file of these chunks under another header."""
        chunks = [(b"IHDR", header.packed()), (b"IDAT", self.data), (b"IEND", b"")]
        if self.palette is not None:
            chunks.insert(1, (b"PLTE", self.palette))
        parts = [_SIGNATURE]
        for name, data in chunks:
            parts += [struct.pack(">I", len(data)), name, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))]
        return b"".join(parts)


def read_header(path: Path) -> Header:
    """Read the header and verify its checksum."""
    return _parsed_header(path, read_head(path, _HEADER_END))


def read_chunks(path: Path) -> Chunks:
    """Read a file and verify the checksum of each chunk, and the checksum and the size of the compressed rows."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from None
    header, palette, frames, parts = _parsed_header(path, content), None, 1, []
    for name, data in _chunks(path, content):
        if name == b"PLTE":
            palette = data
        elif name == b"IDAT":
            parts.append(data)
        elif name == b"acTL" and len(data) == 8:
            frames = int.from_bytes(data[:4], "big")
    if header.color_type == 3 and palette is None:
        raise damaged_picture(path, "the palette is missing")
    compressed = b"".join(parts)
    _check_rows(path, header, compressed)
    return Chunks(header, palette, compressed, frames)


def _parsed_header(path: Path, head: bytes) -> Header:
    if len(head) < _HEADER_END or head[:8] != _SIGNATURE or head[12:16] != b"IHDR":
        raise UserError(Code.NOT_A_SCAN, path, "not a PNG file", AGAIN)
    width, height, bits, color_type, compression, filters, interlace = struct.unpack(">IIBBBBB", head[16:29])
    is_known = bits in _BITS.get(color_type, ()) and (compression, filters) == (0, 0) and interlace < 2
    if not (is_known and 0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE):
        raise damaged(path, "the header is invalid")
    # check the size before the checksum, because a size above the limit has a separate error
    refuse_bytes(path, width * height * CHANNELS[color_type] * max(1, bits // 8))
    if head[8:12] != b"\0\0\0\x0d" or int.from_bytes(head[29:33], "big") != zlib.crc32(head[12:29]):
        raise damaged_picture(path, "wrong checksum of the header")
    return Header(width, height, bits, color_type, interlace == 1)


def _chunks(path: Path, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and content of each chunk up to the end mark."""
    place, view = len(_SIGNATURE), memoryview(content)
    while place + 12 <= len(content):
        name, end = content[place + 4 : place + 8], place + 8 + int.from_bytes(content[place : place + 4], "big")
        if end + 4 > len(content):
            break
        if int.from_bytes(content[end : end + 4], "big") != zlib.crc32(view[place + 4 : end]):
            raise damaged_picture(path, f"wrong checksum at byte {place}")
        if name == b"IEND":
            return
        yield name, content[place + 8 : end]
        place = end + 4
    raise damaged_picture(path, "the end is missing")


def _check_rows(path: Path, header: Header, compressed: bytes) -> None:
    """Inflate the rows to their end, which verifies their checksum, and compare their size with the header."""
    inflater, count = zlib.decompressobj(), 0
    try:
        with suppress(EOFError):
            for part in decompressed(inflater, [compressed]):
                count += len(part)
                if count > header.stream_bytes:
                    break
    except zlib.error as error:
        raise damaged_picture(path, str(error)) from None
    if not inflater.eof or count != header.stream_bytes:
        more = "more than " if count > header.stream_bytes else ""
        found = f"{more}{min(count, header.stream_bytes)} of {header.stream_bytes}"
        raise damaged_picture(path, f"{found} bytes of pixels found")


def damaged_picture(path: Path, reason: str) -> UserError:
    """Return the error for a damaged picture."""
    return damaged(path, f"the picture is damaged or truncated ({reason})")
