"""Label maps from DICOM segmentations and RT structure sets, on the grid of a DICOM image.

The names of segments and ROIs decide which class they are, so their order may differ between cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.data.folders import visible_entries
from graftseg.data.formats import dicom_seg, rtstruct
from graftseg.data.formats.dicom_members import is_dicom
from graftseg.data.formats.dicom_planes import Planes, read_planes
from graftseg.data.formats.dicom_tags import AGAIN, pydicom_package, read_tags, user_errors, value
from graftseg.data.formats.scan import Guess, Scan
from graftseg.data.formats.structures import Structure

MAX_NAME = 64
"""Length of the longest name in DICOM. Longer class names are compared by their beginning."""
NAMED_STRUCTURES = 5
"""At most this many structures are named in a message."""


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
    """Read a label map ``(1, columns, rows, slices)`` on the grid of a DICOM image.

    A structure gets the label value of the class with its name. Structures that are not in ``classes`` are skipped,
    which is reported as a guess.
    """
    file = _label_file(path)
    structures = structures_of(file)
    values = _class_values(file, structures, classes)
    planes = read_planes(image)
    with user_errors(file):
        labels = _painted(file, values, planes, classes)
        return Scan(labels[None], planes.geometry, tuple(_guesses(file, structures, values)))


def common_classes(labels: Sequence[Path]) -> tuple[dict[int, str], UserError | None]:
    """Return the class list that the structures of several labels define, and an error if their names differ.

    The first label decides the values. Labels that cannot be read are skipped, because reading them reports the error.
    """
    named: dict[str, Structure] = {}
    first, other = None, None
    for path in labels:
        try:
            found = {_key(one.name): one for one in structures_of(path)}
        except UserError:
            continue
        if first is None:
            first, named = path, found
        elif found.keys() != named.keys():
            other = other or path
            new = [one for key, one in found.items() if key not in named]
            top = max(one.default for one in named.values())
            named |= {_key(one.name): Structure(0, one.name, top + rank) for rank, one in enumerate(new, start=1)}
    classes = {0: "background", **{one.default: one.name for one in named.values()}} if named else {}
    if first is None or other is None:
        return dict(sorted(classes.items())), None
    entries = ", ".join(f'"{one.name}": {rank}' for rank, one in enumerate(named.values(), start=1))
    finding = f"the names of its segments or ROIs differ from those of {first.name}"
    remedy = f'list the classes to use in dataset.json, as in {{"labels": {{"background": 0, {entries}}}}}'
    return dict(sorted(classes.items())), UserError(Code.LABEL_INVALID, other, finding, remedy)


def _painted(file: Path, values: Mapping[int, int], planes: Planes, classes: Mapping[int, str]) -> NDArray[np.uint16]:
    """Return the label map of structures with a class. Refuse voxels in two of them."""
    labels = np.zeros(planes.geometry.shape, np.uint16)
    masks = rtstruct.region_masks if _is_structure_set(file) else dicom_seg.segment_masks
    for mask in masks(file, planes, values):
        value, on_slice = values[mask.structure], labels[:, :, mask.plane]
        taken = on_slice[mask.pixels]
        if other := int(taken[taken != value].max(initial=0)):
            count = np.count_nonzero(taken == other)
            pixels = "1 pixel" if count == 1 else f"{count} pixels"
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
    found: dict[str, int] = {}
    for one in structures:
        if _key(one.name) not in value_of:
            continue
        if _key(one.name) in found:
            finding = f"two segments or ROIs have the name {one.name}"
            raise UserError(Code.LABEL_INVALID, file, finding, "merge them, or rename one of them")
        found[_key(one.name)] = one.number
    if not found:
        listed = _listed([one.name for one in structures])
        finding = (
            f"none of its segments or ROIs ({listed}) has the name of a class ({_listed([*classes.values()][1:])})"
        )
        raise UserError(Code.LABEL_INVALID, file, finding, "use the same names in dataset.json and in the label")
    return {number: value_of[key] for key, number in found.items() if value_of[key] != 0}


def _guesses(file: Path, structures: Sequence[Structure], values: Mapping[int, int]) -> Iterator[Guess]:
    if unlisted := [one.name for one in structures if one.number not in values]:
        what, remedy = "segments or ROIs that are not classes are ignored", "name them in dataset.json to use them"
        yield Guess(file, what, _listed(unlisted), remedy)
    skipped = rtstruct.skipped_contours(file, values) if _is_structure_set(file) else {}
    for kind, count in skipped.items():
        what = "contours that enclose no area are ignored"
        yield Guess(file, what, f"{count} {kind}", "export them as CLOSED_PLANAR with at least 3 points to use them")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_STRUCTURES]) + (", ..." if len(names) > NAMED_STRUCTURES else "")


def _key(name: str) -> str:
    """Return the form in which names are compared: without case, outer spaces and Unicode form."""
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
    pydicom = pydicom_package()
    with user_errors(file):
        found = pydicom.filereader.read_file_meta_info(file).get("MediaStorageSOPClassUID")
    found = found or value(file, read_tags(file, file, ("SOPClassUID",)), "SOPClassUID")
    if not found:
        finding = "the file is truncated, or its header has no SOPClassUID"
        raise UserError(Code.SCAN_DAMAGED, file, finding, AGAIN)
    return str(found)
