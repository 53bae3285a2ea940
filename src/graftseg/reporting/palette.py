"""The colours of the classes on a page: swatches, legends and tables of colours."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graftseg.core.colors import COLORS, color_of
from graftseg.reporting.markup import Html, tag

__all__ = ["COLORS", "color_of", "legend", "named", "rgb_table", "swatch"]


def rgb_table(count: int) -> npt.NDArray[np.uint8]:
    """Colours by label, ``(count, 3)``; the background's row 0 is black and never shown."""
    rows = [(0, 0, 0), *(tuple(bytes.fromhex(color_of(label)[1:])) for label in range(1, count))]
    return np.array(rows, dtype=np.uint8)


def swatch(label: int) -> Html:
    """A small square in the colour of a class."""
    return tag("i", class_="swatch", style=f"background:{color_of(label)}")


def named(label: int, name: str) -> Html:
    """The name of a class behind its colour, on one line."""
    return tag("span", swatch(label), name, class_="class")


def legend(classes: Sequence[str]) -> Html:
    """The names of the classes beside their colours; ``classes[0]`` is the background."""
    entries = [tag("li", swatch(label), name) for label, name in enumerate(classes) if label > 0]
    return tag("ul", *entries, class_="legend")
