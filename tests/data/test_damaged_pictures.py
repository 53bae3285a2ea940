"""Damaged and hostile PNG and TIFF pictures."""

import itertools
import struct
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin
from test_formats_pictures import tiff

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.png_chunks import Header
from graftseg.data.scans import read_geometry, read_label, read_scan
from scan_fakes import refused

LABELS = np.arange(30, dtype=np.uint8).reshape(5, 6) % 4
SIGNATURE = b"\x89PNG\r\n\x1a\n"
ZEROS = 16 * 2**20  # bytes that a small compressed stream expands to


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def header(width: int, height: int, bits: int = 8, color_type: int = 0, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlace))


def png(path: Path, *chunks: bytes) -> Path:
    path.write_bytes(SIGNATURE + b"".join(chunks))
    return path


def packbits_tiff(path: Path, pixels: NDArray[np.uint8], packed: Iterable[int]) -> Path:
    """Write one strip. The byte count of an uncompressed file is replaced by that of the packed bytes."""
    tiff(path, np.zeros_like(pixels), rowsperstrip=len(pixels))
    content, strip = path.read_bytes(), bytes(packed)
    with tifffile.TiffFile(path) as file:
        (offset,), (count,) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    for tag, kind, before, after in ((259, "H", 1, 32773), (279, "I", count, len(strip))):
        number = {"H": 3, "I": 4}[kind]
        old = struct.pack(f"<HHI{kind}", tag, number, 1, before)
        assert content.count(old) == 1
        content = content.replace(old, struct.pack(f"<HHI{kind}", tag, number, 1, after))
    path.write_bytes(content[:offset] + strip + bytes(64))
    return path


