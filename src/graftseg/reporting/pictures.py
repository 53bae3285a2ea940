"""Pictures of scans and label maps: a gray scan with a transparent layer over it."""

import struct
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from graftseg.core.colors import color_of
from graftseg.data.slices import Window, to_gray
from graftseg.reporting.svg import chart, element

Pixels = npt.NDArray[np.uint8]
Plane = npt.NDArray[Any]
Labels = npt.NDArray[Any]

MAX_SIDE = 512
SMALL_SIDE = 160  # smaller pictures get the CSS class "small"
LAYER_SIDE = 384  # smaller layers are enlarged up to this side
BORDER_WIDTH = 1 / 128  # fraction of the longer side
MARK_SIZE = 1 / 11  # fraction of the width
MARK_MARGIN = 1 / 64  # fraction of the width
FILL_OPACITY = 90  # of 255
OPAQUE = 255
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # by number of channels
PNG_FILTER_UP = 2


class Album:
    """The pictures of one page. A scan that is shown several times is embedded once and then referenced."""

    def __init__(self) -> None:
        """Create an album without pictures."""
        self._embedded: dict[tuple[bytes, tuple[float, ...]], str] = {}

    def picture(
        self,
        image: Plane,
        layer: Pixels | None = None,
        *,
        alt: str,
        aspect: float = 1.0,
        limit: int = MAX_SIDE,
        marks: tuple[str, str] | None = None,
        window: Window | None = None,
    ) -> Markup:
        """Draw a scan ``(H, W)`` in gray, a layer ``(h, w, 4)`` over it, and letters at the left and right edge.

        ``aspect`` is the height of a pixel divided by its width. ``window`` has the intensities shown as black and as
        white, by default those of the image itself.
        """
        gray = to_gray(shrink(image, limit), window)
        width, height = gray.shape[1], round(gray.shape[0] * aspect, 2)
        content = [self._scan(gray, width, height)]
        if layer is not None:
            content.append(_stretched(layer, width, height))
        edge = width * MARK_MARGIN
        for mark, x, anchor in zip(marks or (), (edge, width - edge), (None, "end"), strict=False):
            style = {"dy": "0.35em", "text_anchor": anchor, "class_": "mark"}
            content.append(element("text", mark, x=x, y=height / 2, font_size=width * MARK_SIZE, **style))
        return chart(alt, width, height, content, class_="picture")

    def _scan(self, gray: Pixels, width: int, height: float) -> Markup:
        key = gray.tobytes(), (*gray.shape, width, height)
        if key in self._embedded:
            return element("use", href=f"#{self._embedded[key]}")
        self._embedded[key] = f"scan-{len(self._embedded) + 1}"
        class_ = "small" if max(gray.shape) < SMALL_SIDE else None
        return _stretched(gray, width, height, id=self._embedded[key], class_=class_)


def shrink(image: Plane, limit: int = MAX_SIDE) -> Plane:
    """Average blocks of pixels so that the longer side is at most ``limit``. A small image is unchanged."""
    factor = _factor(image.shape, limit)
    if factor == 1:
        return image
    height, width = (side // factor * factor for side in image.shape)
    blocks = image[:height, :width].astype(np.float64).reshape(height // factor, factor, width // factor, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def label_layer(labels: Labels, limit: int = MAX_SIDE) -> Pixels:
    """Return a label map as colored areas with opaque borders, ``(h, w, 4)``. The background is transparent."""
    drawn = _fit(labels.astype(np.int64), limit)
    layer = np.zeros((*drawn.shape, 4), np.uint8)
    layer[..., :3] = rgb_table(int(drawn.max(initial=0)) + 1)[drawn]
    layer[..., 3] = np.where(drawn > 0, FILL_OPACITY, 0)
    layer[_border(drawn) & (drawn > 0), 3] = OPAQUE
    return layer


def outline_layer(mask: Labels) -> Pixels:
    """Return the edge of the region where a mask is 0, ``(h, w, 4)``, white inside and black outside."""
    drawn = _fit(mask.astype(np.int64), MAX_SIDE)
    layer = np.zeros((*drawn.shape, 4), np.uint8)
    layer[..., :3] = np.where(drawn == 0, OPAQUE, 0)[..., None]
    layer[..., 3] = np.where(_border(drawn), OPAQUE, 0)
    return layer


def rgb_table(count: int) -> Pixels:
    """Return the colors by label, ``(count, 3)``. The background in row 0 is black and never shown."""
    rows = [(0, 0, 0), *(tuple(bytes.fromhex(color_of(label)[1:])) for label in range(1, count))]
    return np.array(rows, dtype=np.uint8)


def _stretched(pixels: Pixels, width: int, height: float, **attributes: str | None) -> Markup:
    uri, aspect = data_uri(pixels), {"preserveAspectRatio": "none"}
    return element("image", href=uri, width=width, height=height, **aspect, **attributes)


def _factor(shape: tuple[int, ...], limit: int) -> int:
    return max(1, -(-max(shape) // limit))


def _fit(labels: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Subsample a large map, or enlarge a small map so that borders are thin lines."""
    factor = _factor(labels.shape, limit)
    height, width = (side // factor * factor for side in labels.shape)
    small = labels[factor // 2 : height : factor, factor // 2 : width : factor]
    times = max(1, LAYER_SIDE // max(small.shape))
    return small.repeat(times, axis=0).repeat(times, axis=1)


def _border(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return the pixels near a pixel with another label. The width of the border is relative to the picture."""
    border = np.zeros(labels.shape, bool)
    for step in range(1, max(1, round(max(labels.shape) * BORDER_WIDTH)) + 1):
        down = labels[step:] != labels[:-step]
        right = labels[:, step:] != labels[:, :-step]
        border[step:] |= down
        border[:-step] |= down
        border[:, step:] |= right
        border[:, :-step] |= right
    return border


def encode_png(pixels: Pixels) -> bytes:
    """Return pixels as a PNG file: gray ``(H, W)``, RGB ``(H, W, 3)`` or RGBA ``(H, W, 4)``.

    Each row is stored as the difference from the row above. Smooth scans and flat overlays then compress well.
    """
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    rows = np.ascontiguousarray(pixels).reshape(height, width * channels)
    differences = np.diff(rows, axis=0, prepend=np.zeros((1, rows.shape[1]), np.uint8))
    filtered = np.insert(differences, 0, PNG_FILTER_UP, axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, PNG_COLOR_TYPES[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b"")
    return PNG_SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def data_uri(pixels: Pixels) -> str:
    """Return a PNG as a data URI."""
    return "data:image/png;base64," + b64encode(encode_png(pixels)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
