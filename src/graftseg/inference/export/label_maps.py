"""The label maps that an export uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.predictions import extra_files, read_manifest
from graftseg.data.grouping import duplicate_case_error, labels_in
from graftseg.data.scans import scan_stem
from graftseg.inference.export.request import Request


@dataclass(frozen=True)
class LabelMaps:
    """A folder of label maps and its files by case name in Unicode NFC."""

    folder: Path
    files: dict[str, list[Path]]

    def of(self, case: str) -> Path | None:
        """Return the label map of a case or None. Raise an error if a case has two."""
        found = self.files.get(nfc(case), [])
        if len(found) > 1:
            raise duplicate_case_error(found[1], found[0])
        return found[0] if found else None


def label_maps_in(folder: Path) -> LabelMaps:
    """List the label maps in a folder, without other outputs such as probabilities."""
    files: dict[str, list[Path]] = {}
    extras = extra_files(folder)
    for path in labels_in(folder):
        if path.name not in extras:
            files.setdefault(nfc(scan_stem(path)), []).append(path)
    return LabelMaps(folder, files)


def label_maps_of(request: Request) -> LabelMaps:
    """Return the requested label maps, by default those of the run. Raise an error for those of another network.

    A folder without a manifest is accepted, because it may contain label maps that a person corrected.
    """
    folder = request.predictions or request.run.predictions
    if not folder.is_dir():
        remedy = "predict the scans first or name a folder as --predictions"
        raise UserError(Code.FOLDER_MISSING, folder, "there are no label maps", remedy)
    facts = request.run.manifest()
    known = {facts.get("weights"), (facts.get("best") or {}).get("sha256")}
    manifest = read_manifest(folder, "name a folder of label maps as --predictions")
    if manifest is not None and manifest.weights not in known:
        finding = "contains label maps of another network"
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, finding, "name the folder of this run's label maps")
    return label_maps_in(folder)


def check_values(path: Path, labels: NDArray[Any], classes: Sequence[str]) -> None:
    """Raise an error if a label map contains a value that is not a class."""
    top = int(labels.max(initial=0))
    if top >= len(classes):
        finding = f"label value {top} is not one of the classes 0 to {len(classes) - 1}"
        raise UserError(Code.LABEL_INVALID, path, finding, "correct the label map")
