"""Label values and class lists: which are valid, and how they are renumbered."""

from collections.abc import Collection, Iterator, Sequence
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
FIXABLE_LAYOUTS = ("nnunet", "msd")  # layouts that ``check --fix`` can copy
GRID_REMEDY = "resample the label to the image's grid or correct the header of the label"
MEANS_ONE = "255 probably means 1 in the only label map that contains it: set 255 to 1 in this label map"
EMPTY_LABELS_REMEDY = "check the label maps of the labeled scans"


@dataclass(frozen=True)
class LabelProblem:
    """A class list or a label value that cannot be used."""

    what: str
    remedy: str
    size: str = ""  # extent of the problem
    fixed_values: str = ""  # the values after ``check --fix``, empty if it cannot fix the problem


def class_problem(classes: Collection[int]) -> LabelProblem | None:
    """Return the problem of a class list, or None if its values are 0, 1, 2, ... up to the largest value."""
    values = sorted(classes)
    if missing := set(range(len(values))) - set(values):
        size, fixed = f"{min(missing)} is missing below {values[-1]}", "0, 1, 2, ... in label maps and list"
        remedy = "number the classes 0, 1, 2, ... in label maps and dataset.json"
        return LabelProblem("the class values are not consecutive", remedy, size, fixed)
    if values and values[-1] > LARGEST_VALUE:
        size = f"values up to {values[-1]}, but the limit is {LARGEST_VALUE}"
        return LabelProblem("too many classes", "remove classes that are not needed", size)
    return None


def value_problems(
    values: Collection[int], classes: Collection[int], listed_in: str = "dataset.json"
) -> Iterator[tuple[int, LabelProblem]]:
    """Yield the invalid values of a label map. Without a class list, values up to the largest value are valid."""
    for value in sorted(values):
        if value == MASK_VALUE and is_mask(values) and set(classes) in (set(), {0, 1}):
            what = "the mask has the values 0 and 255 instead of 0 and 1"
            yield value, LabelProblem(what, "write the masks as 0 and 1", fixed_values="0 and 1")
        elif classes and value not in classes:
            remedy = f"name the value in {listed_in} or correct the label map" if listed_in else "correct the label map"
            yield value, LabelProblem(f"the label value {value} has no class", remedy)
        elif not classes and value > LARGEST_VALUE:
            remedy = "number the classes 0, 1, 2, ..."
            yield value, LabelProblem(f"the label value {value} is above {LARGEST_VALUE}", remedy)


def refuse_class_list(dataset: Dataset) -> None:
    """Refuse a class list with gaps between its values, or with too many classes."""
    if problem := class_problem(dataset.classes):
        path = dataset.root / "dataset.json"
        # DICOM labels define the classes, or dataset.json is next to a separate folder of labels
        where = path if path.is_file() else dataset.root
        raise UserError(Code.LABEL_INVALID, where, f"{problem.what}: {problem.size}", problem.remedy)


def checked_values(dataset: Dataset, case: Case, geometry: Geometry, label: Scan) -> tuple[int, ...]:
    """Return the sorted values of a label map. Refuse invalid values, or a grid other than the grid of the image."""
    path = label_path(case)
    if difference := grid_difference(geometry, label.geometry):
        advice = "`graftseg check` lists all problems of the data"
        if dataset.layout in FIXABLE_LAYOUTS:
            advice = f"`graftseg check {quote(str(dataset.root))}` lists all problems of the data"
            advice += ", and --fix corrects rounding, and mirrored or exchanged axes if the header is right"
        finding = f"image and label lie on different grids: {difference}"
        raise UserError(Code.GEOMETRY_MISMATCH, path, finding, f"{GRID_REMEDY}; {advice}")
    values = tuple(int(value) for value in np.unique(label.array))
    refuse_values(dataset, case, values)
    return values


def turning_advice(image: Geometry, label: Geometry) -> str:
    """Return advice: when to turn the axes of a label map to those of its image, and what to do otherwise."""
    check = "compare the pictures on the HTML pages of the data and of the copy"
    advice = f"correct only if the header of the label map is right: {check}"
    return f"{advice}; if it is wrong, copy the header of the image" if image.shape == label.shape else advice


def refuse_values(dataset: Dataset, case: Case, values: Collection[int]) -> None:
    """Refuse invalid values of a label map."""
    listed_in = "dataset.json" if isinstance(dataset.reader, ScanFiles) else ""
    for _, problem in value_problems(values, dataset.classes, listed_in):
        where = case.label or case.name
        remedy = mask_remedy(where) if problem.fixed_values else problem.remedy
        raise UserError(Code.LABEL_INVALID, where, problem.what, remedy)


def is_mask(values: Collection[int]) -> bool:
    """Return whether these are the values of a mask of 0 and 255."""
    return MASK_VALUE in values and set(values) <= {0, MASK_VALUE}


def mask_instead_of_one(counts: Sequence[dict[int, int]]) -> int | None:
    """Return the index of the only label map with 255 if it has no 1, and all others except empty ones have 1."""
    masks = [index for index, label_map in enumerate(counts) if MASK_VALUE in label_map]
    others = [label_map for label_map in counts if MASK_VALUE not in label_map and set(label_map) != {0}]
    if len(masks) == 1 and 1 not in counts[masks[0]] and others and all(1 in label_map for label_map in others):
        return masks[0]
    return None


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
    masks = ({0}, {0, 1}, {0, MASK_VALUE}, {1}, {MASK_VALUE})
    are_masks = set(classes) in (set(), {0, 1}) and all(set(label_map) in masks for label_map in counts)
    if not _are_consecutive(present | {0}) and MASK_VALUE in present and are_masks:
        return Renumbering({0: 0, 1: 1, MASK_VALUE: 1}, {})
    is_one = mask_instead_of_one(counts) is not None
    if classes:
        if unlisted := sorted(present - classes.keys()):
            if unlisted == [MASK_VALUE] and is_one:
                return MEANS_ONE
            return f"the label value {unlisted[0]} has no class: name it in dataset.json or correct the label maps"
        return None if _are_consecutive(classes) else _in_order(classes)
    if _are_consecutive(present | {0}):
        return None
    if MASK_VALUE in present:
        if is_one:
            return MEANS_ONE
        return "255 occurs with other label values: name it in dataset.json, or set these voxels to 0"
    return _in_order({value: f"label {value}" if value else "background" for value in present | {0}})


def _in_order(classes: dict[int, str]) -> Renumbering:
    values = {old: new for new, old in enumerate(sorted(classes))}
    return Renumbering(values, {new: classes[old] for old, new in values.items()})


def _are_consecutive(values: set[int] | dict[int, str]) -> bool:
    return sorted(values) == list(range(len(values)))
