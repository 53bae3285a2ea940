"""Scans and label maps as pictures: a grey scan that is stored once, and transparent layers over it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from graftseg.reporting.markup import Html, tag
from graftseg.reporting.palette import rgb_table
from graftseg.reporting.png import Pixels, data_uri

Plane = npt.NDArray[Any]
Labels = npt.NDArray[Any]

LARGEST_SIDE = 512
SMALL_SIDE = 160
LAYER_SIDE = 384
BORDER_SHARE = 1 / 128
MARK_SHARE = 1 / 11
EDGE_SHARE = 1 / 64
FILL_OPACITY = 90
OPAQUE = 255
WINDOW_PERCENTILES = (0.5, 99.5)


class Album:
    """The pictures of one page. A scan shown several times is embedded once and referred to afterwards."""

    def __init__(self) -> None:
        """Begin without any picture."""
        self._embedded: dict[tuple[bytes, str], str] = {}

    def picture(
        self,
        image: Plane,
        layer: Pixels | None = None,
        *,
        alt: str,
        aspect: float = 1.0,
        limit: int = LARGEST_SIDE,
        marks: tuple[str, str] | None = None,
    ) -> Html:
        """A scan ``(H, W)`` in grey, a layer ``(h, w, 4)`` over it; ``aspect`` is a pixel's height/width.

        ``marks`` stand at its left and right edge.
        """
        grey = to_grey(shrink(image, limit))
        width, height = grey.shape[1], round(grey.shape[0] * aspect, 2)
        content = [self._scan(grey, width, height)]
        if layer is not None:
            content.append(_stretched(layer, width, height))
        if marks is not None:
            content += _marked(marks, width, height)
        return tag(
            "svg",
            tag("title", alt),
            *content,
            class_="picture",
            viewBox=f"0 0 {width} {height:g}",
            role="img",
        )

    def _scan(self, grey: Pixels, width: int, height: float) -> Html:
        key = (grey.tobytes(), f"{grey.shape} in {width} x {height}")
        if key in self._embedded:
            return tag("use", href=f"#{self._embedded[key]}")
        self._embedded[key] = f"scan-{len(self._embedded) + 1}"
        kind = "small" if max(grey.shape) < SMALL_SIDE else None
        return _stretched(grey, width, height, id=self._embedded[key], class_=kind)


def to_grey(image: Plane) -> Pixels:
    """Intensities as grey values, from the 0.5th to the 99.5th percentile; a constant image is black."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
    low, high = np.percentile(values, WINDOW_PERCENTILES)
    if high <= low:
        low, high = values.min(), max(values.max(), values.min() + 1.0)
    shares = np.clip((values - low) / (high - low), 0.0, 1.0)
    return np.asarray(np.rint(shares * 255), dtype=np.uint8)


def shrink(image: Plane, limit: int = LARGEST_SIDE) -> Plane:
    """The image by block means so that its longer side is at most ``limit``; a small image stays as it is."""
    factor = _factor(image.shape, limit)
    if factor == 1:
        return image
    height, width = (side // factor * factor for side in image.shape)
    blocks = image[:height, :width].astype(np.float64).reshape(height // factor, factor, width // factor, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def label_layer(labels: Labels) -> Pixels:
    """A label map as coloured areas with opaque borders, ``(h, w, 4)``; background is transparent."""
    drawn = _fit(labels.astype(np.int64))
    layer = np.zeros((*drawn.shape, 4), np.uint8)
    layer[..., :3] = rgb_table(int(drawn.max(initial=0)) + 1)[drawn]
    layer[..., 3] = np.where(drawn > 0, FILL_OPACITY, 0)
    layer[_border(drawn) & (drawn > 0), 3] = OPAQUE
    return layer


def outline_layer(mask: Labels) -> Pixels:
    """The edge of a mask's zeros, ``(h, w, 4)``: white inside and black outside, to be seen on any scan."""
    drawn = _fit(mask.astype(np.int64))
    layer = np.zeros((*drawn.shape, 4), np.uint8)
    layer[..., :3] = np.where(drawn == 0, OPAQUE, 0)[..., None]
    layer[..., 3] = np.where(_border(drawn), OPAQUE, 0)
    return layer


def _marked(marks: tuple[str, str], width: int, height: float) -> list[Html]:
    """Letters at the left and the right edge, as large on a small picture as on a large one."""
    size, edge = width * MARK_SHARE, width * EDGE_SHARE
    where = {"y": f"{height / 2:g}", "dy": "0.35em", "font_size": f"{size:g}", "class_": "mark"}
    left, right = marks
    return [
        tag("text", left, x=f"{edge:g}", **where),
        tag("text", right, x=f"{width - edge:g}", text_anchor="end", **where),
    ]


def _stretched(pixels: Pixels, width: int, height: float, **attributes: str | None) -> Html:
    size = {"width": f"{width}", "height": f"{height:g}", "preserveAspectRatio": "none"}
    return tag("image", href=data_uri(pixels), **size, **attributes)


def _factor(shape: tuple[int, ...], limit: int) -> int:
    return max(1, -(-max(shape) // limit))


def _fit(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Take every n-th voxel of a large map; repeat those of a small one, so that its lines become fine."""
    factor = _factor(labels.shape, LARGEST_SIDE)
    height, width = (side // factor * factor for side in labels.shape)
    small = labels[factor // 2 : height : factor, factor // 2 : width : factor]
    times = max(1, LAYER_SIDE // max(small.shape))
    return small.repeat(times, axis=0).repeat(times, axis=1)


def _border(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Pixels near one that has another label, above, below or beside; the line's width follows the size."""
    border = np.zeros(labels.shape, bool)
    for step in range(1, max(1, round(max(labels.shape) * BORDER_SHARE)) + 1):
        down = labels[step:] != labels[:-step]
        right = labels[:, step:] != labels[:, :-step]
        border[step:] |= down
        border[:-step] |= down
        border[:, step:] |= right
        border[:, :-step] |= right
    return border
