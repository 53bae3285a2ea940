"""Structures of a DICOM label: segments of a segmentation, or regions of interest (ROIs) of a structure set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_tags import AGAIN, number, value


@dataclass(frozen=True)
class Structure:
    """A segment or ROI with its number and name. ``default`` is its label value if no class list gives another."""

    number: int
    name: str
    default: int


@dataclass(frozen=True)
class Mask:
    """The pixels ``(columns, rows)`` of a structure on one slice of the image."""

    structure: int
    plane: int
    pixels: NDArray[np.bool_]


def structures_in(path: Path, header: Any, sequence: str, number_tag: str, name_tag: str) -> list[Structure]:
    """Return the structures of a header, sorted by number. Their default values are 1, 2, 3, ..."""
    items = value(path, header, sequence) or ()
    named = sorted((int(number(path, one, number_tag, -1)), str(value(path, one, name_tag) or "")) for one in items)
    if not named:
        raise UserError(Code.SCAN_HEADER, path, f"the header has no {sequence}", AGAIN)
    numbers = [key for key, _ in named]
    if numbers[0] < 0 or len({*numbers}) < len(numbers):
        raise UserError(Code.SCAN_HEADER, path, f"{number_tag} is missing or repeated", AGAIN)
    return [Structure(key, name.strip(), rank) for rank, (key, name) in enumerate(named, start=1)]
