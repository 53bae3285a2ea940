"""What an export is asked for, and the ways of writing that the kinds share."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from graftseg.core.errors import Code, UserError
from graftseg.core.files import new_folder as new_folder
from graftseg.core.run_folder import RunFolder


@dataclass(frozen=True)
class Request:
    """A run, where to write, and what some kinds need beside it.

    ``check`` is a scan to compare the exported network on, ``data`` the scans that label maps belong to, and
    ``predictions`` the folder of these label maps.
    """

    run: RunFolder
    out: Path
    check: Path | None = None
    data: Path | None = None
    predictions: Path | None = None


def needed(package: str, extra: str) -> ModuleType:
    """An optional package, or the one line that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        remedy = f"run pip install '.[{extra}]' in the folder of graftseg"
        raise UserError(
            Code.PACKAGE_MISSING, package.partition(".")[0], "this export needs the package and it is missing", remedy
        ) from None
