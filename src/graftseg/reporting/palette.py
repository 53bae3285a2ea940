"""One colour per class, told apart also by people who confuse red with green."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graftseg.reporting.markup import Html, tag

# Each pair is at least 25 apart in CIELAB, seen normally and under simulated deuteranopia and protanopia.
COLOURS = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f5ec8c",
    "#4a4af0",
    "#b8430a",
    "#b8f2ea",
    "#aa4499",
    "#503418",
    "#5088f8",
    "#3434a4",
    "#6c3450",
)


def colour_of(label: int) -> str:
    """The colour of a class; labels count from 1, and after the last colour the first comes again."""
    return COLOURS[(label - 1) % len(COLOURS)]


def rgb_table(count: int) -> npt.NDArray[np.uint8]:
    """Colours by label, ``(count, 3)``; the background's row 0 is black and never shown."""
    rows = [(0, 0, 0), *(tuple(bytes.fromhex(colour_of(label)[1:])) for label in range(1, count))]
    return np.array(rows, dtype=np.uint8)


def swatch(label: int) -> Html:
    """A small square in the colour of a class."""
    return tag("i", class_="swatch", style=f"background:{colour_of(label)}")


def named(label: int, name: str) -> Html:
    """The name of a class behind its colour, on one line."""
    return tag("span", swatch(label), name, class_="class")


def legend(classes: Sequence[str]) -> Html:
    """The names of the classes beside their colours; ``classes[0]`` is the background."""
    entries = [tag("li", swatch(label), name) for label, name in enumerate(classes) if label > 0]
    return tag("ul", *entries, class_="legend")
