"""Decode the voxels of NRRD and MetaImage files: raw, compressed or text.

``refuse_size`` must be called first. It refuses a header that claims more voxels than the file can contain.
"""

import bz2
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.reading import open_regular
from graftseg.data.formats.header_text import MAX_NUMBER_LENGTH, Header
from graftseg.data.formats.inflate import CHUNK, decompress_up_to
from graftseg.data.formats.scan import damaged, refuse_bytes, refuse_expansion, refuse_memory, unreadable

_TEXT_CHUNK = 2**18  # bytes of text parsed at once
_MAX_LINES = 10_000  # lines to skip before the voxels
_INFLATE_RATIO = 1100  # largest number of decoded bytes per compressed byte


def refuse_size(path: Path, header: Header) -> None:
    """Raise a UserError if the file cannot contain as many voxels as its header claims."""
    voxels = header.voxels
    available = max(0, voxels.path.stat().st_size - voxels.offset - max(voxels.skip, 0))
    if voxels.encoding == "text":
        # a digit and a separator per number
        available = (available + 1) // 2 * voxels.dtype.itemsize
    elif voxels.encoding == "zlib":
        available *= _INFLATE_RATIO
    elif voxels.encoding == "bzip2":
        refuse_expansion(path, header.size, available)
        available = header.size
    refuse_bytes(path, header.size, available)


def read_voxels(path: Path, header: Header) -> NDArray[Any]:
    """Return all numbers in stored order, in the byte order of this machine."""
    refuse_memory(path, header.size)
    read: dict[str, Callable[[Path, Header, BinaryIO], NDArray[Any]]]
    read = {"raw": _read_raw, "text": _read_text, "zlib": _read_compressed, "bzip2": _read_compressed}
    try:
        with open_regular(header.voxels.path) as stream:
            stream.seek(header.voxels.offset)
            numbers = read[header.voxels.encoding](path, header, stream)
    except OSError as error:
        if error.strerror is None:  # raised by bz2
            raise damaged(path, f"the compressed data is damaged ({error})") from None
        raise unreadable(path, error) from None
    if numbers.dtype.isnative:
        return numbers
    return numbers.byteswap(inplace=True).view(numbers.dtype.newbyteorder("="))


def _read_raw(path: Path, header: Header, stream: BinaryIO) -> NDArray[Any]:
    voxels = header.voxels
    if voxels.lines > _MAX_LINES:
        raise damaged(path, f"the header skips {voxels.lines} lines")
    for _ in range(voxels.lines):
        stream.readline()
    if voxels.skip < 0:
        stream.seek(-header.size, os.SEEK_END)
    else:
        stream.seek(voxels.skip, os.SEEK_CUR)
    numbers = np.fromfile(stream, voxels.dtype, header.size // voxels.dtype.itemsize)
    if numbers.nbytes != header.size:
        raise damaged(path, f"truncated: {numbers.nbytes} of {header.size} bytes of voxels")
    return numbers


def _read_compressed(path: Path, header: Header, stream: BinaryIO) -> NDArray[Any]:
    """Decompress the voxels. The decompressor verifies their checksum."""
    # 47: zlib or gzip
    decompressor = zlib.decompressobj(47) if header.voxels.encoding == "zlib" else bz2.BZ2Decompressor()
    try:
        content = decompress_up_to(header.size, decompressor, iter(partial(stream.read, CHUNK), b""))
    except (zlib.error, EOFError) as error:
        raise damaged(path, f"the compressed data is damaged ({error})") from None
    if len(content) != header.size:
        finding = f"truncated or too long: {len(content)} of {header.size} bytes of voxels"
        raise damaged(path, f"the compressed data is {finding}")
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
        raise damaged(path, f"truncated: {count} of {len(values)} numbers")
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
        what = f"not numbers of type {values.dtype}"
        raise damaged(path, f"the text of the voxels after number {count} contains words that are {what}") from None
    return count + len(used)
