"""Search for planted texts in output files, also inside of compressed, packed and encoded content."""

import binascii
import gzip
import io
import re
import struct
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")
PNG = b"\x89PNG\r\n\x1a\n"
MAX_DEPTH = 4


def leaked(secret: str, content: bytes) -> bool:
    """Return whether a content contains a text: as it is, in lowercase, as UTF-16, hexadecimal or base64."""
    return any(form in content for form in forms(secret))


def forms(secret: str) -> list[bytes]:
    """Return the ways in which a text may be stored."""
    plain = secret.encode()
    wide = secret.encode("utf-16-le")
    return [plain, plain.lower(), wide, binascii.hexlify(plain), *(_base64(plain, shift) for shift in range(3))]


def _base64(plain: bytes, shift: int) -> bytes:
    """Return the base64 characters that do not depend on neighbors, for a text that starts at byte ``shift`` of 3."""
    inner = plain[(3 - shift) % 3 :]
    return b64encode(inner[: len(inner) // 3 * 3])


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the relative path and content of all files of a folder, and of everything that is packed inside of them."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            yield name, name.encode()
            yield from unpacked(name, path.read_bytes())


def unpacked(name: str, content: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield a content and everything inside: gzip, zip, PNG texts and base64."""
    yield name, content
    if depth == MAX_DEPTH:
        return
    try:
        inside = list(_inside(content))
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error):
        if not depth:
            raise
        # decoded text that only looks like a packed file
        inside = []
    for member, packed in inside:
        yield from unpacked(f"{name}{member}", packed, depth + 1)


def _inside(content: bytes) -> Iterator[tuple[str, bytes]]:
    if content[:2] == b"\x1f\x8b":
        yield "", gzip.decompress(content)
    elif content[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from ((f":{member}", archive.read(member)) for member in archive.namelist())
    elif content[:8] == PNG:
        yield "", _png_texts(content)
    else:
        for match in BASE64.finditer(content):
            text = match[0].rstrip(b"=")
            text = text[:-1] if len(text) % 4 == 1 else text
            yield "", b64decode(text + b"=" * (-len(text) % 4))


def _png_texts(content: bytes) -> bytes:
    """Return the chunks of a PNG file, with the compressed ones also decompressed, except for the pixels."""
    found, place = b"", 8
    while place + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        data = content[place + 8 : place + 8 + length]
        if kind != b"IDAT":
            found += data
            for start in range(len(data)):
                if data[start : start + 1] == b"\x78":
                    try:
                        found += zlib.decompress(data[start:])
                    except zlib.error:
                        continue
        place += 12 + length
    return found
