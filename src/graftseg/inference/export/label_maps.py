"""The label maps of a run that an export takes over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.predictions import extra_files, read_manifest
from graftseg.data.grouping import duplicate_case_error, labels_in
from graftseg.data.scans import scan_stem
from graftseg.inference.export.request import Request


def predictions_of(request: Request) -> Path:
    """The folder of label maps, by default the run's own; another network's are refused.

    A folder without a manifest is taken as it is: label maps that a person corrected are worth more.
    """
    folder = request.predictions or request.run.predictions
    if not folder.is_dir():
        raise UserError(
            Code.PREDICTIONS_MISMATCH,
            folder,
            "there are no label maps",
            "predict the scans first or name a folder as --predictions",
        )
    facts = request.run.manifest()
    known = {facts.get("weights"), (facts.get("best") or {}).get("sha256")}
    manifest = read_manifest(folder, "name a folder of label maps as --predictions")
    if manifest is not None and manifest.weights not in known:
        raise UserError(
            Code.PREDICTIONS_MISMATCH,
            folder,
            "holds label maps of another network",
            "name the folder of this run's label maps",
        )
    return folder


def label_map_of(folder: Path, case: str) -> Path | None:
    """The label map of a case, if there is one; of two nobody can say which is meant."""
    extras = extra_files(folder)
    own = (path for path in labels_in(folder) if path.name not in extras)
    found = [path for path in own if nfc(scan_stem(path)) == nfc(case)]
    if len(found) > 1:
        raise duplicate_case_error(found[1], found[0])
    return found[0] if found else None


def check_values(path: Path, labels: NDArray[Any], classes: Sequence[str]) -> None:
    """Refuse a label map with values that are no class."""
    top = int(labels.max(initial=0))
    if top >= len(classes):
        finding = f"the label value {top} is not among the classes 0 to {len(classes) - 1}"
        raise UserError(Code.EXPORT_UNSUPPORTED, path, finding, "correct the label map")
