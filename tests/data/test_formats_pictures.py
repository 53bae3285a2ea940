"""PNG and TIFF pictures as scans and label maps."""

import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import tifffile
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from PIL import Image

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.scans import grid_difference, read_geometry, read_label, read_scan, write_label
from scan_fakes import fuzz, refused
from user_errors import user_error

GREY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
RGB = np.arange(36, dtype=np.uint8).reshape(3, 4, 3) * 7


def png(path: Path, pixels: NDArray[Any], **options: Any) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def tiff(path: Path, pixels: NDArray[Any], **options: Any) -> Path:
    tifffile.imwrite(path, pixels, **options)
    return path


def by_hand(path: Path, header: bytes, rows: bytes) -> Path:
    """Write a PNG chunk by chunk, because Pillow cannot write this kind."""
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    path.write_bytes(content)
    return path


@fuzz
@given(labels=arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_a_label_map_as_a_picture_and_back(tmp_path: Path, labels: NDArray[np.uint8]) -> None:
    """The first axis is the columns of the picture, as in other programs."""
    where = Geometry(labels.shape, tuple(tuple(row) for row in np.eye(4).tolist()))
    write_label(tmp_path / "a.png", labels, where)
    np.testing.assert_array_equal(read_label(tmp_path / "a.png").array, labels)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.mode == "L"
        np.testing.assert_array_equal(np.array(picture), labels.T)
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(tmp_path / "a.png")), labels.T)


@pytest.mark.parametrize("labels", [np.zeros((4, 4, 4), np.uint8), np.full((4, 4), 256, np.uint16)])
def test_label_maps_that_are_not_pictures(tmp_path: Path, labels: NDArray[Any]) -> None:
    where = Geometry(labels.shape, tuple(tuple(row) for row in np.eye(4).tolist()))
    with pytest.raises(ValueError, match="are not an 8-bit picture"):
        write_label(tmp_path / "a.png", labels, where)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pixels", [GREY, GREY.astype(np.uint16) * 200, RGB])
def test_png(tmp_path: Path, pixels: NDArray[Any]) -> None:
    path = png(tmp_path / "a.png", pixels)
    scan = read_scan(path)
    # columns come first, as in other scans
    np.testing.assert_array_equal(scan.array, np.atleast_3d(pixels).transpose(2, 1, 0))
    assert scan.array.dtype == pixels.dtype
    assert (scan.geometry.shape, scan.geometry.spacing) == ((4, 3), (1.0, 1.0))
    assert read_geometry(path) == scan.geometry


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff(tmp_path: Path, dtype: str, colours: bool, compression: str | None) -> None:
    pixels = (RGB if colours else GREY).astype(dtype)
    kind = "rgb" if colours else "minisblack"
    path = tiff(tmp_path / "a.TIF", pixels, photometric=kind, compression=compression)
    scan = read_scan(path)
    np.testing.assert_array_equal(scan.array, np.atleast_3d(pixels).transpose(2, 1, 0))
    assert scan.array.dtype == dtype and read_geometry(path) == scan.geometry


def test_color_planes(tmp_path: Path) -> None:
    planes = np.ascontiguousarray(RGB.transpose(2, 0, 1))
    path = tiff(tmp_path / "a.tif", planes, photometric="rgb", planarconfig="separate")
    np.testing.assert_array_equal(read_scan(path).array, RGB.transpose(2, 1, 0))


