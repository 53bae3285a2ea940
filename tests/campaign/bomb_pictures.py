"""Small PNG, TIFF, JPEG and BMP files that ask for much memory or time."""

import struct
import zlib
from functools import partial
from io import BytesIO
from pathlib import Path

from bomb_streams import Make, zlib_stream
from PIL import Image

SHORT, LONG, ASCII = 3, 4, 2
SIDE = 16
PIXELS = zlib.compress((b"\0" + bytes(SIDE)) * SIDE)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(folder: Path, *, width: int = SIDE, height: int = SIDE, data: bytes = PIXELS, before: bytes = b"") -> Path:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    path = folder / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + before + _chunk(b"IDAT", data) + _chunk(b"IEND", b""))
    return path


def _animation() -> bytes:
    control = _chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))
    frames = (struct.pack(">IIIIIHHBB", n, SIDE, SIDE, 0, 0, 1, 1, 0, 0) for n in range(2000))
    return control + b"".join(_chunk(b"fcTL", frame) for frame in frames)


def _ifd(tags: dict[int, tuple[int, int, int]], following: int) -> bytes:
    """Return a directory of tags, each with a type, a count, and a value or an offset."""
    entries = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(tags.items()))
    return struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)


def _tags(width: int, height: int, offset: int, size: int, compression: int = 1) -> dict[int, tuple[int, int, int]]:
    return {
        256: (LONG, 1, width),
        257: (LONG, 1, height),
        258: (SHORT, 1, 8),
        259: (SHORT, 1, compression),
        262: (SHORT, 1, 1),
        273: (LONG, 1, offset),
        277: (SHORT, 1, 1),
        278: (LONG, 1, height),
        279: (LONG, 1, size),
    }


def _tiff(
    folder: Path,
    *,
    width: int = SIDE,
    height: int = SIDE,
    content: bytes = bytes(SIDE * SIDE),
    size: int | None = None,
    compression: int = 1,
    more: dict[int, tuple[int, int, int]] | None = None,
    following: int = 0,
) -> Path:
    tags = _tags(width, height, 8, len(content) if size is None else size, compression) | (more or {})
    path = folder / "a.tif"
    path.write_bytes(struct.pack("<2sHI", b"II", 42, 8 + len(content)) + content + _ifd(tags, following))
    return path


def _many_pages(folder: Path, *, count: int, loop: bool) -> Path:
    length = 2 + 12 * 9 + 4
    begin = 264
    following = [begin + page * length for page in range(1, count)] + [begin if loop else 0]
    pages = b"".join(_ifd(_tags(SIDE, SIDE, 8, 256), offset) for offset in following)
    path = folder / "a.tif"
    path.write_bytes(struct.pack("<2sHI", b"II", 42, begin) + bytes(256) + pages)
    return path


def _big_tiff(folder: Path) -> Path:
    path = folder / "a.tif"
    path.write_bytes(struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, 2**40) + bytes(4096))
    return path


def _jpeg(folder: Path, *, side: int, scans: int = 0, before: bytes = b"") -> Path:
    """Write a progressive picture of 16 x 16 pixels with another size in its header, which repeats its last scan."""
    stream = BytesIO()
    Image.new("RGB", (SIDE, SIDE)).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    frame, last = content.index(b"\xff\xc2") + 5, content.rindex(b"\xff\xda")
    content = content[:frame] + struct.pack(">HH", side, side) + content[frame + 4 : -2] + content[last:-2] * scans
    path = folder / "a.jpg"
    path.write_bytes(content[:2] + before + content[2:] + b"\xff\xd9")
    return path


def _bmp(folder: Path, *, width: int, height: int, bits: int = 8) -> Path:
    path = folder / "a.bmp"
    header = struct.pack("<IHHIIiiHHIIiiII", 0, 0, 0, 1078, 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0)
    path.write_bytes(b"BM" + header + bytes(2048))
    return path


PICTURES: dict[str, Make] = {
    "jpeg size": partial(_jpeg, side=65000),
    "jpeg scans": partial(_jpeg, side=4700, scans=90),
    "jpeg many scans": partial(_jpeg, side=4700, scans=100_000),
    "jpeg many segments": partial(_jpeg, side=SIDE, before=b"\xff\xe1\0\x08Exif\0\0" * 100_000),
    "bmp size": partial(_bmp, width=2**31 - 1, height=-(2**31)),
    "bmp of few bits": partial(_bmp, width=2**20, height=2**10, bits=1),
    "png size": partial(_png, width=60000, height=60000),
    "png overflow": partial(_png, width=2**31 - 1, height=2**31 - 1),
    "png valid but large": partial(_png, width=16384, height=16385, data=zlib_stream(272)),
    "png excess pixel data": partial(_png, data=zlib_stream(2048)),
    "png text": partial(_png, before=_chunk(b"zTXt", b"a\0\0" + zlib_stream(2048))),
    "png unicode text": partial(_png, before=_chunk(b"iTXt", b"a\0\1\0\0\0" + zlib_stream(2048))),
    "png profile": partial(_png, before=_chunk(b"iCCP", b"a\0\0" + zlib_stream(2048))),
    "png many chunks": partial(_png, before=_chunk(b"tEXt", b"a\0b") * 100_000),
    "png frames": partial(_png, before=_animation()),
    "tiff size": partial(_tiff, width=60000, height=60000),
    "tiff strip": partial(_tiff, width=60000, height=60000, size=3_600_000_000),
    "tiff many strips": partial(_tiff, height=2**30, more={278: (LONG, 1, 1), 273: (LONG, 2**30, 8)}),
    "tiff deflate": partial(_tiff, content=zlib_stream(2048), compression=8),
    "tiff deflate size": partial(_tiff, width=60000, height=60000, content=zlib_stream(16), compression=8),
    "tiff description": partial(_tiff, more={270: (ASCII, 2**31, 8)}),
    "tiff samples": partial(_tiff, more={277: (SHORT, 1, 65535), 258: (SHORT, 2**28, 8)}),
    "tiff tiles": partial(
        _tiff,
        more={322: (LONG, 1, 2**31 - 16), 323: (LONG, 1, 2**31 - 16), 324: (LONG, 1, 8), 325: (LONG, 1, 99)},
    ),
    "tiff many pages": partial(_many_pages, count=20_000, loop=False),
    "tiff loop": partial(_many_pages, count=3, loop=True),
    "tiff loop of one page": partial(_many_pages, count=1, loop=True),
    "tiff sub-page loop": partial(_tiff, more={330: (LONG, 1, 8 + SIDE * SIDE)}),
    "big tiff": _big_tiff,
}
