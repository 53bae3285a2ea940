"""Reference label maps: files in a folder, or labels of a store's test cases in the geometry of their scans."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.predictions import extra_files
from graftseg.data.grid import to_source_axes
from graftseg.data.grouping import duplicate_case_error, labels_in
from graftseg.data.scans import Scan, read_label, scan_stem
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store

TESTED_ON = "tested_on"
"""JSON key of the store's test identity in the description of a score table."""


class Reference(Protocol):
    """A reference label map that can be read."""

    @property
    def path(self) -> Path:
        """Return the file that contains the label map."""

    def read(self) -> Scan:
        """Return the label map ``(*space)`` with its geometry."""


@dataclass(frozen=True)
class LabelFile:
    """A label map file."""

    path: Path

    def read(self) -> Scan:
        """Read the file."""
        return read_label(self.path)


@dataclass(frozen=True)
class StoredLabel:
    """The label of a stored case that was not resampled."""

    store: Store
    case: StoredCase

    @property
    def path(self) -> Path:
        """Return the stored file."""
        return self.store.path / CASES / str(self.case.label)

    def read(self) -> Scan:
        """Verify and read the label, and restore the axis order of the scan."""
        self.store.verify_file(self.case, str(self.case.label))
        label = np.asarray(self.store.label(self.case))
        return Scan(to_source_axes(label, self.case.grid), self.case.geometry)


def references_in(path: Path) -> Mapping[str, Reference]:
    """Return the references in a folder of label maps or in a store, by case."""
    if is_store(path):
        return stored_references(open_store(path))
    return {case: LabelFile(file) for case, file in label_map_files(path).items()}


def stored_references(store: Store) -> dict[str, StoredLabel]:
    """Return the labels of a store's test cases. Raise an error for resampled labels, which no expert drew."""
    labeled = [case for case in store.of("test") if case.label is not None]
    if not labeled:
        finding = "the store has no labeled test case"
        raise UserError(Code.NO_TEST_CASES, store.path, finding, "give a folder of reference label maps")
    for case in labeled:
        if case.grid.prepared_shape != case.grid.oriented_shape:
            finding = f"its labels were resampled (case {case.name}), so they are not on the grids of the scans"
            remedy = "give the folder of the original label maps as --reference"
            raise UserError(Code.GEOMETRY_MISMATCH, store.path, finding, remedy)
    return {case.name: StoredLabel(store, case) for case in labeled}


def describe_references(path: Path) -> dict[str, str]:
    """Return the path of the references and, for a store, the identity of its test cases."""
    place = {"references": str(path.resolve())}
    return place | ({TESTED_ON: open_store(path).test_identity} if is_store(path) else {})


def label_map_files(folder: Path) -> dict[str, Path]:
    """Return the label maps in a folder by case, without other outputs such as probabilities."""
    if not folder.is_dir():
        raise UserError(Code.NOT_A_FOLDER, folder, "not a folder", "give the folder of the label maps")
    found: dict[str, Path] = {}
    extras = extra_files(folder)
    for path in labels_in(folder):
        if path.name not in extras and (other := found.setdefault(scan_stem(path), path)) != path:
            raise duplicate_case_error(path, other)
    if not found:
        raise UserError(Code.FILE_MISSING, folder, "contains no label map", "give the folder of the label maps")
    return found