def test_pixel_positions_equal_those_of_itk(tmp_path: Path) -> None:
    path = png(tmp_path / "a.png", GREY)
    image = SimpleITK.ReadImage(str(path))
    SimpleITK.WriteImage(image, str(tmp_path / "a.nii.gz"))
    other = read_scan(tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(read_scan(path).array, other.array)
    assert grid_difference(read_geometry(path), other.geometry) is None


def test_white_may_be_zero(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", GREY, photometric="miniswhite")
    np.testing.assert_array_equal(read_scan(path).array[0], 255 - GREY.T)
    np.testing.assert_array_equal(read_label(path).array, GREY.T)


def test_class_numbers_of_few_bits_and_of_palettes_are_kept(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 2], [3, 0, 1]], np.uint8)
    indexed = Image.new("P", (3, 2))
    indexed.putdata(labels.ravel().tolist())
    indexed.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    indexed.save(tmp_path / "a.png", bits=2)
    np.testing.assert_array_equal(read_label(tmp_path / "a.png").array, labels.T)
    refused(tmp_path / "a.png", Code.SCAN_UNSUPPORTED, "palette")
    Image.fromarray(labels[:, :2] % 2 == 1).save(tmp_path / "b.png")
    np.testing.assert_array_equal(read_label(tmp_path / "b.png").array, labels[:, :2].T % 2)


def test_a_label_map_with_equal_colors_has_one_class_number_per_pixel(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 2], [3, 0, 1]], np.uint8)
    path = png(tmp_path / "a.png", np.repeat(labels[..., None], 3, axis=2))
    np.testing.assert_array_equal(read_label(path).array, labels.T)
    with user_error(Code.LABEL_INVALID, path := png(tmp_path / "b.png", RGB), "colors"):
        read_label(path)


@pytest.mark.parametrize("bits", [2, 4])
def test_gray_values_of_few_bits(tmp_path: Path, bits: int) -> None:
    """The row contains every value. Pillow stretches values below 8 bits to 0 ... 255."""
    values = np.arange(2**bits, dtype=np.uint8)
    packed = np.packbits(np.unpackbits(values[:, None], axis=1)[:, -bits:].ravel()).tobytes()
    header = struct.pack(">IIBBBBB", 2**bits, 1, bits, 0, 0, 0, 0)
    by_hand(tmp_path / "a.png", header, b"\0" + packed)
    np.testing.assert_array_equal(read_label(tmp_path / "a.png").array[:, 0], values)


def test_an_alpha_channel_must_be_opaque(tmp_path: Path) -> None:
    opaque = np.concatenate([RGB, np.full((3, 4, 1), 255, np.uint8)], axis=2)
    np.testing.assert_array_equal(read_scan(png(tmp_path / "a.png", opaque)).array, RGB.transpose(2, 1, 0))
    opaque[1, 1, 3] = 7
    refused(png(tmp_path / "a.png", opaque), Code.SCAN_UNSUPPORTED, "transparent")


@pytest.mark.parametrize("black", [0, 9, 255])
def test_cmyk_is_refused(tmp_path: Path, black: int) -> None:
    """A fourth channel of 255 could be mistaken for an opaque alpha channel."""
    inks = np.concatenate([RGB, np.full((3, 4, 1), black, np.uint8)], axis=2)
    by_pillow = tmp_path / "b.tiff"
    Image.frombytes("CMYK", (4, 3), inks.tobytes()).save(by_pillow)
    for path in (tiff(tmp_path / "a.tif", inks, photometric="separated"), by_pillow):
        refused(path, Code.SCAN_UNSUPPORTED, "CMYK")
        with user_error(Code.SCAN_UNSUPPORTED, path, "CMYK"):
            read_label(path)


def test_lab_colors_are_refused(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", RGB, photometric="cielab")
    refused(path, Code.SCAN_UNSUPPORTED, "CIELab")


def grey_alpha(path: Path, grey: NDArray[Any], alpha: NDArray[Any]) -> Path:
    """Write a 16-bit gray-alpha PNG. Each row after the first is stored as the difference to the previous row."""
    rows = np.stack([grey, alpha], axis=-1).astype(">u2").reshape(len(grey), -1).view(np.uint8)
    told = np.concatenate([rows[:1], np.diff(rows, axis=0)])
    filters = np.array([[0], *[[2]] * (len(rows) - 1)], np.uint8)
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 16, 4, 0, 0, 0)
    return by_hand(path, header, np.concatenate([filters, told], axis=1).tobytes())


