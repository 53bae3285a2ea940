"""The request of an export, and functions that several formats share."""

from dataclasses import dataclass
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import RunFolder
from graftseg.data.grouping import label_maps_by_case


@dataclass(frozen=True)
class Request:
    """A run, the output path, and the options of formats.

    check: scan on which the exported network is compared with the original
    data: folder of scans
    predictions: folder of the label maps of these scans
    codes: file with SNOMED CT codes of the classes
    """

    run: RunFolder
    out: Path
    check: Path | None = None
    data: Path | None = None
    predictions: Path | None = None
    codes: Path | None = None

    @property
    def label_maps(self) -> Path:
        """Return the folder of label maps, by default the predictions of the run."""
        return self.predictions or self.run.predictions


def label_maps_of(request: Request) -> dict[str, Path]:
    """Return the requested label maps by case. Raise an error for label maps of another network.

    A folder without a manifest is accepted, because it may contain label maps that a person corrected.
    """
    folder = request.label_maps
    if not folder.is_dir():
        remedy = "predict the scans first or name a folder as --predictions"
        raise UserError(Code.FOLDER_MISSING, folder, "there are no label maps", remedy)
    facts = request.run.manifest()
    accepted = {facts.get("weights"), (facts.get("best") or {}).get("sha256")}
    manifest = read_manifest(folder, "name a folder of label maps as --predictions")
    if manifest is not None and manifest.weights not in accepted:
        finding = "contains label maps of another network"
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, finding, "name the folder of this run's label maps")
    return label_maps_by_case(folder)
