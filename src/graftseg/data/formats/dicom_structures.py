"""The structures of a DICOM label: segments of a segmentation, or regions of interest of a structure set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_tags import AGAIN, number, value

SEGMENTS, ROIS = "SegmentSequence", "StructureSetROISequence"
TAGS = {SEGMENTS: ("segment", "SegmentNumber", "SegmentLabel"), ROIS: ("ROI", "ROINumber", "ROIName")}
"""Kind of the structures in a sequence, and the tags of their numbers and names."""


@dataclass(frozen=True)
class Structure:
    """A structure with its number and name. ``kind`` is ``segment`` or ``ROI``."""

    kind: str
    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class Mask:
    """The pixels ``(columns, rows)`` of a structure on one slice of the image."""

    structure: int
    plane: int
    pixels: NDArray[np.bool_]


def structures_in(path: Path, header: Any, sequence: str) -> list[Structure]:
    """Return the structures in a sequence of a header, sorted by number."""
    kind, number_tag, name_tag = TAGS[sequence]
    items = value(path, header, sequence) or ()
    named = sorted((int(number(path, item, number_tag, -1)), _name(value(path, item, name_tag))) for item in items)
    if not named:
        raise UserError(Code.SCAN_HEADER, path, f"the header has no {sequence}", AGAIN)
    numbers = [key for key, _ in named]
    if numbers[0] < 0 or len({*numbers}) < len(numbers):
        raise UserError(Code.SCAN_HEADER, path, f"{number_tag} is missing or repeated", AGAIN)
    return [Structure(kind, key, name.strip()) for key, name in named]


def _name(content: Any) -> str:
    """Return a name as text. pydicom splits a name at backslashes."""
    return content if isinstance(content, str) else "\\".join(map(str, content or ()))