def undetected_flips(path: Path) -> int:
    """Flip each bit of a file. Count the files that are read with other pixels."""
    whole, before, count = path.read_bytes(), read_label(path).array, 0
    for place, bit in itertools.product(range(len(whole)), range(8)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            count += not np.array_equal(read_label(path).array, before)
        except UserError:
            continue
    return count


@pytest.mark.parametrize("mode", ["L", "P"])
def test_every_changed_bit_of_a_png_is_detected(tmp_path: Path, mode: str) -> None:
    picture = Image.fromarray(LABELS)
    if mode == "P":
        picture = picture.convert("P")
        picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    picture.save(tmp_path / "a.png")
    assert undetected_flips(tmp_path / "a.png") == 0


def test_rows_and_end_of_a_png_must_be_complete(tmp_path: Path) -> None:
    rows = b"".join(b"\0" + row.tobytes() for row in LABELS)
    end, path = chunk(b"IEND", b""), tmp_path / "a.png"
    halves = chunk(b"IDAT", zlib.compress(rows)[:9]), chunk(b"IDAT", zlib.compress(rows)[9:])
    np.testing.assert_array_equal(read_scan(png(path, header(6, 5), *halves, end)).array[0], LABELS.T)
    refused(png(path, header(6, 5), *halves), Code.SCAN_DAMAGED, "the end is missing")
    refused(png(path, header(6, 5), halves[0], end), Code.SCAN_DAMAGED, "of 35 bytes")
    refused(png(path, header(6, 5), end), Code.SCAN_DAMAGED, "0 of 35 bytes")
    for part, keyword in ((rows[:14], "14 of 35 bytes"), (rows + b"\0", "more than 35 of 35 bytes")):
        refused(png(path, header(6, 5), chunk(b"IDAT", zlib.compress(part)), end), Code.SCAN_DAMAGED, keyword)
    stored = bytearray(zlib.compress(rows, 0))
    stored[-1] ^= 1
    refused(png(path, header(6, 5), chunk(b"IDAT", bytes(stored)), end), Code.SCAN_DAMAGED, "incorrect data check")
    refused(png(path, header(6, 5, 8, 3), *halves, end), Code.SCAN_UNSUPPORTED, "palette")
    with pytest.raises(UserError, match="palette is missing"):
        read_label(path)


@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([(1, 0), (4, 3), (8, 0), (8, 2), (16, 4)]), st.booleans()
)
def test_size_of_the_rows(width: int, height: int, kind: tuple[int, int], is_interlaced: bool) -> None:
    """The count for interlaced pictures equals that of the pixels of each pass of the standard."""
    bits, color_type = kind
    channels = {0: 1, 2: 3, 3: 1, 4: 2}[color_type]
    grid = np.zeros((8, 8), int)
    for number, (top, left, down, across) in enumerate(
        [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    ):
        grid[top::down, left::across] = number
    passes = np.tile(grid if is_interlaced else grid * 0, (5, 5))[:height, :width]
    counts = [np.count_nonzero(row == number) for number in range(7) for row in passes]
    expected = sum(1 + -(-count * bits * channels // 8) for count in counts if count)
    assert Header(width, height, bits, color_type, is_interlaced).stream_bytes == expected


def test_an_interlaced_png(tmp_path: Path) -> None:
    """One pixel is in the first pass alone. A row of two pixels has the second pixel in the sixth pass."""
    path = png(
        tmp_path / "a.png", header(2, 1, interlace=1), chunk(b"IDAT", zlib.compress(b"\0\7\0\x09")), chunk(b"IEND", b"")
    )
    assert read_scan(path).array.tolist() == [[[7], [9]]]


def test_texts_and_profiles_of_a_png_are_ignored(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(ZEROS))
    info = PngImagePlugin.PngInfo()
    info.add(b"iCCP", b"a\0\0" + bomb)
    info.add(b"zTXt", b"a\0\0" + bomb)
    info.add(b"tEXt", b"no separator")
    Image.fromarray(LABELS).save(tmp_path / "a.png", pnginfo=info)
    tracemalloc.start()
    np.testing.assert_array_equal(read_scan(tmp_path / "a.png").array[0], LABELS.T)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ZEROS // 4


@pytest.mark.parametrize("kind", ["png", "zlib", "lzma", "tile"])
def test_more_pixels_than_the_header_says_are_not_inflated(tmp_path: Path, kind: str) -> None:
    if kind == "png":
        rows = chunk(b"IDAT", zlib.compress(bytes(4 * ZEROS)))
        path = png(tmp_path / "a.png", header(10, 10), rows, chunk(b"IEND", b""))
    else:
        pixels, path = np.zeros((4096, 4096), np.uint8), tmp_path / "a.tif"
        layout: dict[str, Any] = {"tile": (4096, 4096)} if kind == "tile" else {"rowsperstrip": 4096}
        tiff(path, pixels, compression="lzma" if kind == "lzma" else "zlib", **layout)
        content = path.read_bytes()
        for tag in (256, 257, *(() if kind == "tile" else (278,))):
            for number in (3, 4):
                old = struct.pack("<HHII", tag, number, 1, 4096)
                content = content.replace(old, struct.pack("<HHII", tag, number, 1, 10))
        path.write_bytes(content)
        assert read_geometry(path).shape == (10, 10)
    tracemalloc.start()
    refused(path, Code.SCAN_DAMAGED)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 4 * 2**20


@pytest.mark.parametrize("compression", [None, "zlib", "lzma"])
@pytest.mark.parametrize("options", [{"rowsperstrip": 2}, {"tile": (16, 16)}])
@pytest.mark.parametrize("predictor", [False, True])
def test_kinds_of_tiff(tmp_path: Path, compression: str | None, options: dict[str, Any], predictor: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (21, 37, 3)).astype(">u2")
    predictor = predictor and compression is not None
    path = tiff(tmp_path / "a.tif", pixels, photometric="rgb", compression=compression, predictor=predictor, **options)
    np.testing.assert_array_equal(read_scan(path).array, pixels.transpose(2, 1, 0))


def test_packbits(tmp_path: Path) -> None:
    pixels = np.array([[7, 7, 7, 7], [1, 2, 3, 3]], np.uint8)
    packed = [0x80, 0xFD, 7, 1, 1, 2, 0xFF, 3]
    path = packbits_tiff(tmp_path / "a.tif", pixels, packed)
    np.testing.assert_array_equal(read_scan(path).array[0], pixels.T)
    for wrong in (packed[:-1], packed[:-2], [*packed, 0xFF, 3], [0x90, 7]):
        refused(packbits_tiff(path, pixels, wrong), Code.SCAN_DAMAGED)


def test_changed_bits_of_a_compressed_tiff_are_detected_in_the_pixels(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", LABELS, compression="zlib")
    with tifffile.TiffFile(path) as file:
        (offset,), (count,) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    whole = path.read_bytes()
    for place, bit in itertools.product(range(offset, offset + count), range(8)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        refused(path, Code.SCAN_DAMAGED)


def test_bits_may_be_reversed(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (8, 16)) == 1
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    content = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        (offset,), (count,) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    strip = np.frombuffer(bytes(content[offset : offset + count]), np.uint8)
    content[offset : offset + count] = np.packbits(np.unpackbits(strip, bitorder="little")).tobytes()
    # replace the tag 262, which is not needed for label maps, by the order of bits
    old = struct.pack("<HHI", 262, 3, 1)
    place = content.index(old)
    content[place : place + 12] = struct.pack("<HHIHH", 266, 3, 1, 2, 0)
    (tmp_path / "a.tif").write_bytes(content)
    np.testing.assert_array_equal(read_label(tmp_path / "a.tif").array, pixels.T)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bigtiff", [False, True])
def test_tags_cannot_contain_more_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, bigtiff: bool
) -> None:
    """Many tags may point to the same values."""
    entry, tags = ("HHQQ", 300) if bigtiff else ("HHII", 300)
    values = struct.pack(f"{order}100I", *range(100))
    start = struct.pack(f"{order}2sHHHQ", b"II" if order == "<" else b"MM", 43, 8, 0, 16) if bigtiff else b""
    start = start or struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8)
    count = struct.pack(f"{order}{'Q' if bigtiff else 'H'}", tags)
    entries = struct.pack(f"{order}{entry}", 273, 4, 100, 8) * tags
    (tmp_path / "a.tif").write_bytes(start + count + entries + values)
    # the package that would read the tags is not reached
    monkeypatch.setattr(tifffile, "TiffFile", None)
    refused(tmp_path / "a.tif", Code.NOT_A_SCAN, "120000 bytes of tags")
