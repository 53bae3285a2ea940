"""PNG, TIFF, JPEG and BMP pictures: 2-D scans with one gray channel or three color channels, without a position.

A picture with three equal colors has one channel if the caller asks for one channel, or for a label map.
As in ITK, the spacing is 1 mm. Columns are numbered toward the patient's left, and rows toward the patient's back.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.packages import import_optional
from graftseg.core.progress import in_parallel
from graftseg.core.types import Case, Geometry
from graftseg.data.formats import bmp, jpeg, scan, tiff_segments
from graftseg.data.formats.decoder import DecodingError, decode
from graftseg.data.formats.png_chunks import Chunks, Header, damaged_picture, read_chunks, read_header

SUFFIXES: tuple[str, ...] = (".png", ".tif", ".tiff", *jpeg.SUFFIXES, *bmp.SUFFIXES)
_READ_SIZE = {**dict.fromkeys(jpeg.SUFFIXES, jpeg.read_size), **dict.fromkeys(bmp.SUFFIXES, bmp.read_size)}
_COLOR_BIT, _PALETTE = 2, 3  # the bit for color in a PNG color type, and the color type of a palette
_GRAY_ALPHA, _RGB_ALPHA = 4, 6  # PNG color types
_UNSUPPORTED_SPACES = {5: "CMYK", 8: "CIELab", 9: "ICCLab", 10: "ITULab"}  # by photometric interpretation
_ORIENTATION = 274  # number of a TIFF tag
_TIFF_MAX_EXPANSION = (8, 50_000)  # maximum decoded bytes per file byte: 8 if uncompressed (1-bit pixels), else 50,000
_ONE_EACH = "save one picture per file, or save a volume as NIfTI or NRRD, which store the slice spacing"


def picture_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header. ``channel_count`` is not used."""
    scan.refuse_absent(path)
    if path.suffix.lower() == ".png":
        header = read_header(path)
        return _geometry(header.width, header.height)
    if (read_size := _READ_SIZE.get(path.suffix.lower())) is not None:
        return _geometry(*read_size(path)[:2])
    with _tiff_page(path) as page:
        return _geometry(page.imagewidth, page.imagelength)


def read_picture(path: Path, channel_count: int | None = None, *, is_label: bool = False) -> scan.Scan:
    """Read ``(C, columns, rows)``. Only a label map may have a palette, whose indices are the class numbers.

    Three equal colors become one channel if the picture is a label map or ``channel_count`` is 1.
    """
    scan.refuse_absent(path)
    pixels = _reader(path)(path, is_label)
    channels = _without_alpha(path, pixels if pixels.ndim == 3 else pixels[..., None])
    if channels.dtype.kind not in "iuf" or channels.dtype.itemsize > 8:
        raise scan.unsupported(
            path, f"unsupported pixel type {channels.dtype}", "save 8-bit or 16-bit gray or RGB pixels"
        )
    height, width, _ = channels.shape
    if (channel_count == 1 or is_label) and (channels[..., 1:] == channels[..., :1]).all():
        channels = channels[..., :1]
    return scan.Scan(channels.transpose(2, 1, 0), _geometry(width, height))


def write_label_picture(path: Path, labels: NDArray[np.uint8]) -> None:
    """Write a label map ``(columns, rows)`` as a gray PNG, with class numbers as gray values."""
    image = import_optional("PIL.Image", "PNG files", package="pillow")
    with atomic_path(path) as partial:
        image.fromarray(np.ascontiguousarray(labels.T)).save(partial, format="PNG")


def _reader(path: Path) -> Callable[[Path, bool], NDArray[Any]]:
    suffix = path.suffix.lower()
    if suffix in (*jpeg.SUFFIXES, *bmp.SUFFIXES):
        return jpeg.read_pixels if suffix in jpeg.SUFFIXES else bmp.read_pixels
    return _read_png if suffix == ".png" else _read_tiff


