"""JPEG and BMP pictures as scans, and BMP pictures as label maps."""

import struct
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile

from graftseg.core.errors import Code, UserError
from graftseg.data.formats import scan
from graftseg.data.scans import read_geometry, read_label, read_scan
from scan_fakes import fuzz, refused
from user_errors import user_error

NOISE = np.random.default_rng(0).integers(0, 256, (29, 37, 3)).astype(np.uint8)
LABELS = np.array([[0, 1, 2], [3, 0, 1]], np.uint8)
FRAME, SCAN, END = b"\xff\xc0\0\x0b", b"\xff\xda", b"\xff\xd9"  # FRAME is the start of the header of a gray picture
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 2},
    "progressive with restarts": {"progressive": True, "restart_marker_blocks": 1},
    "all colors": {"subsampling": 0, "quality": 100},
    "stored as RGB": {"keep_rgb": True},
}


def jpeg(pixels: NDArray[np.uint8] = NOISE, **options: Any) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def with_pillow(content: bytes) -> NDArray[Any]:
    """Return ``(channels, columns, rows)``."""
    return np.atleast_3d(np.array(Image.open(BytesIO(content)))).transpose(2, 1, 0)


def is_refused(path: Path) -> bool:
    try:
        read_scan(path)
    except UserError as error:
        return error.code in (Code.SCAN_DAMAGED, Code.NOT_A_SCAN)
    return False


def bmp(
    rows: list[bytes],
    width: int,
    bits: int,
    *,
    palette: bytes = b"",
    compression: int = 0,
    height: int | None = None,
    masks: bytes = b"",
    colors: int = 0,
) -> bytes:
    """Return a BMP file with rows as they are stored."""
    info = struct.pack(
        "<IiiHHIIiiII", 40 + len(masks), width, height or len(rows), 1, bits, compression, 0, 0, 0, colors, 0
    )
    offset = 14 + len(info) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, offset) + info + masks + palette + b"".join(rows)


def grays(*values: int) -> bytes:
    return b"".join(bytes((value, value, value, 0)) for value in values)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_jpeg_equals_pillow(tmp_path: Path, options: dict[str, Any]) -> None:
    for name, pixels in (("a.jpg", NOISE), ("b.JPEG", NOISE[..., 0])):
        if pixels.ndim == 2 and "keep_rgb" in options:
            continue
        path = put(tmp_path / name, content := jpeg(pixels, **options))
        found = read_scan(path)
        np.testing.assert_array_equal(found.array, with_pillow(content))
        assert (found.array.dtype.name, len(found.array)) == ("uint8", np.atleast_3d(pixels).shape[2])
        assert (found.geometry.shape, found.geometry.spacing) == ((37, 29), (1.0, 1.0))
        assert read_geometry(path) == found.geometry


@fuzz
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 100),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_jpeg_equals_pillow(
    tmp_path: Path, shape: tuple[int, int], seed: int, quality: int, subsampling: int, progressive: bool, restart: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*shape, 3)).astype(np.uint8)
    options = {"restart_marker_blocks": restart} if restart else {}
    content = jpeg(pixels, quality=quality, subsampling=subsampling, progressive=progressive, **options)
    np.testing.assert_array_equal(read_scan(put(tmp_path / "a.jpg", content)).array, with_pillow(content))


def test_gray_values_of_jpeg_are_exact(tmp_path: Path) -> None:
    """Blocks of one gray value are not changed by compression with quality 100."""
    pixels = np.repeat(np.repeat(np.array([[0, 100], [200, 255]], np.uint8), 8, 0), 8, 1)
    assert np.array_equal(read_scan(put(tmp_path / "a.jpg", jpeg(pixels, quality=100))).array, pixels.T[None])


