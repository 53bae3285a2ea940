"""Decompress the strips and tiles of a TIFF file, up to the size in its header."""

import lzma
import re
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.reading import open_regular
from graftseg.data.formats.scan import decompress_up_to

_UNCOMPRESSED, _PACKBITS, _LZMA, _DEFLATE = 1, 32773, 34925, (8, 32946, 50013)  # numbers of compressions
_SIGNATURES = {b"II*\0": ("<", 42), b"MM\0*": (">", 42), b"II+\0": ("<", 43), b"MM\0+": (">", 43)}
_TYPE_BYTES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # bytes per value by tag type
_MAX_TAGS, _MAX_TAG_BYTES = 4096, 64 * 2**20
_MAX_DICTIONARY = 256 * 2**20  # bytes of memory for xz
_SLICES = re.compile(r'^images=(?!1\b)|"truncated": true', re.MULTILINE)  # in descriptions by ImageJ and tifffile
_MAX_PADDING = (4, 2**20)  # tiles may contain 4 times the bytes of the picture, and 1 MiB more


def has_more_pages(path: Path) -> bool:
    """Return whether a file has several pages. Raise ValueError if the tags of the first page are too large."""
    with open_regular(path) as stream:
        start = stream.read(4)
        if start not in _SIGNATURES:
            raise ValueError("not a TIFF file")
        order, version = _SIGNATURES[start]
        count_format, entry_format, offset_format = ("Q", "HHQQ", "Q") if version == 43 else ("H", "HHII", "I")
        stream.seek(8 if version == 43 else 4)
        stream.seek(_unpacked(stream, order + offset_format)[0])
        (count,) = _unpacked(stream, order + count_format)
        if count > _MAX_TAGS:
            raise ValueError(f"{count} tags")
        size = 0
        for _ in range(count):
            _, kind, values, _ = _unpacked(stream, order + entry_format)
            size += values * (_TYPE_BYTES[kind] if kind < len(_TYPE_BYTES) else 0)
        if size > min(_MAX_TAG_BYTES, path.stat().st_size):
            raise ValueError(f"{size} bytes of tags")
        return bool(_unpacked(stream, order + offset_format)[0])


def has_hidden_slices(page: Any) -> bool:
    """Return whether a page is a volume, or is followed by slices without pages of their own."""
    return page.imagedepth > 1 or ((page.is_imagej or page.is_shaped) and bool(_SLICES.search(page.description)))


def _unpacked(stream: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, stream.read(struct.calcsize(layout)))


def can_decompress(page: Any) -> bool:
    """Return whether ``read_pixels`` knows the compression of a page."""
    return int(page.compression) in (_UNCOMPRESSED, _PACKBITS, _LZMA, *_DEFLATE)


def read_pixels(path: Path, page: Any) -> NDArray[Any]:
    """Read the pixels of a page. Raise ValueError if a strip or tile has more or fewer bytes than expected."""
    sizes = [_segment_bytes(page, index) for index in range(len(page.dataoffsets))]
    factor, margin = _MAX_PADDING
    if sum(needed for needed, _ in sizes) > factor * page.nbytes + margin:
        raise ValueError("the tiles are larger than the picture")
    segments = zip(page.dataoffsets, page.databytecounts, sizes, strict=True)
    decompress, is_reversed = _decompressor(int(page.compression)), page.fillorder == 2
    # page.decode must not decompress the segments again
    page.compression, page.fillorder = _UNCOMPRESSED, 1
    pixels = np.zeros(page.shaped, page.dtype)
    with open_regular(path) as stream:
        for index, (offset, count, (needed, whole)) in enumerate(segments):
            if count > 2 * whole + 1024:
                raise ValueError(f"a strip of {count} bytes for {whole} bytes of pixels")
            stream.seek(offset)
            content = stream.read(count)
            if is_reversed:
                content = np.packbits(np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")).tobytes()
            content = decompress(content, whole)
            if not needed <= len(content) <= whole:
                more = "more than " if len(content) > whole else ""
                raise ValueError(f"{more}{min(len(content), whole)} of {needed} bytes of a strip found")
            part, (plane, depth, top, left, _), _ = page.decode(content[:needed], index)
            space = pixels[plane, depth : depth + len(part), top : top + part.shape[1], left : left + part.shape[2]]
            space[:] = part[: space.shape[0], : space.shape[1], : space.shape[2]]
    return pixels.reshape(page.shape)


def _segment_bytes(page: Any, index: int) -> tuple[int, int]:
    """Return the minimum and maximum bytes of a strip or tile. They differ for the last strip, which may be padded."""
    samples = page.samplesperpixel if int(page.planarconfig) == 1 else 1
    width = page.tilewidth if page.is_tiled else page.imagewidth
    row = -(-width * samples * int(page.bitspersample) // 8)
    if page.is_tiled:
        return (tile := page.tiledepth * page.tilelength * row), tile
    strip = min(page.rowsperstrip, page.imagelength)
    first = index % -(-page.imagelength // strip) * strip
    return min(strip, page.imagelength - first) * row, strip * row


def _decompressor(compression: int) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses bytes up to a limit. It returns more bytes if there is more content."""
    if compression == _UNCOMPRESSED:
        return lambda content, limit: content[:limit]
    if compression == _PACKBITS:
        return _unpack_bits
    make = partial(lzma.LZMADecompressor, memlimit=_MAX_DICTIONARY) if compression == _LZMA else zlib.decompressobj

    def unpack(content: bytes, limit: int) -> bytes:
        try:
            return bytes(decompress_up_to(limit, make(), [content]))
        except EOFError:
            raise ValueError("the compressed pixels are truncated") from None

    return unpack


def _unpack_bits(content: bytes, limit: int) -> bytes:
    """Unpack PackBits: a byte below 128 announces literal bytes, a byte above 128 announces a repeated byte."""
    unpacked, place = bytearray(), 0
    while place < len(content) and len(unpacked) <= limit:
        mark, place = content[place], place + 1
        if mark == 128:
            continue
        count = mark + 1 if mark < 128 else 1
        part = content[place : place + count]
        if len(part) < count:
            raise ValueError("the compressed pixels are truncated")
        unpacked += part if mark < 128 else part * (257 - mark)
        place += count
    return bytes(unpacked)
