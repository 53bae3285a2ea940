"""Small compressed streams that expand to gigabytes, made in milliseconds."""

import bz2
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

MIB = 2**20
BLOCK = 16 * MIB
Make = Callable[[Path], Path]
"""A function that writes a file to a folder and returns the path."""


@lru_cache(maxsize=1)
def _block() -> bytes:
    """Return ``BLOCK`` zeros as a deflate block that can be repeated, because it refers to no earlier block."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeeze.compress(bytes(BLOCK)) + squeeze.flush(zlib.Z_FULL_FLUSH)


def deflated(mib: int, head: bytes = b"") -> bytes:
    """Return ``head`` and ``mib`` MiB of zeros as a raw deflate stream."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, -15)
    begin = squeeze.compress(head) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return begin + _block() * (mib * MIB // BLOCK) + zlib.compressobj(1, zlib.DEFLATED, -15).flush()


def zlib_stream(mib: int) -> bytes:
    """Return ``mib`` MiB of zeros as a zlib stream with a correct checksum."""
    adler = (mib * MIB % 65521) << 16 | 1
    return b"\x78\x9c" + deflated(mib) + struct.pack(">I", adler)


def gzip_stream(mib: int, head: bytes = b"") -> bytes:
    """Return ``head`` and ``mib`` MiB of zeros as a gzip stream with a wrong checksum, which is found at the end."""
    size = (mib * MIB + len(head)) % 2**32
    return b"\x1f\x8b\x08" + bytes(7) + deflated(mib, head) + struct.pack("<II", 1, size)


def bzip2_stream(mib: int) -> bytes:
    """Return ``mib`` MiB of zeros as bzip2 streams in a row."""
    return bz2.compress(bytes(BLOCK)) * (mib * MIB // BLOCK)