def test_three_equal_colors_are_one_channel(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jpg", jpeg(np.repeat(NOISE[..., :1], 3, 2)))
    assert (len(read_scan(path).array), len(read_scan(path, 1).array)) == (3, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_jpeg_truncated_anywhere(tmp_path: Path, kind: str) -> None:
    content = jpeg(NOISE[:9, :17], **KINDS[kind])
    for count in (*range(1, len(content), 5), *range(len(content) - 30, len(content))):
        assert is_refused(put(tmp_path / "a.jpg", content[:count])), count


@fuzz
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 60), st.integers(1, 60), st.floats(0, 1, exclude_max=True))
def test_any_truncated_picture(tmp_path: Path, kind: str, rows: int, columns: int, part: float) -> None:
    pixels = np.resize(NOISE, (rows, columns, 3))
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "BMP")
    for name, content in (("a.jpg", jpeg(pixels, **KINDS[kind])), ("a.bmp", stream.getvalue())):
        assert is_refused(put(tmp_path / name, content[: int(part * len(content))]))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_pixels_of_jpeg_are_never_gray(tmp_path: Path, kind: str) -> None:
    """The end mark alone does not show that the pixels are complete. Pillow reads most of these files without error."""
    content = jpeg(**KINDS[kind])
    begin = content.index(SCAN) + 14
    readable = 0
    for count in range(begin, len(content) - 8, 17):
        damaged = content[:count] + END
        assert is_refused(put(tmp_path / "a.jpg", damaged)), count
        try:
            readable += with_pillow(damaged).size > 0
        except OSError:
            continue
    assert readable > 20


def test_missing_scans_and_restarts_of_jpeg(tmp_path: Path) -> None:
    content = jpeg(progressive=True)
    without_last = content[: content.rindex(SCAN)] + END
    assert with_pillow(without_last).size
    refused(put(tmp_path / "a.jpg", without_last), Code.SCAN_DAMAGED, "parts are missing")
    content = jpeg(restart_marker_blocks=1)
    first, second, last = content.index(b"\xff\xd0"), content.index(b"\xff\xd1"), content.rindex(b"\xff\xd0")
    for damaged in (content[:first] + content[second:], content[:last] + END):
        assert with_pillow(damaged).size
        refused(put(tmp_path / "a.jpg", damaged), Code.SCAN_DAMAGED, "pixels are missing")


def test_settings_of_pillow_do_not_allow_damaged_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = jpeg()
    refused(put(tmp_path / "a.jpg", content[:-200]), Code.SCAN_DAMAGED, "the end is missing")
    # the number of a Huffman table that the file does not have
    tables = content.index(SCAN) + 6
    refused(put(tmp_path / "a.jpg", content[:tables] + b"\x33" + content[tables + 1 :]), Code.SCAN_DAMAGED)


def test_texts_profiles_and_trailing_bytes_are_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274], exif[271] = 1, "maker"
    content = jpeg(exif=exif, icc_profile=b"profile" * 20_000, comment=b"text")
    path = put(tmp_path / "a.jpg", content[:2] + segment(0xE1, b"Exif\0\0damaged") + content[2:] + b"trailer\0\0")
    np.testing.assert_array_equal(read_scan(path).array, with_pillow(content))


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    return jpeg(exif=exif)


def several() -> bytes:
    stream, picture = BytesIO(), Image.fromarray(NOISE)
    picture.save(stream, "MPO", save_all=True, append_images=[picture])
    return stream.getvalue()


def cmyk() -> bytes:
    stream = BytesIO()
    Image.fromarray(NOISE).convert("CMYK").save(stream, "JPEG")
    return stream.getvalue()


def gray(marker: int = 0xC0, bits: int = 8, channels: int = 1, sides: tuple[int, int] = (29, 37)) -> bytes:
    """Return a gray picture with a changed header."""
    content = jpeg(NOISE[..., 0])
    place = content.index(FRAME)
    frame = bytes((0xFF, marker)) + b"\0\x0b" + struct.pack(">BHHB", bits, *sides, channels)
    return content[:place] + frame + content[place + len(frame) :]


