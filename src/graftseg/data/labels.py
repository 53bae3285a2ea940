"""Validate class lists and label maps, and renumber label values."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.grid import grid_difference
from graftseg.data.scans import Scan

LARGEST_VALUE = 254  # the largest label value of a class
MASK_VALUE = 255  # foreground value of masks from image editors
FIXABLE_LAYOUTS = ("nnunet", "msd")
"""Layouts that ``check --fix`` can copy."""
EMPTY_LABELS_REMEDY = "check the label maps of the labeled scans"


def refuse_class_list(dataset: Dataset) -> None:
    """Refuse a class list with gaps between its values, or with too many classes."""
    values, path = sorted(dataset.classes), dataset.root / "dataset.json"
    if not path.is_file():
        # DICOM labels define the classes, or dataset.json is next to a separate folder of labels
        path = dataset.root
    if values != list(range(len(values))):
        finding = f"the label values {', '.join(map(str, values))} are not consecutive"
        remedy = "number the classes 0, 1, 2, ... in label maps and dataset.json"
        raise UserError(Code.LABEL_INVALID, path, finding, remedy)
    if len(values) > LARGEST_VALUE + 1:
        finding = f"{len(values)} classes, at most {LARGEST_VALUE + 1} are supported"
        raise UserError(Code.LABEL_INVALID, path, finding, "merge classes")


def checked_values(dataset: Dataset, case: Case, geometry: Geometry, label: Scan) -> tuple[int, ...]:
    """Return the sorted values of a label map. Refuse invalid values, or a grid other than the grid of the image."""
    path = label_path(case)
    if difference := grid_difference(geometry, label.geometry):
        remedy = "resample the label to the image's grid or correct the header of the label"
        raise UserError(Code.GEOMETRY_MISMATCH, path, f"image and label lie on different grids: {difference}", remedy)
    values = tuple(int(value) for value in np.unique(label.array))
    if is_mask(values) and set(dataset.classes) in (set(), {0, 1}):
        finding = "the mask has the values 0 and 255 instead of 0 and 1"
        raise UserError(Code.LABEL_INVALID, path, finding, mask_remedy(path))
    if values[-1] > LARGEST_VALUE:
        finding = f"the label value {values[-1]} is above {LARGEST_VALUE}"
        raise UserError(Code.LABEL_INVALID, path, finding, "number the classes 0, 1, 2, ...")
    refuse_unlisted(dataset, case, values)
    return values


def refuse_unlisted(dataset: Dataset, case: Case, values: Collection[int]) -> None:
    """Refuse label values that are not in the class list. Without a class list, all values are allowed."""
    unknown = sorted(set(values) - dataset.classes.keys())
    if dataset.classes and unknown:
        finding = f"the label value {unknown[0]} is not among the classes 0 to {max(dataset.classes)}"
        listed = "name the value in dataset.json or " if isinstance(dataset.reader, ScanFiles) else ""
        raise UserError(Code.LABEL_INVALID, case.label or case.name, finding, f"{listed}correct the label map")


def is_mask(values: Collection[int]) -> bool:
    """Return whether these are the values of a mask of 0 and 255."""
    return MASK_VALUE in values and set(values) <= {0, MASK_VALUE}


def mask_remedy(where: str | Path) -> str:
    """Return how to fix a mask of 0 and 255: with ``check --fix`` if the folder has imagesTr and labelsTr."""
    folder, root = Path(where).parent, Path(where).parent.parent
    if folder.name in ("labelsTr", "labelsTs") and (root / "imagesTr").is_dir() and (root / "labelsTr").is_dir():
        return f"`graftseg check {quote(str(root))} --fix OUT` writes a copy with the values 0 and 1"
    return "write the masks as 0 and 1"


def check_label_values(where: str | Path, labels: NDArray[Any], classes: Collection[int]) -> None:
    """Raise an error if a label map contains a value that is not a class."""
    values, counts = np.unique(labels, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value != 0 and value not in classes:
            finding = f"value {value} in {count} voxels is not one of the classes {sorted(set(classes) - {0})}"
            remedy = "add the value to the classes or correct the label map"
            if is_mask(values.tolist()) and set(classes) - {0} == {1}:
                finding, remedy = "a mask of 0 and 255, but the class is 1", mask_remedy(where)
            raise UserError(Code.LABEL_INVALID, where, finding, remedy)


@dataclass(frozen=True)
class Renumbering:
    """New label values by old value, and the new class names if the class list changes."""

    values: dict[int, int]
    classes: dict[int, str]

    @property
    def changes(self) -> dict[int, int]:
        """New label values by old value, without values that stay the same."""
        return {old: new for old, new in self.values.items() if old != new}


def renumber(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | str | None:
    """Return the renumbering of a data set, None if it is not needed, or the reason why it is ambiguous.

    ``classes`` is the class list, and ``counts`` has the voxel count per value for every label map. Listed classes
    keep their names and order. 255 becomes 1 if every label map is a mask of 0 and 255 or of 0 and 1. Otherwise 255
    must be a listed class, because it often marks voxels to ignore.
    """
    present = {value for label_map in counts for value in label_map}
    if not _consecutive(present | {0}) and MASK_VALUE in present and (mask := _mask(classes, counts)):
        return mask
    if classes:
        if unlisted := sorted(present - classes.keys()):
            return f"the label value {unlisted[0]} has no class: name it in dataset.json or correct the label maps"
        return None if _consecutive(classes) else _in_order(classes)
    if _consecutive(present | {0}):
        return None
    if MASK_VALUE in present:
        return "255 occurs with other label values: name it in dataset.json, or set these voxels to 0"
    return _in_order({value: f"label {value}" if value else "background" for value in present | {0}})


def _mask(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | None:
    """Return the renumbering of 255 to 1, or None if a label map or the class list has other classes."""
    if set(classes) not in (set(), {0, 1}):
        return None
    if any(set(label_map) not in ({0}, {0, 1}, {0, MASK_VALUE}, {1}, {MASK_VALUE}) for label_map in counts):
        return None
    return Renumbering({0: 0, 1: 1, MASK_VALUE: 1}, {})


def _in_order(classes: dict[int, str]) -> Renumbering:
    values = {old: new for new, old in enumerate(sorted(classes))}
    return Renumbering(values, {new: classes[old] for old, new in values.items()})


def _consecutive(values: set[int] | dict[int, str]) -> bool:
    return sorted(values) == list(range(len(values)))