def _geometry(width: int, height: int) -> Geometry:
    return scan.lps_geometry((width, height), np.eye(2), np.ones(2), np.zeros(2))


def _without_alpha(path: Path, pixels: NDArray[Any]) -> NDArray[Any]:
    """Drop the alpha channel of ``(rows, columns, channels)``, which must be opaque everywhere."""
    channels = pixels.shape[2]
    if channels in (2, 4):
        alpha = pixels[..., -1]
        if (alpha != (np.iinfo(alpha.dtype).max if alpha.dtype.kind == "u" else 1)).any():
            raise scan.unsupported(path, "parts of the picture are transparent", "save it without an alpha channel")
        return pixels[..., :-1]
    if channels not in (1, 3):
        raise scan.unsupported(path, f"a picture with {channels} channels", "save gray or RGB, or one file per channel")
    return pixels


def _read_png(path: Path, is_label: bool) -> NDArray[Any]:
    header = read_header(path)
    bits, color_type = header.bits, header.color_type
    if color_type == _PALETTE and not is_label:
        raise scan.unsupported(path, "the picture has palette colors", "save it as gray or RGB")
    if bits == 16 and color_type & _COLOR_BIT:
        raise scan.unsupported(path, "16-bit colors cannot be read from PNG", "save it as TIFF or with 8 bits")
    chunks = read_chunks(path)
    if chunks.frames > 1:
        raise scan.unsupported(path, f"an animated PNG file with {chunks.frames} pictures", _ONE_EACH)
    # Pillow would drop the lower byte of 16-bit gray with alpha, so decode it as 8-bit RGBA, also four bytes per pixel
    is_gray_alpha_16 = (bits, color_type) == (16, _GRAY_ALPHA)
    pixels = _decode_png(path, chunks, replace(header, bits=8, color_type=_RGB_ALPHA) if is_gray_alpha_16 else header)
    if is_gray_alpha_16:
        return pixels.view(">u2").astype(np.uint16)
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8)
    if color_type == 0 and bits < 8:
        # Pillow stretches gray values below 8 bits to 0 ... 255, but they may be class numbers
        return np.asarray(pixels // (255 // (2**bits - 1)), np.uint8)
    return pixels.astype(np.uint16) if bits == 16 else pixels


def _decode_png(path: Path, chunks: Chunks, header: Header) -> NDArray[Any]:
    image = import_optional("PIL.Image", "PNG files", package="pillow")
    # the limit of Pillow is too low for large scans, and the size is already checked
    image.MAX_IMAGE_PIXELS = None
    try:
        with image.open(BytesIO(chunks.as_file(header)), formats=("PNG",)) as picture:
            return np.array(picture)
    except MemoryError:
        raise
    except Exception as error:
        raise damaged_picture(path, scan.short_reason(error, path)) from None


@contextmanager
def _tiff_page(path: Path) -> Iterator[Any]:
    """Open a TIFF file and yield its only page."""
    package = import_optional("tifffile", "TIFF files")
    logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        try:
            # check the tags before the package reads them, because they could need too much memory
            has_more_pages = tiff_segments.has_more_pages(path)
            page = stack.enter_context(package.TiffFile(path)).pages[0]
        except OSError as error:
            raise scan.unreadable(path, error) from None
        except Exception as error:
            finding = f"not a readable TIFF file ({scan.short_reason(error, path)})"
            raise UserError(Code.NOT_A_SCAN, path, finding, scan.AGAIN) from None
        if has_more_pages or tiff_segments.has_hidden_slices(page):
            raise scan.unsupported(path, "a TIFF file with several pages", _ONE_EACH)
        if (orientation := page.tags.valueof(_ORIENTATION, 1)) not in (0, 1):
            finding = f"the pixels are stored turned or mirrored (Orientation {orientation!s:.20})"
            raise scan.unsupported(path, finding, "save it upright, for example by opening and saving it with Pillow")
        try:
            yield page
        except (UserError, MemoryError):
            raise
        except Exception as error:
            raise damaged_picture(path, scan.short_reason(error, path)) from None


def _read_tiff(path: Path, is_label: bool) -> NDArray[Any]:
    with _tiff_page(path) as page:
        # the header must not ask for more pixels than the file contains
        scan.refuse_bytes(path, int(page.nbytes), path.stat().st_size * _TIFF_MAX_EXPANSION[int(page.compression) > 1])
        if (strips := math.prod(page.chunked)) != len(page.dataoffsets):
            raise ValueError(f"{len(page.dataoffsets)} of {strips} strips found")
        photometric, planar = int(page.photometric), int(page.planarconfig)
        if photometric == 3 and not is_label:
            raise scan.unsupported(path, "the picture has palette colors", "save it as gray or RGB")
        if photometric in _UNSUPPORTED_SPACES:
            finding = f"the color space of the picture is {_UNSUPPORTED_SPACES[photometric]}"
            raise scan.unsupported(path, finding, "convert it to gray or RGB")
        if page.ndim not in (2, 3) or 0 in page.shape:
            raise scan.unsupported(path, f"a picture of shape {page.shape}", "save gray or RGB pixels")
        pixels = _decode_tiff(path, page)
    if pixels.ndim == 3 and planar == 2:
        pixels = np.moveaxis(pixels, 0, -1)
    top = int(np.iinfo(pixels.dtype).max) if pixels.dtype.kind == "u" else int(pixels.dtype == np.bool_)
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8)
    # photometric 0 stores white as 0, so gray values are inverted, but class numbers are not
    return (top - pixels).astype(pixels.dtype) if photometric == 0 and top and not is_label else pixels


