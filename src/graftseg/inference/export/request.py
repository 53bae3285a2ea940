"""What an export is asked for, and the ways of writing that the kinds share."""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder as atomic_folder
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
    """Import an optional package; if it is missing, the error names the extra that installs it."""
    try:
        return import_module(package)
    except ImportError:
        raise _missing(package, extra) from None


def version_of(package: str, extra: str) -> str:
    """Return the version of an optional package without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise _missing(package, extra) from None


def _missing(package: str, extra: str) -> UserError:
    remedy = f"run pip install '.[{extra}]' in the folder of graftseg"
    return UserError(Code.PACKAGE_MISSING, package, "this export needs the package and it is missing", remedy)