def test_16_bit_gray_with_alpha(tmp_path: Path) -> None:
    grey = np.array([[1, 300, 70], [65535, 2, 258]], np.uint16)
    alpha = np.full_like(grey, 65535)
    path = grey_alpha(tmp_path / "a.png", grey, alpha)
    for scan in (read_scan(path), read_label(grey_alpha(tmp_path / "b.png", grey % 256, alpha))):
        assert scan.geometry.shape == (3, 2)
    np.testing.assert_array_equal(read_scan(path).array[0], grey.T)
    np.testing.assert_array_equal(read_label(tmp_path / "b.png").array, grey.T % 256)
    assert read_scan(path).array.dtype == np.uint16
    alpha[1, 2] = 65534
    refused(grey_alpha(path, grey, alpha), Code.SCAN_UNSUPPORTED, "transparent")
    content = bytearray(path.read_bytes())
    for place in (30, 45):
        damaged = content.copy()
        damaged[place] ^= 255
        path.write_bytes(damaged)
        assert "object at" not in refused(path, Code.SCAN_DAMAGED, "damaged or truncated")


def test_unsupported_or_damaged_pictures_are_refused(tmp_path: Path) -> None:
    pages = tiff(tmp_path / "a.tif", np.zeros((5, 3, 4), np.uint8), photometric="minisblack")
    refused(pages, Code.SCAN_UNSUPPORTED, "several pages")
    five = tiff(tmp_path / "b.tif", np.zeros((6, 4, 5), np.uint8), photometric="minisblack", planarconfig="contig")
    refused(five, Code.SCAN_UNSUPPORTED, "5 channels")
    path = png(tmp_path / "a.png", GREY)
    path.write_bytes(path.read_bytes()[:-30])
    refused(path, Code.SCAN_DAMAGED, "damaged or truncated")
    path.write_bytes(b"nothing")
    refused(path, Code.NOT_A_SCAN, "not a PNG file")
    (tmp_path / "c.tif").write_bytes(b"nothing")
    refused(tmp_path / "c.tif", Code.NOT_A_SCAN, "not a TIFF file")
    path = tiff(tmp_path / "d.tif", np.zeros((64, 64), np.uint8))
    path.write_bytes(path.read_bytes()[:-500])
    refused(path, Code.SCAN_DAMAGED, "damaged or truncated")
    with user_error(Code.FILE_MISSING, keyword="does not exist"):
        read_geometry(tmp_path / "none.png")


def test_errors_do_not_contain_the_folder(tmp_path: Path) -> None:
    """Damage each byte separately. Undetected damage must not crash the reader."""
    findings = set()
    kinds = (
        png(tmp_path / "a.png", GREY),
        tiff(tmp_path / "a.tif", GREY, compression="zlib"),
        tiff(tmp_path / "b.tif", GREY),
    )
    for path in kinds:
        whole = path.read_bytes()
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 255
            path.write_bytes(damaged)
            for read in (read_scan, read_geometry):
                try:
                    read(path)
                except UserError as error:
                    findings.add(error.finding)
    assert len(findings) > 10
    assert not [finding for finding in findings if tmp_path.name in finding]


def test_a_too_large_size_in_the_header(tmp_path: Path) -> None:
    path = png(tmp_path / "a.png", GREY)
    content = path.read_bytes()
    path.write_bytes(content[:16] + b"\x7f\xff\xff\xff" * 2 + content[24:])
    refused(path, Code.SCAN_TOO_LARGE, "17179869184")


def test_a_tiff_cannot_contain_more_than_its_strips(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", GREY)
    whole = path.read_bytes()
    rows = whole.index(struct.pack("<HHI", 257, 4, 1)) + 8
    for count, finding in (
        (2**24, "asks for 67108864 bytes, but the file has at most"),
        (12, "1 of 4 strips"),
    ):
        path.write_bytes(whole[:rows] + struct.pack("<I", count) + whole[rows + 4 :])
        refused(path, Code.SCAN_DAMAGED, finding)


@pytest.mark.parametrize("options", [{"rowsperstrip": 1}, {"tile": (16, 16)}])
def test_strips_and_tiles(tmp_path: Path, options: dict[str, Any]) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (37, 21)).astype(np.uint16)
    np.testing.assert_array_equal(read_scan(tiff(tmp_path / "a.tif", pixels, **options)).array[0], pixels.T)


