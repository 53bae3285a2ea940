"""Reference label maps: files in a folder, or labels of a store's test cases on the grids of their scans."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.names import by_nfc, nfc
from graftseg.core.phrases import and_more
from graftseg.core.predictions import find_manifest
from graftseg.data.folders import visible_entries
from graftseg.data.grid import to_source_axes
from graftseg.data.grouping import label_maps_by_case, match_labels
from graftseg.data.scans import Scan, may_be_dicom, read_label
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store

logger = logging.getLogger(__name__)
ORIGINAL_LABELS = "give the folder of the original label maps as --reference"
TESTED_ON = "tested_on"  # JSON key, in the description of a score table, for the identity of the store's test cases


@dataclass(frozen=True)
class Reference:
    """A reference label map: its file, and the function that reads it on the grid of its scan."""

    path: Path
    read: Callable[[], Scan]


def references_in(
    path: Path,
    cases: Collection[str] = (),
    images: Mapping[str, Path] | None = None,
    classes: Mapping[int, str] | None = None,
) -> dict[str, Reference]:
    """Return the references in a folder of label maps or in a store, by case.

    cases: names of the cases; a label map that matches exactly one of them gets its name (``a_seg`` becomes ``a``)
    images: one image file of each case, for references that are DICOM segmentations or structure sets
    classes: class names by label value, also for DICOM references
    """
    if is_store(path):
        return stored_references(open_store(path))
    files = label_map_files(path)
    unused = sorted({*visible_entries(path)} - {*files.values()})
    if ignored := [entry.name for entry in unused if may_be_dicom(entry)]:
        names = and_more(repr(ignored[0]), len(ignored))
        logger.warning("%s: ignoring %s: DICOM, but no segmentation or structure set", path, names)
    case_of = match_labels(files, cases)
    image_of = by_nfc(images or {})
    references = {}
    for name, file in files.items():
        case = case_of.get(name, name)
        references[case] = Reference(file, partial(read_label, file, image_of.get(nfc(case)), classes))
    return references


def predicted_images(folder: Path) -> dict[str, Path]:
    """Return one image file of each case from the manifest of a folder of label maps. Ignore an invalid manifest."""
    manifest = find_manifest(folder)
    return {case.case: folder / case.images[0] for case in (manifest.cases if manifest else ()) if case.images}


def stored_reference(store: Store, case: StoredCase, remedy: str = ORIGINAL_LABELS) -> Reference:
    """Return the label of a stored case on the grid of its scan. Raise an error if the case was resampled."""
    _require_source_grid(store, case, remedy)
    return Reference(store.path / CASES / str(case.label), partial(_on_source_grid, store.read_label, case))


def stored_image(store: Store, case: StoredCase) -> Scan:
    """Return the image of a stored case on the grid of its scan. Raise an error if the case was resampled."""
    _require_source_grid(store, case, "predict the scan itself")
    return _on_source_grid(lambda case: store.read_image(case).astype(np.float32), case)


def _require_source_grid(store: Store, case: StoredCase, remedy: str) -> None:
    if case.grid.is_resampled:
        finding = f"its scans were resampled (case {case.name}), so they are not on their original grids"
        raise UserError(Code.GEOMETRY_MISMATCH, store.path, finding, remedy)


def _on_source_grid(read: Callable[[StoredCase], NDArray[Any]], case: StoredCase) -> Scan:
    return Scan(to_source_axes(read(case), case.grid), case.geometry)


def stored_references(store: Store) -> dict[str, Reference]:
    """Return the labels of a store's test cases. Raise an error if a label was resampled."""
    labeled = [case for case in store.of("test") if case.label is not None]
    if not labeled:
        finding = "the store has no labeled test case"
        raise UserError(Code.NO_TEST_CASES, store.path, finding, "give a folder of reference label maps")
    return {case.name: stored_reference(store, case) for case in labeled}


def describe_references(path: Path) -> dict[str, str]:
    """Return the path of the references and, for a store, the identity of its test cases, as JSON values."""
    identity = {TESTED_ON: open_store(path).test_identity} if is_store(path) else {}
    return {"references": str(path.resolve()), **identity}


def label_map_files(folder: Path) -> dict[str, Path]:
    """Return the label maps in a folder by case. Raise an error if it contains none."""
    remedy = "give the folder of the label maps"
    if not folder.is_dir():
        raise UserError(Code.NOT_A_FOLDER, folder, "not a folder", remedy)
    files = label_maps_by_case(folder)
    if not files:
        raise UserError(Code.FILE_MISSING, folder, "contains no label map", remedy)
    return files
