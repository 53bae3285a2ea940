"""Files that ask for much memory or time: the streams expand as they claim, and a few files are read."""

import bz2
import zlib
from pathlib import Path

from bomb_streams import MIB, bzip2_stream, gzip_stream, zlib_stream
from bombs import READERS, bombs


def test_streams_expand() -> None:
    assert zlib.decompress(zlib_stream(32)) == bytes(32 * MIB)
    assert zlib.decompressobj(-15).decompress(gzip_stream(16, b"head")[10:]) == b"head" + bytes(16 * MIB)
    assert len(bz2.decompress(bzip2_stream(32))) == 32 * MIB
    assert len(zlib_stream(3072)) < 4 * MIB


def test_there_are_enough_bombs() -> None:
    assert sum(len(made) for made, _ in READERS) >= 60


def test_bombs(tmp_path: Path) -> None:
    part = bombs(tmp_path, seed=0, count=5)
    assert (part.tried, part.failures) == (5, [])
