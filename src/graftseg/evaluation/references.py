"""Reference label maps: files in a folder, or the labels of a store's test cases in the geometry of their scans."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.predictions import extra_files
from graftseg.data.grid import to_source_axes
from graftseg.data.grouping import duplicate_case_error, labels_in
from graftseg.data.scans import Scan, read_label, scan_stem
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store

TESTED_ON = "tested_on"
"""What the hash of a store's test cases is called beside scores."""


class Reference(Protocol):
    """A label map that can be read."""

    @property
    def path(self) -> Path:
        """The file it lies in."""

    def read(self) -> Scan:
        """The label map ``(*space)`` with its geometry."""


@dataclass(frozen=True)
class LabelFile:
    """A label map on disk."""

    path: Path

    def read(self) -> Scan:
        """Read the file."""
        return read_label(self.path)


@dataclass(frozen=True)
class StoredLabel:
    """The label of a stored case whose voxels are those of its scan."""

    store: Store
    case: StoredCase

    @property
    def path(self) -> Path:
        """The stored file."""
        return self.store.path / CASES / str(self.case.label)

    def read(self) -> Scan:
        """Read the label, if it is what was prepared, and turn its axes back to those of the scan."""
        self.store.verify_file(self.case, str(self.case.label))
        label = np.asarray(self.store.label(self.case))
        return Scan(to_source_axes(label, self.case.grid), self.case.geometry)


def references_in(path: Path) -> Mapping[str, Reference]:
    """The references of a folder of label maps or of a store, by case."""
    if is_store(path):
        return stored_references(open_store(path))
    return {case: LabelFile(file) for case, file in label_maps(path).items()}


def stored_references(store: Store) -> dict[str, StoredLabel]:
    """The labels of the test cases; a resampled label is refused, for it is not what an expert drew."""
    labeled = [case for case in store.of("test") if case.label is not None]
    if not labeled:
        raise UserError(
            Code.NO_TEST_CASES,
            store.path,
            "the store has no labeled test case",
            "give a folder of reference label maps",
        )
    for case in labeled:
        if case.grid.prepared_shape != case.grid.oriented_shape:
            finding = f"its labels were resampled (case {case.name}) and are not those of the scans"
            raise UserError(
                Code.NO_TEST_CASES, store.path, finding, "give the folder of the original label maps as --reference"
            )
    return {case.name: StoredLabel(store, case) for case in labeled}


def describe_references(path: Path) -> dict[str, str]:
    """What is kept of references beside scores against them: their place, and what the tests of a store depend on."""
    place = {"references": str(path.resolve())}
    return place | ({TESTED_ON: open_store(path).test_identity} if is_store(path) else {})


def label_maps(folder: Path) -> dict[str, Path]:
    """The label maps of a folder by case; what was written beside them, such as probabilities, is none."""
    if not folder.is_dir():
        raise UserError(Code.NO_TEST_CASES, folder, "not a folder", "give the folder that holds the label maps")
    found: dict[str, Path] = {}
    extras = extra_files(folder)
    for path in labels_in(folder):
        if path.name not in extras and (other := found.setdefault(nfc(scan_stem(path)), path)) != path:
            raise duplicate_case_error(path, other)
    if not found:
        raise UserError(
            Code.PREDICTIONS_MISMATCH, folder, "no label map in it", "give the folder that holds the label maps"
        )
    return {scan_stem(path): path for path in found.values()}
