"""Draw the picture of the README from two phantoms: ``python docs/pictures.py`` (needs Pillow)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from graftseg.data.phantom import make_phantom
from graftseg.ops.masks import box_mask, box_size, mix
from graftseg.reporting.pictures import rgb_table

if TYPE_CHECKING:
    from PIL import Image, ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

PICTURE = Path(__file__).parent / "images" / "copy-paste.png"

SIDE, GAP, WIDE_GAP, LETTERING = 224, 20, 60, 44
"""Side of a tile, gaps between columns, and height of the text below a tile, in pixels."""
CORNER = (56, 66)
"""Row and column of the upper left corner of the pasted box."""
WARM, COOL = (1.00, 0.86, 0.66), (0.66, 0.86, 1.00)
"""Tints of the labeled and the unlabeled scan."""
GRAYS = 40
"""Number of gray values to which a scan is quantized."""
TEXT = (125, 133, 144)
PAPER = np.array([236, 238, 241], np.uint8)
INK = np.array([38, 42, 48], np.uint8)
"""Colors of the text and of the mask where it is 1 (PAPER) and 0 (INK)."""

Colors = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


def tiles() -> dict[str, Colors]:
    """Return the seven tiles of the picture by name, each ``(SIDE, SIDE, 3)``.

    Warm tints mark the labeled scan, cool tints the unlabeled scan. The true labels of the unlabeled phantom are drawn
    paler and stand for the pseudo-labels of a teacher.
    """
    space = (SIDE, SIDE)
    labeled = make_phantom(0, "labeled", 4, space, 0.8)
    unlabeled = make_phantom(0, "unlabeled", 2, space, 0.8)
    M = box_mask(space, torch.tensor(CORNER), box_size(space, 2 / 3))
    frame = _edge(M.numpy())
    x_l, x_u = _tinted(labeled.image, WARM), _tinted(unlabeled.image, COOL)
    y_l, y_u = _colored(labeled.label, WARM, pale=False), _colored(unlabeled.label, COOL, pale=True)
    return {
        "labeled": _framed(x_l, frame),
        "unlabeled": _framed(x_u, frame),
        "M": np.where(M.numpy()[..., None], PAPER, INK),
        "X_in": _mixed(x_l, x_u, M),
        "Y_in": _mixed(y_l, y_u, M),
        "X_out": _mixed(x_u, x_l, M),
        "Y_out": _mixed(y_u, y_l, M),
    }


def draw(target: Path = PICTURE) -> None:
    """Write the picture. It is transparent around the tiles, so it fits light and dark pages."""
    from PIL import Image, ImageDraw, ImageFont

    columns = [0, SIDE + WIDE_GAP, 2 * (SIDE + WIDE_GAP), 3 * SIDE + 2 * WIDE_GAP + GAP]
    row = SIDE + LETTERING
    places = {
        "labeled": (columns[0], 0, "labeled scan"),
        "unlabeled": (columns[0], row, "unlabeled scan"),
        "M": (columns[1], row // 2, "mask M"),
        "X_in": (columns[2], 0, "mixed scan X_in"),
        "X_out": (columns[2], row, "mixed scan X_out"),
        "Y_in": (columns[3], 0, "its label map Y_in"),
        "Y_out": (columns[3], row, "its label map Y_out"),
    }
    canvas = Image.new("RGBA", (columns[-1] + SIDE, 2 * row), (*TEXT, 0))
    corners = _rounded()
    pen = ImageDraw.Draw(canvas)
    fonts = ImageFont.load_default(21), ImageFont.load_default(15)
    pictures = tiles()
    for name, (left, top, words) in places.items():
        canvas.paste(Image.fromarray(pictures[name]), (left, top), Image.fromarray(corners))
        _letter(pen, fonts, left + SIDE // 2, top + SIDE + 8, words)
    box = (columns[1] + CORNER[1], row // 2 + CORNER[0])
    pen.text((box[0] + SIDE // 3, box[1] + SIDE // 3), "0", tuple(PAPER), fonts[0], "mm")
    pen.text((columns[1] + CORNER[1] // 2, row // 2 + SIDE // 2), "1", tuple(INK), fonts[0], "mm")
    for column in columns[1:3]:
        _chevron(pen, column - WIDE_GAP // 2, (2 * row - LETTERING) // 2)
    target.parent.mkdir(parents=True, exist_ok=True)
    _indexed(np.asarray(canvas)).save(target, optimize=True)


def _tinted(image: Floats, tint: Sequence[float]) -> Colors:
    """Return tinted gray values, quantized to keep the file small."""
    gray = np.clip(image / 1.2, 0, 1) ** 0.9
    stepped = np.rint(gray * (GRAYS - 1)) / (GRAYS - 1)
    return np.asarray(np.rint(255 * stepped[..., None] * np.array(tint)), dtype=np.uint8)


def _colored(label: npt.NDArray[np.uint8], tint: Sequence[float], *, pale: bool) -> Colors:
    background = np.array(tint) * 34
    colors = np.vstack([background, rgb_table(4)[1:]])
    if pale:
        colors[1:] = 0.62 * colors[1:] + 0.38 * background
    return np.asarray(np.rint(colors), dtype=np.uint8)[label]


def _mixed(background: Colors, foreground: Colors, M: torch.Tensor) -> Colors:
    """Mix two pictures with ``graftseg.ops.masks.mix``."""
    colors = mix(torch.from_numpy(background), torch.from_numpy(foreground), M[..., None])
    return np.asarray(colors.numpy())


def _edge(M: Mask) -> Mask:
    """Return a mask of the box's border, which is two pixels wide and inside the box."""
    inside = np.pad(~M, 2)
    core = inside.copy()
    for axis, step in ((0, 2), (0, -2), (1, 2), (1, -2)):
        core &= np.roll(inside, step, axis)
    return (inside & ~core)[2:-2, 2:-2]


