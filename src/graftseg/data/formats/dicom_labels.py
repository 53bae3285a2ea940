"""Label maps from DICOM segmentations and RT structure sets, whose names decide the classes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.names import has_control_characters, nfc
from graftseg.core.phrases import counted
from graftseg.data.folders import visible_entries
from graftseg.data.formats import dicom_seg, rtstruct
from graftseg.data.formats.dicom_members import is_dicom
from graftseg.data.formats.dicom_planes import Planes, read_planes
from graftseg.data.formats.dicom_structures import Mask, Structure
from graftseg.data.formats.dicom_tags import AGAIN, read_tags, user_errors, value
from graftseg.data.formats.scan import Guess, Scan

BACKGROUND = "background"  # class name of the value 0. A segment or ROI with this name is not a class
MAX_NAME = 64  # maximum length of a name in DICOM; longer class names are compared up to this length
NAMED_STRUCTURES = 5  # at most this many structures are named in a message


def is_dicom_label(path: Path) -> bool:
    """Return whether a DICOM file, or a folder, contains a segmentation or structure set, or cannot be read."""
    try:
        return bool(_label_files(path)) if path.is_dir() else _sop_class(path) in _LABEL_CLASSES
    except UserError:
        # reading the label reports the error
        return True


def structures_of(path: Path) -> list[Structure]:
    """Return the segments or ROIs of a DICOM label."""
    file = _label_file(path)
    with user_errors(file):
        return (rtstruct.regions_of if _is_structure_set(file) else dicom_seg.segments_of)(file)


def read_dicom_label(path: Path, image: Path, classes: Mapping[int, str]) -> Scan:
    """Read a label map ``(1, columns, rows, slices)`` on the grid of a DICOM image. Names decide the classes."""
    file = _label_file(path)
    structures = structures_of(file)
    values = _class_values(file, structures, classes)
    planes = read_planes(image)
    with user_errors(file):
        ignored: Counter[str] = Counter()
        if _is_structure_set(file):
            masks = rtstruct.region_masks(file, planes, values, ignored)
        else:
            masks = dicom_seg.segment_masks(file, planes, values)
        labels = _painted(file, masks, values, planes, classes)
        return Scan(labels[None], planes.geometry, tuple(_guesses(file, structures, values, ignored)))


def common_classes(labels: Sequence[Path]) -> tuple[dict[int, str], list[UserError]]:
    """Return the class list 1, 2, ... of the structures of several labels, and errors about names that differ."""
    names: dict[str, str] = {}
    problems: list[UserError] = []
    first: tuple[Path, set[str]] | None = None
    differing = None
    for path in labels:
        try:
            structures = structures_of(path)
        except UserError:  # reading the label reports the error
            continue
        invalid = {structure: problem for structure in structures if (problem := _name_problem(structure))}
        for structure, problem in invalid.items():
            remedy = f"rename the {structure.kind}, or list the classes to use in dataset.json"
            problems.append(UserError(Code.LABEL_INVALID, _label_file(path), problem, remedy))
        valid = {_key(structure.name): structure.name for structure in structures if structure not in invalid}
        valid.pop(BACKGROUND, None)
        names |= {key: name for key, name in valid.items() if key not in names}
        if not invalid:
            first = first or (path, {*valid})
            differing = differing or (path if {*valid} != first[1] else None)
    classes = {0: BACKGROUND, **dict(enumerate(names.values(), start=1))} if names else {}
    if first is not None and differing is not None:
        values = {name: value for value, name in classes.items()}
        # escape unprintable characters as JSON does, because the error would escape them differently
        listed = json.dumps({"labels": values}, ensure_ascii=not all(map(str.isprintable, values)))
        finding = f"the names of its segments or ROIs differ from those of {first[0].name}"
        remedy = f"list the classes to use in dataset.json, as in {listed}"
        problems.append(UserError(Code.LABEL_INVALID, differing, finding, remedy))
    return classes, problems


def _name_problem(structure: Structure) -> str:
    """Describe why a name cannot be the name of a class, or return an empty string."""
    if not structure.name:
        return f"{structure} has no name"
    if has_control_characters(structure.name):
        return f"the name of {structure} ({structure.name!a:.60}) contains control characters"
    return ""


def _painted(
    file: Path, masks: Iterator[Mask], values: Mapping[int, int], planes: Planes, classes: Mapping[int, str]
) -> NDArray[np.uint16]:
    """Return the label map of all structures with a class. Raise a UserError if two structures overlap."""
    labels = np.zeros(planes.geometry.shape, np.uint16)
    for mask in masks:
        value, on_slice = values[mask.structure], labels[:, :, mask.plane]
        taken = on_slice[mask.pixels]
        if other := int(taken[taken != value].max(initial=0)):
            count = np.count_nonzero(taken == other)
            pixels = counted(int(count), "pixel")
            finding = f"{classes[other]} and {classes[value]} overlap in {pixels} of slice {mask.plane + 1}"
            remedy = "remove the overlap, or list only one of the two in dataset.json"
            raise UserError(Code.LABEL_INVALID, file, finding, remedy)
        on_slice[mask.pixels] = value
    return labels


def _class_values(file: Path, structures: Sequence[Structure], classes: Mapping[int, str]) -> dict[int, int]:
    """Return the label value of each structure with the name of a class, by number of the structure."""
    if not classes:
        finding = "the names of its segments or ROIs need a class list"
        remedy = 'name the classes in dataset.json, as in {"labels": {"background": 0, "liver": 1}}'
        raise UserError(Code.LABEL_INVALID, file, finding, remedy)
    value_of = {_key(name): value for value, name in classes.items()}
    by_key: dict[str, Structure] = {}
    for structure in structures:
        key = _key(structure.name)
        if key not in value_of:
            continue
        if other := by_key.get(key):
            finding = f"{other} and {structure} have the same name, {structure.name}"
            raise UserError(Code.LABEL_INVALID, file, finding, "merge them, or rename one of them")
        by_key[key] = structure
    if not by_key:
        listed = _listed([structure.name or str(structure) for structure in structures])
        finding = (
            f"none of its segments or ROIs ({listed}) has the name of a class ({_listed([*classes.values()][1:])})"
        )
        raise UserError(Code.LABEL_INVALID, file, finding, "use the same names in dataset.json and in the label")
    return {structure.number: value_of[key] for key, structure in by_key.items() if value_of[key] != 0}


def _guesses(
    file: Path, structures: Sequence[Structure], values: Mapping[int, int], ignored: Mapping[str, int]
) -> Iterator[Guess]:
    if unlisted := [each.name or str(each) for each in structures if each.number not in values]:
        what, remedy = "segments or ROIs that are not classes are ignored", "name them in dataset.json to use them"
        yield Guess(file, what, _listed(unlisted), remedy)
    for kind, count in ignored.items():
        if kind == rtstruct.REPEATED:
            what, remedy = "copies of contours are ignored", "remove the copies, or correct them if they are holes"
        else:
            what = "contours that enclose no area are ignored"
            remedy = "export them as CLOSED_PLANAR with at least 3 points to use them"
        yield Guess(file, what, f"{count} {kind}", remedy)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(in_one_line, names[:NAMED_STRUCTURES])) + (", ..." if len(names) > NAMED_STRUCTURES else "")


def _key(name: str) -> str:
    """Return a name for comparisons, which ignore case, outer spaces and the Unicode form."""
    return nfc(name).strip()[:MAX_NAME].strip().casefold()


_LABEL_CLASSES = (*dicom_seg.SOP_CLASSES, *rtstruct.SOP_CLASSES)


def _is_structure_set(file: Path) -> bool:
    return _sop_class(file) in rtstruct.SOP_CLASSES


def _label_file(path: Path) -> Path:
    """Return the file of a label: the path itself, or the only label in a folder."""
    files = _label_files(path) if path.is_dir() else [path]
    if len(files) != 1:
        finding = f"{len(files)} segmentations and structure sets in one folder"
        raise UserError(Code.LABEL_INVALID, path, finding, "keep one file per case")
    return files[0]


def _label_files(folder: Path) -> list[Path]:
    files = [file for file in visible_entries(folder) if file.is_file() and is_dicom(file)]
    return [file for file in files if _sop_class(file) in _LABEL_CLASSES]


def _sop_class(file: Path) -> str:
    """Return the SOP class UID from the file meta, or from the data set if the file meta has none."""
    header = read_tags(file, file, ("SOPClassUID",))
    uid = value(file, header.file_meta, "MediaStorageSOPClassUID") or value(file, header, "SOPClassUID")
    if not uid:
        finding = "the file is truncated, or its header has no SOPClassUID"
        raise UserError(Code.SCAN_DAMAGED, file, finding, AGAIN)
    return str(uid)
