"""Export of a run for other programs. Each format is a module in the table ``KINDS``.

The function ``write`` of a module takes a ``Request`` and returns lines to print. If it fails, it writes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from graftseg.core.errors import Code, UserError
from graftseg.inference.export.request import Request

__all__ = ["KINDS", "Kind", "Request", "export_run"]


@dataclass(frozen=True)
class Kind:
    """A format: its description, its module, and the options that it uses."""

    about: str
    module: str
    options: tuple[str, ...] = ()

    @property
    def write(self) -> Callable[[Request], list[str]]:
        """Import the module and return its ``write`` function."""
        function: Callable[[Request], list[str]] = import_module(f"graftseg.inference.export.{self.module}").write
        return function


KINDS: dict[str, Kind] = {
    "onnx": Kind("the network for onnxruntime", "onnx_model", ("check",)),
    "weights": Kind("weights and recipe in one safetensors file", "weights"),
    "monai": Kind("a MONAI bundle", "monai_bundle"),
    "nnunet": Kind("a pseudo-labeled nnU-Net data set", "nnunet", ("data", "predictions")),
    "dicomseg": Kind("label maps as DICOM segmentations", "dicomseg", ("data", "predictions", "codes")),
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
    return KINDS[kind].write(request)
