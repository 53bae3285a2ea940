"""What an export is asked for, and the ways of writing that the kinds share."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from graftseg.errors import UserError
from graftseg.files import PARTIAL, UMASK
from graftseg.runs import RunFolder


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


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target`` that takes its name if the block ends well, and vanishes otherwise."""
    partial = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=target.parent))
        yield partial
        partial.chmod(0o777 & ~UMASK)
        partial.rename(target)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UserError(target, f"cannot be written ({reason})", "check free disk space and permissions") from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def needed(package: str, extra: str) -> ModuleType:
    """An optional package, or the one line that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        remedy = f"run: pip install 'graftseg[{extra}]'"
        raise UserError(package.partition(".")[0], "this export needs the package and it is missing", remedy) from None