def _decode_tiff(path: Path, page: Any) -> NDArray[Any]:
    if tiff_segments.can_decompress(page):
        return tiff_segments.read_pixels(path, page)
    if find_spec("imagecodecs") is None:
        finding = f"no installed package decodes the pixels ({page.compression.name})"
        remedy = "pip install imagecodecs, or save the picture uncompressed"
        raise UserError(Code.PACKAGE_MISSING, path, finding, remedy)
    try:
        pixels = decode(path, "tifffile", int(page.nbytes), path=str(path.absolute()))
    except DecodingError as error:
        raise ValueError(str(error)) from None
    if pixels.shape != page.shape:
        raise ValueError(f"pixels of shape {pixels.shape}, expected {page.shape}")
    return pixels


def are_gray(cases: Sequence[Case], named_channels: int | None) -> bool:
    """Return whether all training scans are gray pictures, and at least one of them is stored with three colors."""
    training = [case for case in cases if case.split in ("labeled", "unlabeled")]
    images = [path for case in training for path in case.images]
    are_pictures = bool(images) and all(path.name.lower().endswith(SUFFIXES) for path in images)
    # colors are kept if dataset.json names another number of channels than a case has files
    if not are_pictures or named_channels not in (None, len(training[0].images)):
        return False
    colored = [path for path in images if _stores_colors(path)]
    # the first picture is usually enough to recognize a data set with real colors
    return bool(colored) and _is_gray(colored[0]) and all(in_parallel(_is_gray, colored[1:], "Reading pictures"))


def _stores_colors(path: Path) -> bool:
    try:
        scan.refuse_absent(path)
        if path.suffix.lower() == ".png":
            return read_header(path).color_type in (_COLOR_BIT, _RGB_ALPHA)
        if (read_size := _READ_SIZE.get(path.suffix.lower())) is not None:
            return read_size(path)[2] > 1
        with _tiff_page(path) as page:
            return int(page.samplesperpixel) in (3, 4)
    except UserError:
        return False


def _is_gray(path: Path) -> bool:
    try:
        stat = path.stat()
        return _is_gray_version(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, UserError):
        return True


@lru_cache(100_000)
def _is_gray_version(path: Path, size: int, mtime_ns: int) -> bool:
    """Return whether a version of a file is gray. Cached, because a command may read the folder several times."""
    return len(read_picture(path, 1).array) == 1