@pytest.mark.parametrize(
    ("content", "code", "keyword"),
    [
        (turned(6), Code.SCAN_UNSUPPORTED, "the pixels are stored turned or mirrored (Orientation 6)"),
        (turned(2), Code.SCAN_UNSUPPORTED, "Orientation 2"),
        (several(), Code.SCAN_UNSUPPORTED, "several pictures"),
        (jpeg() + jpeg(), Code.SCAN_UNSUPPORTED, "several pictures"),
        (cmyk(), Code.SCAN_UNSUPPORTED, "CMYK or YCCK"),
        (gray(0xC3), Code.SCAN_UNSUPPORTED, "lossless"),
        (gray(0xF7), Code.SCAN_UNSUPPORTED, "lossless"),
        (gray(0xC9), Code.SCAN_UNSUPPORTED, "arithmetic"),
        (gray(0xC5), Code.SCAN_UNSUPPORTED, "hierarchical"),
        (gray(0xC1, bits=12), Code.SCAN_UNSUPPORTED, "12 bits"),
        (gray(channels=2), Code.SCAN_UNSUPPORTED, "2 channels"),
        (gray(sides=(0, 37)), Code.SCAN_DAMAGED, "header is invalid"),
        (gray(sides=(65000, 65000)), Code.SCAN_TOO_LARGE, "4225000000 bytes"),
        (gray(sides=(290, 37)), Code.SCAN_DAMAGED, "pixels are missing"),
        (b"\xff\xd8" + END, Code.SCAN_DAMAGED, "missing"),
        (b"\xff\xd8" + segment(0xC0, b"\x08") + END, Code.SCAN_DAMAGED, "header is invalid"),
        (jpeg()[:2] + segment(0xFE, b"text") + b"text" + jpeg()[2:], Code.SCAN_DAMAGED, "invalid content at byte 10"),
        (b"\x89PNG\r\n\x1a\n", Code.NOT_A_SCAN, "not a JPEG file"),
        (b"", Code.SCAN_DAMAGED, "empty"),
    ],
)
def test_refused_jpeg(tmp_path: Path, content: bytes, code: Code, keyword: str) -> None:
    path = put(tmp_path / "a.jpg", content)
    refused(path, code, keyword)
    if keyword not in ("several pictures", "pixels are missing"):  # all others are found in the header
        with user_error(code, path, keyword):
            read_geometry(path)


def test_many_scans_are_refused(tmp_path: Path) -> None:
    content = jpeg(progressive=True)
    last = content[content.rindex(SCAN) : -2]
    refused(put(tmp_path / "a.jpg", content[:-2] + 100 * last + END), Code.SCAN_UNSUPPORTED, "110 scans")


def test_the_limit_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BytesIO()
    Image.fromarray(NOISE).save(stream, "BMP")
    paths = put(tmp_path / "a.jpg", jpeg()), put(tmp_path / "a.bmp", stream.getvalue())
    monkeypatch.setattr(scan, "MAX_BYTES", NOISE.size - 1)
    for path in paths:
        refused(path, Code.SCAN_TOO_LARGE, f"asks for {NOISE.size} bytes")
        with user_error(Code.SCAN_TOO_LARGE, path):
            read_geometry(path)


