"""Pictures, PNG and TIFF: 2-D scans of one grey channel or of three colours, without any place in the world.

Pixels are taken to be one millimetre apart, columns to the left and rows to the back, as ITK reads such files.
"""

import logging
import math
import struct
import zlib
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.types import Geometry
from graftseg.data.formats.scan import AGAIN, Scan, lps_geometry, optional, refuse_absent, refuse_bytes, words

SUFFIXES: tuple[str, ...] = (".png", ".tif", ".tiff")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_COLOURS, _PALETTE = 2, 3  # the bit of a PNG's kind that says colours, and the kind with a palette
_GREY_ALPHA, _RGB_ALPHA = 4, 6
_OTHER_SPACES = {5: "CMYK", 8: "CIELab", 9: "ICCLab", 10: "ITULab"}  # how a TIFF may tell colours, by its number
_TIFF_GAIN = (8, 50_000)  # how many bytes one byte of a picture can become, plain (bits) and compressed
_ONE_EACH = "save one picture a file, or the volume as NIfTI or NRRD, which say how far slices lie apart"
_HEADER, _CHECKSUM = slice(12, 29), slice(29, 33)  # what the checksum of a PNG's header is of, and where it stands


def picture_geometry(path: Path) -> Geometry:
    """The size of the picture, from its header."""
    refuse_absent(path)
    if path.suffix.lower() == ".png":
        width, height, *_ = _png_header(path)
        return _geometry(width, height)
    with _Tiff(path) as tiff:
        return _geometry(tiff.page.imagewidth, tiff.page.imagelength)


def read_picture(path: Path) -> Scan:
    """Pixels ``(C, columns, rows)``: one channel or three, of the type they are stored in."""
    return _read(path, is_label=False)


def read_label_picture(path: Path) -> Scan:
    """The same for a label map, whose pixels are class numbers: the entries of a palette stay numbers."""
    return _read(path, is_label=True)


def write_label_picture(path: Path, labels: NDArray[np.uint8]) -> None:
    """Write a label map ``(columns, rows)`` as a PNG of grey values: class numbers, dark to the eye."""
    image = optional("PIL.Image", "pillow", "PNG files")
    with atomic_path(path) as partial:
        image.fromarray(np.ascontiguousarray(labels.T)).save(partial, format="PNG")


def _read(path: Path, *, is_label: bool) -> Scan:
    refuse_absent(path)
    pixels = (_png if path.suffix.lower() == ".png" else _tiff)(path, is_label)
    channels = _opaque(path, pixels if pixels.ndim == 3 else pixels[..., None])
    if channels.dtype.kind not in "iuf" or channels.dtype.itemsize > 8:
        raise UserError(
            Code.SCAN_UNSUPPORTED,
            path,
            f"its pixels are of type {channels.dtype}",
            "save grey or RGB pixels of 8 or 16 bits",
        )
    height, width, _ = channels.shape
    return Scan(channels.transpose(2, 1, 0), _geometry(width, height))


def _geometry(width: int, height: int) -> Geometry:
    return lps_geometry((width, height), np.eye(2), np.ones(2), np.zeros(2))


def _opaque(path: Path, pixels: NDArray[Any]) -> NDArray[Any]:
    """Pixels ``(rows, columns, channels)`` without an alpha channel, which must hide nothing."""
    channels = pixels.shape[2]
    if channels in (2, 4):
        alpha = pixels[..., -1]
        if (alpha != (np.iinfo(alpha.dtype).max if alpha.dtype.kind == "u" else 1)).any():
            raise UserError(
                Code.SCAN_UNSUPPORTED, path, "parts of the picture are transparent", "save it without an alpha channel"
            )
        return pixels[..., :-1]
    if channels not in (1, 3):
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"a picture of {channels} channels", "save grey or RGB, or one file a channel"
        )
    return pixels


def _png_header(path: Path) -> tuple[int, int, int, int]:
    """Width, height, bits of a sample and kind of a PNG file."""
    try:
        with path.open("rb") as file:
            head = file.read(26)
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check the file's permissions"
        ) from None
    if len(head) < 26 or head[:8] != _SIGNATURE or head[12:16] != b"IHDR":
        raise UserError(Code.NOT_A_SCAN, path, "not a PNG file", AGAIN)
    width, height, bits, kind = struct.unpack(">IIBB", head[16:26])
    if not width or not height or bits not in (1, 2, 4, 8, 16) or kind not in _PNG_CHANNELS:
        raise UserError(Code.SCAN_DAMAGED, path, "its header makes no sense", AGAIN)
    return width, height, bits, kind


