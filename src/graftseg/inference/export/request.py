"""The request of an export, and functions that several formats share."""

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
    """A run, the output path, and options of some formats.

    ``check`` is a scan for comparing the exported network with the original. ``data`` is a folder of scans and
    ``predictions`` the folder of their label maps.
    """

    run: RunFolder
    out: Path
    check: Path | None = None
    data: Path | None = None
    predictions: Path | None = None

    @property
    def label_maps(self) -> Path:
        """Return the folder of label maps, by default that of the run."""
        return self.predictions or self.run.predictions


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
