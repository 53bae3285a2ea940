"""What labels must be for a network to learn from them: the list of classes, the grid and the values of label maps."""

from collections.abc import Collection
from pathlib import Path
from shlex import quote

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.grid import grid_difference
from graftseg.data.renumbering import MASK
from graftseg.data.scans import Scan

LARGEST_VALUE = 254
MENDABLE = ("nnunet", "msd")
"""Layouts of which a check writes mended copies."""
BY_HAND = "write the masks as 0 and 1"


def refuse_class_list(dataset: Dataset) -> None:
    """Refuse a list of classes whose values leave gaps or are too many."""
    values, path = sorted(dataset.classes), dataset.root / "dataset.json"
    if values != list(range(len(values))):
        finding = f"the label values {', '.join(map(str, values))} are not consecutive"
        raise UserError(Code.LABEL_INVALID, path, finding, "number the classes 0, 1, 2, ... in labels and list")
    if len(values) > LARGEST_VALUE + 1:
        raise UserError(
            Code.LABEL_INVALID,
            path,
            f"{len(values)} classes, at most {LARGEST_VALUE + 1} are supported",
            "merge classes",
        )


def checked_values(dataset: Dataset, case: Case, geometry: Geometry, label: Scan) -> tuple[int, ...]:
    """The values of a label map, in order; one that is not on the grid of its image or has other values is refused."""
    path = label_path(case)
    if difference := grid_difference(geometry, label.geometry):
        remedy = "resample the label to the image's grid or correct its header"
        raise UserError(Code.GEOMETRY_MISMATCH, path, f"image and label lie on different grids: {difference}", remedy)
    values = tuple(int(value) for value in np.unique(label.array))
    if is_mask(values) and set(dataset.classes) in (set(), {0, 1}):
        raise UserError(
            Code.LABEL_INVALID, path, "a mask of 0 and 255 where 1 is the first class", _mask_remedy(dataset)
        )
    if values[-1] > LARGEST_VALUE:
        finding = f"the label value {values[-1]} is above {LARGEST_VALUE}"
        raise UserError(
            Code.LABEL_INVALID, path, finding, "number the classes 0, 1, 2, ... (a mask of 0 and 255 becomes 0 and 1)"
        )
    refuse_unlisted(dataset, case, values)
    return values


def refuse_unlisted(dataset: Dataset, case: Case, values: Collection[int]) -> None:
    """Refuse values that the list of classes, where there is one, does not name."""
    unknown = sorted(set(values) - dataset.classes.keys())
    if dataset.classes and unknown:
        finding = f"the label value {unknown[0]} is not among the classes 0 to {max(dataset.classes)}"
        listed = "name the value in dataset.json or " if isinstance(dataset.reader, ScanFiles) else ""
        raise UserError(Code.LABEL_INVALID, case.label or case.name, finding, f"{listed}correct the label map")


def is_mask(values: Collection[int]) -> bool:
    """Whether a label map looks like a picture of one class, in black and white."""
    return MASK in values and set(values) <= {0, MASK}


def remedy_beside(where: str | Path) -> str:
    """How to mend a mask among references: a check takes its folder only where that holds scans to train on as well."""
    root = Path(where).parent.parent
    lies_among = Path(where).parent.name in ("labelsTr", "labelsTs")
    if lies_among and (root / "imagesTr").is_dir() and (root / "labelsTr").is_dir():
        return _mended_copy(root)
    return BY_HAND


def _mask_remedy(dataset: Dataset) -> str:
    return _mended_copy(dataset.root) if dataset.layout in MENDABLE else BY_HAND


def _mended_copy(root: Path) -> str:
    return f"`graftseg check {quote(str(root))} --fix OUT` writes a copy with the values 0 and 1"