def _png(path: Path, is_label: bool) -> NDArray[Any]:
    width, height, bits, kind = _png_header(path)
    refuse_bytes(path, width * height * _PNG_CHANNELS[kind] * max(1, bits // 8))
    if kind == _PALETTE and not is_label:
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, "the colours of the picture are those of a palette", "save it as grey or RGB"
        )
    if bits == 16 and kind & _COLOURS:
        raise UserError(
            Code.SCAN_DAMAGED, path, "16-bit colours, which cannot be read from PNG", "save it as TIFF or with 8 bits"
        )
    image = optional("PIL.Image", "pillow", "PNG files")
    try:
        # the size was looked at above, and the limit of the package is for web pages
        image.MAX_IMAGE_PIXELS = None
        two_bytes = (bits, kind) == (16, _GREY_ALPHA)
        with image.open(_as_bytes(path) if two_bytes else path, formats=("PNG",)) as picture:
            pixels, frames = np.array(picture), picture.n_frames
    except image.UnidentifiedImageError:
        raise UserError(
            Code.SCAN_DAMAGED, path, "the picture is damaged or cut off (its first parts make no sense)", AGAIN
        ) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise _damaged(path, error) from None
    if frames > 1:
        raise UserError(Code.SCAN_UNSUPPORTED, path, f"an animated PNG file of {frames} pictures", _ONE_EACH)
    if two_bytes:
        return pixels.view(">u2").astype(np.uint16)
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8)
    if kind == 0 and bits < 8:
        # grey values of fewer bits are spread over those of a byte; as class numbers they would be others
        return np.asarray(pixels // (255 // (2**bits - 1)), np.uint8)
    return pixels.astype(np.uint16) if bits == 16 else pixels


def _as_bytes(path: Path) -> BytesIO:
    """A PNG of grey and alpha in 16 bits as one of four channels in 8 bits, the halves of the two numbers.

    The package would drop the lower halves. Both kinds lie in a file the same way, but for the header.
    """
    content = bytearray(path.read_bytes())
    before = bytes(content[_HEADER])
    content[_HEADER] = after = before[:12] + bytes((8, _RGB_ALPHA)) + before[14:]
    (found,) = struct.unpack(">I", content[_CHECKSUM])
    # a checksum that was wrong stays wrong
    content[_CHECKSUM] = struct.pack(">I", found ^ zlib.crc32(before) ^ zlib.crc32(after))
    return BytesIO(content)


class _Tiff:
    """An open TIFF file of one page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.package = optional("tifffile", "tifffile", "TIFF files")
        # what it has to say is told in one sentence
        logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)

    def __enter__(self) -> "_Tiff":
        try:
            self.file = self.package.TiffFile(self.path)
            with ExitStack() as on_failure:
                on_failure.callback(self.file.close)
                pages = len(self.file.pages)
                self.page = self.file.pages[0]
                on_failure.pop_all()
        except OSError as error:
            raise UserError(
                Code.READ_FAILED, self.path, f"cannot be read ({error.strerror})", "check the file's permissions"
            ) from None
        except Exception as error:
            raise UserError(
                Code.NOT_A_SCAN, self.path, f"not a TIFF file that can be read ({words(error, self.path)})", AGAIN
            ) from None
        if pages > 1:
            self.file.close()
            raise UserError(Code.SCAN_UNSUPPORTED, self.path, f"a TIFF file of {pages} pages", _ONE_EACH)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.file.close()
        if isinstance(error, Exception) and not isinstance(error, (UserError, MemoryError)):
            raise _damaged(self.path, error) from None


def _tiff(path: Path, is_label: bool) -> NDArray[Any]:
    with _Tiff(path) as tiff:
        page = tiff.page
        _refuse_more_than_stored(path, page)
        photometric, planar = int(page.photometric), int(page.planarconfig)
        if photometric == 3 and not is_label:
            raise UserError(
                Code.SCAN_UNSUPPORTED,
                path,
                "the colours of the picture are those of a palette",
                "save it as grey or RGB",
            )
        if photometric in _OTHER_SPACES:
            finding = f"the colour space of the picture is {_OTHER_SPACES[photometric]}"
            raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "convert it to grey or RGB")
        if page.ndim not in (2, 3) or 0 in page.shape:
            raise UserError(Code.SCAN_UNSUPPORTED, path, f"a picture of shape {page.shape}", "save grey or RGB pixels")
        pixels = _decoded(path, page)
    if pixels.ndim == 3 and planar == 2:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8)
        top = 1
    else:
        top = int(np.iinfo(pixels.dtype).max) if pixels.dtype.kind == "u" else 0
    # black is 1 and white is 0 in such a file; class numbers are numbers, whatever they look like
    return (top - pixels).astype(pixels.dtype) if photometric == 0 and top and not is_label else pixels


def _refuse_more_than_stored(path: Path, page: Any) -> None:
    """Raise an error where a header asks for more than the file holds."""
    needed = int(page.nbytes)
    refuse_bytes(path, needed)
    available = path.stat().st_size * _TIFF_GAIN[int(page.compression) > 1]
    if needed > available:
        raise ValueError(f"needs {needed} bytes of pixels and has at most {available}")
    if (strips := math.prod(page.chunked)) != len(page.dataoffsets):
        raise ValueError(f"{len(page.dataoffsets)} of its {strips} strips are there")


def _decoded(path: Path, page: Any) -> NDArray[Any]:
    try:
        pixels = np.asarray(page.asarray())
    except Exception as error:
        # some kinds are read by a part of newer Pythons
        if "imagecodecs" not in str(error) and not isinstance(error, ImportError):
            raise
        finding = f"its pixels are compressed ({page.compression.name}), which no installed package reads"
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, finding, "pip install imagecodecs, or save it uncompressed"
        ) from None
    if pixels.shape != page.shape:
        raise ValueError(f"pixels of shape {pixels.shape} where {page.shape} are told")
    return pixels


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(Code.SCAN_DAMAGED, path, f"the picture is damaged or cut off ({words(error, path)})", AGAIN)