def test_1_bit_tiff(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (128, 200)) == 1
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    assert (tmp_path / "a.tif").stat().st_size < pixels.size / 4
    np.testing.assert_array_equal(read_label(tmp_path / "a.tif").array, pixels.T)


@pytest.mark.parametrize("orientation", range(9))
def test_turned_and_mirrored_tiff_is_refused(tmp_path: Path, orientation: int) -> None:
    path = tiff(tmp_path / "a.tif", GREY, extratags=[(274, "H", 1, orientation, True)])
    if orientation < 2:
        np.testing.assert_array_equal(read_scan(path).array[0], GREY.T)
    else:
        refused(path, Code.SCAN_UNSUPPORTED, f"Orientation {orientation}")
        refused(path, Code.SCAN_UNSUPPORTED, "upright")


def test_slices_without_pages_of_their_own_are_refused(tmp_path: Path) -> None:
    volume = np.zeros((16, 32, 3), np.uint8)
    refused(tiff(tmp_path / "a.tif", volume, truncate=True, photometric="minisblack"), Code.SCAN_UNSUPPORTED, "pages")
    refused(tiff(tmp_path / "a.tif", volume, volumetric=True, photometric="minisblack"), Code.SCAN_UNSUPPORTED, "pages")
    # ImageJ writes a single page for stacks above 4 GiB
    imagej = {"metadata": None, "description": "ImageJ=1.54f\nimages=12\nslices=12\n"}
    refused(tiff(tmp_path / "a.tif", GREY, **imagej), Code.SCAN_UNSUPPORTED, "pages")
    tiff(tmp_path / "a.tif", GREY, imagej=True)
    np.testing.assert_array_equal(read_scan(tmp_path / "a.tif").array[0], GREY.T)


def test_16_bit_png_colors_are_refused(tmp_path: Path) -> None:
    image = SimpleITK.GetImageFromArray(RGB.astype(np.uint16) * 300, isVector=True)
    SimpleITK.WriteImage(image, str(tmp_path / "a.png"))
    refused(tmp_path / "a.png", Code.SCAN_UNSUPPORTED, "16-bit colors")


@pytest.mark.parametrize(
    ("suffix", "module", "package"), [("png", "PIL.Image", "pillow"), ("tif", "tifffile", "tifffile")]
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str, package: str
) -> None:
    path = png(tmp_path / f"a.{suffix}", GREY)
    monkeypatch.setitem(sys.modules, module, None)
    with user_error(Code.PACKAGE_MISSING, keyword=f"pip install {package}"):
        read_scan(path)


@pytest.mark.parametrize(("kind", "name"), [(50000, "ZSTD"), (5, "LZW")])
def test_a_missing_decoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, name: str) -> None:
    """Not every Python version can decode these kinds of compression."""
    path = tiff(tmp_path / "a.tif", GREY)
    content = path.read_bytes()
    plain = struct.pack("<HHIH", 259, 3, 1, 1)
    assert content.count(plain) == 1
    path.write_bytes(content.replace(plain, struct.pack("<HHIH", 259, 3, 1, kind)))
    for module in ("imagecodecs", "compression", "backports.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "pip install imagecodecs" in refused(path, Code.PACKAGE_MISSING, name)


def test_an_animated_png(tmp_path: Path) -> None:
    path = png(tmp_path / "a.png", GREY, save_all=True, append_images=[Image.fromarray(GREY // 2)])
    refused(path, Code.SCAN_UNSUPPORTED, "2 pictures")
    path = png(tmp_path / "b.png", GREY, save_all=True)
    np.testing.assert_array_equal(read_scan(path).array[0], GREY.T)