def test_label_maps_in_jpeg_are_refused(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.jpeg"):
        with user_error(Code.SCAN_UNSUPPORTED, tmp_path / name, "a label map in JPEG") as caught:
            read_label(put(tmp_path / name, jpeg(LABELS)))
        assert "save label maps as PNG" in caught.value.remedy


def test_only_jpeg_needs_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = put(tmp_path / "a.jpg", jpeg()), put(tmp_path / "a.bmp", bmp([b"\1\2\3\0"], 1, 24))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with user_error(Code.PACKAGE_MISSING, keyword="pip install pillow"):
        read_scan(paths[0])
    assert read_scan(paths[1]).array.tolist() == [[[3]], [[2]], [[1]]]


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_bmp_equals_pillow(tmp_path: Path, mode: str) -> None:
    for height, width in ((29, 37), (1, 1), (3, 8), (2, 5)):
        picture = Image.fromarray(NOISE[:height, :width]).convert(mode)
        picture.save(path := tmp_path / "a.bmp")
        expected = with_pillow(path.read_bytes())
        np.testing.assert_array_equal(read_scan(path).array, expected * np.uint8(255) if mode == "1" else expected)
        assert read_geometry(path) == read_scan(path).geometry and read_geometry(path).shape == (width, height)
        if mode != "RGB":
            np.testing.assert_array_equal(read_label(path).array, expected[0])


def test_bmp_by_hand(tmp_path: Path) -> None:
    """Rows are stored from the bottom, unless the height is negative; colors are blue, green, red."""
    path = tmp_path / "a.bmp"
    rows = [bytes((1, 2, 3, 4, 5, 6, 0, 0)), bytes((7, 8, 9, 10, 11, 12, 0, 0))]
    expected = np.array([[[9, 8, 7], [12, 11, 10]], [[3, 2, 1], [6, 5, 4]]]).transpose(2, 1, 0)
    assert np.array_equal(read_scan(put(path, bmp(rows, 2, 24))).array, expected)
    assert np.array_equal(read_scan(put(path, bmp(rows, 2, 24, height=-2))).array, expected[:, :, ::-1])
    assert np.array_equal(with_pillow(path.read_bytes()), expected[:, :, ::-1])
    # the fourth byte of 32 bits is not used, or is alpha with masks
    rows = [bytes((1, 2, 3, 99, 4, 5, 6, 99))]
    expected = np.array([[[3, 2, 1], [6, 5, 4]]]).transpose(2, 1, 0)
    assert np.array_equal(read_scan(put(path, bmp(rows, 2, 32))).array, expected)
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    opaque = [rows[0].replace(b"\x63", b"\xff")]
    found = read_scan(put(path, bmp(opaque, 2, 32, compression=3, masks=masks))).array
    assert np.array_equal(found, expected) and np.array_equal(with_pillow(path.read_bytes())[:3], expected)
    refused(put(path, bmp(rows, 2, 32, compression=3, masks=masks)), Code.SCAN_UNSUPPORTED, "transparent")
    # the oldest kind, with three bytes per color
    old = b"BM" + struct.pack("<IHHIIHHHH", 0, 0, 0, 32, 12, 2, 1, 1, 1) + bytes((5, 5, 5, 9, 9, 9)) + b"\x40\0\0\0"
    assert read_scan(put(path, old)).array.tolist() == [[[5], [9]]]


def test_palettes_of_bmp(tmp_path: Path) -> None:
    """Scans have the gray values of the palette, label maps its indices."""
    path = put(tmp_path / "a.bmp", bmp([b"\1\0\2\0"], 3, 8, palette=grays(10, 20, 30), colors=3))
    assert read_scan(path).array.tolist() == [[[20], [10], [30]]]
    assert read_label(path).array.tolist() == [[1], [0], [2]]
    path = put(tmp_path / "b.bmp", bmp([b"\x31\x20\0\0"], 3, 4, palette=grays(0, 17, 34, 51) + bytes(48)))
    assert read_scan(path).array.tolist() == [[[51], [17], [34]]]
    assert read_label(path).array.tolist() == [[3], [1], [2]]
    colored = bytes((0, 0, 0, 0, 0, 0, 255, 0))
    path = put(tmp_path / "c.bmp", bmp([b"\1\0\0\0"], 2, 8, palette=colored, colors=2))
    assert read_label(path).array.tolist() == [[1], [0]]
    refused(path, Code.SCAN_UNSUPPORTED, "palette colors")
    # only colors that are used must be gray
    path = put(tmp_path / "d.bmp", bmp([b"\0\0\0\0"], 2, 8, palette=colored, colors=2))
    assert read_scan(path).array.tolist() == [[[0], [0]]]
    with Image.fromarray(LABELS).convert("P") as picture:
        picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
        picture.save(tmp_path / "e.bmp")
    np.testing.assert_array_equal(read_label(tmp_path / "e.bmp").array, LABELS.T)
    Image.fromarray(np.dstack([LABELS, LABELS + 1, LABELS])).save(tmp_path / "f.bmp")
    with user_error(Code.LABEL_INVALID, tmp_path / "f.bmp", "colors"):
        read_label(tmp_path / "f.bmp")


@pytest.mark.parametrize(
    ("content", "code", "keyword"),
    [
        (bmp([bytes(4)], 2, 8, compression=1), Code.SCAN_UNSUPPORTED, "8 bits per pixel and compression 1"),
        (bmp([bytes(4)], 2, 16), Code.SCAN_UNSUPPORTED, "16 bits per pixel"),
        (bmp([bytes(8)], 2, 32, compression=3, masks=bytes(16)), Code.SCAN_UNSUPPORTED, "compression 3"),
        (bmp([bytes(8)], 0, 24), Code.SCAN_DAMAGED, "header is invalid"),
        (bmp([bytes(8)], -2, 24), Code.SCAN_DAMAGED, "header is invalid"),
        (bmp([bytes(8)], 2, 24, height=2), Code.SCAN_DAMAGED, "asks for 16 bytes, but the file has at most 8"),
        (bmp([bytes(8)], 2, 24, height=-(2**31)), Code.SCAN_DAMAGED, "truncated"),
        (bmp([bytes(8)], 2**31 - 1, 24, height=2**31 - 1), Code.SCAN_TOO_LARGE, "limit"),
        (
            bmp([b"\0\3\0\0"], 2, 8, palette=grays(0, 1, 2), colors=3),
            Code.SCAN_DAMAGED,
            "color 3 is not in the palette",
        ),
        (bmp([bytes(4)], 2, 8)[:30], Code.SCAN_DAMAGED, "header is incomplete"),
        (jpeg(), Code.NOT_A_SCAN, "not a BMP file"),
    ],
)
def test_refused_bmp(tmp_path: Path, content: bytes, code: Code, keyword: str) -> None:
    refused(put(tmp_path / "a.bmp", content), code, keyword)
