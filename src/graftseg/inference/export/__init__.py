"""Export of a run for other programs. Each format is a module in the table ``KINDS``, imported when it is used.

The function ``write`` of a module takes a ``Request`` and returns lines to print. If it fails, it writes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from graftseg.core.errors import Code, UserError
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import RunFolder
from graftseg.data.grouping import label_maps_by_case


@dataclass(frozen=True)
class Request:
    """A run, the output path, and the options of formats."""

    run: RunFolder
    out: Path
    check: Path | None = None  # scan on which the exported network is compared with the original
    data: Path | None = None  # folder of scans
    predictions: Path | None = None  # folder of the label maps of these scans
    codes: Path | None = None  # file with SNOMED CT codes of the classes

    @property
    def label_maps(self) -> Path:
        """Return the folder of label maps, by default the predictions of the run."""
        return self.predictions or self.run.predictions


def label_maps_of(request: Request) -> dict[str, Path]:
    """Return the requested label maps by case. Raise an error for label maps of another network."""
    folder = request.label_maps
    if not folder.is_dir():
        remedy = "predict the scans first or name a folder as --predictions"
        raise UserError(Code.FOLDER_MISSING, folder, "there are no label maps", remedy)
    manifest = request.run.manifest()
    accepted = {manifest.get("weights"), (manifest.get("best") or {}).get("sha256")}
    predicted = read_manifest(folder, "name a folder of label maps as --predictions")
    # without a manifest, the folder may contain label maps that a person corrected
    if predicted is not None and predicted.weights not in accepted:
        finding = "contains label maps of another network"
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, finding, "name the folder of this run's label maps")
    return label_maps_by_case(folder)


class Kind(NamedTuple):
    """A format: its module, and the options that it uses."""

    module: str
    options: tuple[str, ...] = ()


KINDS = {
    "onnx": Kind("onnx_model", ("check",)),
    "weights": Kind("weights"),
    "monai": Kind("monai_bundle"),
    "nnunet": Kind("nnunet", ("data", "predictions")),
    "dicomseg": Kind("dicomseg", ("data", "predictions", "codes")),
}


def export_run(kind: str, request: Request) -> list[str]:
    """Write a run in the format ``kind``. Raise an error for invalid options before anything is written."""
    if kind not in KINDS:
        raise UserError(Code.OPTION_INVALID, f"export {kind}", "unknown format", f"choose one of {', '.join(KINDS)}")
    options = [name for name in ("check", "data", "predictions", "codes") if getattr(request, name) is not None]
    if unused := [name for name in options if name not in KINDS[kind].options]:
        users = " and ".join(name for name, entry in KINDS.items() if unused[0] in entry.options)
        finding = f"export {kind} does not use this option"
        raise UserError(Code.OPTION_INVALID, f"--{unused[0]}", finding, f"leave it out; only {users} can use it")
    request.run.training_manifest()
    if request.out.exists() or request.out.is_symlink():
        raise UserError(Code.TARGET_EXISTS, request.out, "already exists", "name another --out or remove it")
    write: Callable[[Request], list[str]] = import_module(f"graftseg.inference.export.{KINDS[kind].module}").write
    return write(request)
