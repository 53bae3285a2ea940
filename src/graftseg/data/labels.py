"""What labels must be for a network to learn from them: the list of classes, the grid and the values of label maps."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset, ScanFiles, label_path
from graftseg.data.grid import grid_difference
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


def mask_remedy(where: str | Path) -> str:
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


MASK = 255


@dataclass(frozen=True)
class Renumbering:
    """Old label values with their new ones, and the names of these where the list of classes has to change."""

    values: dict[int, int]
    classes: dict[int, str]

    @property
    def changes(self) -> dict[int, int]:
        """The values that do not stay what they are."""
        return {old: new for old, new in self.values.items() if old != new}


def renumber(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | str | None:
    """How the values of a data set are to be renumbered; None if they need not be, or why nobody but a person can tell.

    ``classes`` are the listed ones, and ``counts`` has, for every label map, how many voxels have which value. Listed
    classes keep their names and their order. A value of 255 is taken for the only class where no label map shows
    another one beside it; beside others it often marks voxels to ignore.
    """
    found = {value for label_map in counts for value in label_map}
    if not _consecutive(found | {0}) and MASK in found and (mask := _mask(classes, counts)):
        return mask
    if classes:
        if unlisted := sorted(found - classes.keys()):
            return f"the label value {unlisted[0]} has no class: name it in dataset.json or correct the label maps"
        return None if _consecutive(classes) else _in_order(classes)
    if _consecutive(found | {0}):
        return None
    if MASK in found:
        return "255 stands beside other label values: say in dataset.json what it is, or set voxels of no class to 0"
    return _in_order({value: f"label {value}" if value else "background" for value in found | {0}})


def _mask(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | None:
    """255 for the only class, whether or not other label maps number it 1; None where a label map shows more."""
    if set(classes) not in (set(), {0, 1}):
        return None
    if any(set(label_map) not in ({0}, {0, 1}, {0, MASK}, {1}, {MASK}) for label_map in counts):
        return None
    return Renumbering({0: 0, 1: 1, MASK: 1}, {})


def _in_order(classes: dict[int, str]) -> Renumbering:
    values = {old: new for new, old in enumerate(sorted(classes))}
    return Renumbering(values, {new: classes[old] for old, new in values.items()})


def _consecutive(values: set[int] | dict[int, str]) -> bool:
    return sorted(values) == list(range(len(values)))
