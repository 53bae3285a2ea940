"""What a folder holds."""

from collections.abc import Iterable
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.permissions import refuse_closed


def visible(folder: Path) -> list[Path]:
    """What a folder holds, by name, without hidden files (``._case.nii.gz``, ``.DS_Store``)."""
    refuse_closed(folder)
    refuse_lost(folder)
    try:
        entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in entries if not path.name.startswith("."))
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, folder, f"the folder cannot be read ({error.strerror})", "check its permissions"
        ) from None


def refuse_lost(path: Path) -> None:
    """Raise a UserError for a link that leads nowhere, or back to itself: what it stood for must not be left out."""
    if path.is_symlink() and not path.exists():
        raise UserError(Code.READ_FAILED, path, "the link leads nowhere", "correct it, or remove it")


def with_children(folder: Path) -> list[Path]:
    """A folder and the folders in it."""
    return [folder, *(path for path in visible(folder) if path.is_dir())]
