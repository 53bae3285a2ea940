"""Decompression in parts of limited size, so that a small file cannot fill the memory."""

from collections.abc import Iterable, Iterator
from typing import Any

CHUNK = 2**20
"""Maximum number of bytes that are decompressed at once."""


def decompressed(decompressor: Any, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content in parts of at most ``CHUNK`` bytes. Raise EOFError after the last part if it is truncated.

    ``decompressor`` is a new decompressor of zlib, bz2 or lzma. It verifies the checksum at the end of the content.
    """
    for chunk in chunks:
        while not decompressor.eof and (part := decompressor.decompress(chunk, CHUNK)):
            yield part
            chunk = getattr(decompressor, "unconsumed_tail", b"")  # bz2 and lzma keep the rest themselves
        if decompressor.eof:
            return
    raise EOFError("truncated")


def decompress_up_to(limit: int, decompressor: Any, chunks: Iterable[bytes]) -> bytearray:
    """Return the content. Stop after the first part that exceeds ``limit`` bytes. Raise EOFError if it is truncated."""
    content = bytearray()
    for part in decompressed(decompressor, chunks):
        content += part
        if len(content) > limit:
            break
    return content
