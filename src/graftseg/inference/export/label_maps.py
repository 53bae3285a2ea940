"""The label maps that an export uses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.predictions import read_manifest
from graftseg.data.grouping import label_maps_by_case
from graftseg.inference.export.request import Request


def label_maps_of(request: Request) -> dict[str, Path]:
    """Return the requested label maps by case. Raise an error for label maps of another network.

    A folder without a manifest is accepted, because it may contain label maps that a person corrected.
    """
    folder = request.label_maps
    if not folder.is_dir():
        remedy = "predict the scans first or name a folder as --predictions"
        raise UserError(Code.FOLDER_MISSING, folder, "there are no label maps", remedy)
    facts = request.run.manifest()
    known = {facts.get("weights"), (facts.get("best") or {}).get("sha256")}
    manifest = read_manifest(folder, "name a folder of label maps as --predictions")
    if manifest is not None and manifest.weights not in known:
        finding = "contains label maps of another network"
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, finding, "name the folder of this run's label maps")
    return label_maps_by_case(folder)


def check_values(path: Path, labels: NDArray[Any], classes: Sequence[str]) -> None:
    """Raise an error if a label map contains a value that is not a class."""
    top = int(labels.max(initial=0))
    if top >= len(classes):
        finding = f"label value {top} is not one of the classes 0 to {len(classes) - 1}"
        raise UserError(Code.LABEL_INVALID, path, finding, "correct the label map")