def _framed(picture: Colors, frame: Mask) -> Colors:
    return np.where(frame[..., None], np.uint8(255), picture)


def _rounded(radius: int = 14) -> npt.NDArray[np.uint8]:
    """Return the opacity of a tile: 255 except at its rounded corners."""
    along = np.arange(SIDE) + 0.5
    beyond = np.maximum(np.maximum(radius - along, along - (SIDE - radius)), 0)
    distance = np.hypot(beyond[:, None], beyond[None, :])
    return np.asarray(np.rint(np.clip(radius - distance + 0.5, 0, 1) * 4) / 4 * 255, dtype=np.uint8)


def _letter(pen: ImageDraw.ImageDraw, fonts: tuple[Font, Font], center: int, top: int, words: str) -> None:
    """Draw centered text below a tile; the part after an underscore becomes a subscript."""
    plain, _, low = words.partition("_")
    large, small = fonts
    width = large.getlength(plain) + small.getlength(low)
    left = center - width / 2
    pen.text((left, top), plain, TEXT, large)
    pen.text((left + large.getlength(plain) + 1, top + 10), low, TEXT, small)


def _chevron(pen: ImageDraw.ImageDraw, x: int, y: int) -> None:
    pen.line([(x - 6, y - 14), (x + 7, y), (x - 6, y + 14)], TEXT, 4, joint="curve")


def _indexed(canvas: Colors) -> Image.Image:
    """Return the picture with a palette of at most 256 colors."""
    from PIL import Image

    canvas = np.where(canvas[..., 3:] == 0, np.uint8(0), canvas)
    canvas[..., 3] = np.rint(canvas[..., 3] / 51) * 51
    colors, index = np.unique(canvas.reshape(-1, 4), axis=0, return_inverse=True)
    if len(colors) > 256:
        raise ValueError(f"{len(colors)} colors do not fit a palette of 256")
    indexed = Image.fromarray(index.reshape(canvas.shape[:2]).astype(np.uint8))
    indexed.putpalette(colors.tobytes(), "RGBA")
    return indexed


if __name__ == "__main__":
    draw()
