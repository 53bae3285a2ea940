"""A run in a form that other programs use: one file for each kind, and the table of them.

Every kind is a function from a ``Request`` to lines that tell what was written. Nothing is there before all of it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from graftseg.core.errors import Code, UserError
from graftseg.inference.export.request import Request

__all__ = ["KINDS", "Kind", "Request", "export_run"]


@dataclass(frozen=True)
class Kind:
    """What is written, the module that does it, and which of the options it takes."""

    about: str
    module: str
    takes: tuple[str, ...] = ()

    @property
    def write(self) -> Callable[[Request], list[str]]:
        """The function, imported when it is asked for."""
        function: Callable[[Request], list[str]] = import_module(f"graftseg.inference.export.{self.module}").write
        return function


KINDS: dict[str, Kind] = {
    "onnx": Kind("the network for onnxruntime", "onnx_model", ("check",)),
    "weights": Kind("weights and recipe in one safetensors file", "weights"),
    "monai": Kind("a MONAI bundle", "monai_bundle"),
    "nnunet": Kind("a pseudo-labeled nnU-Net data set", "nnunet", ("data", "predictions")),
    "dicomseg": Kind("label maps as DICOM segmentations", "dicomseg", ("data", "predictions")),
}


def export_run(kind: str, request: Request) -> list[str]:
    """Write a run as a kind of the table; what cannot be is refused before anything is touched."""
    if kind not in KINDS:
        raise UserError(Code.OPTION_INVALID, f"export {kind}", "unknown", f"choose one of {', '.join(KINDS)}")
    given = {"check": request.check, "data": request.data, "predictions": request.predictions}
    if unused := [name for name, value in given.items() if value is not None and name not in KINDS[kind].takes]:
        takers = " and ".join(name for name, other in KINDS.items() if unused[0] in other.takes)
        raise UserError(
            Code.OPTION_INVALID,
            f"--{unused[0]}",
            f"export {kind} has no use for it",
            f"leave it out, it is for {takers}",
        )
    request.run.training_manifest()
    if request.out.exists() or request.out.is_symlink():
        raise UserError(Code.TARGET_EXISTS, request.out, "exists already", "name another --out or remove it")
    return KINDS[kind].write(request)
