"""Entries of folders, broken links, and required folders."""

from collections.abc import Iterable
from pathlib import Path

from graftseg.core.errors import Code, UserError

HIDDEN_ON_WINDOWS = ("thumbs.db", "desktop.ini")


def visible_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted by name and without hidden files (``._case.nii.gz``, ``Thumbs.db``)."""
    refuse_broken_link(folder)
    entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if not _is_hidden(path))


def refuse_broken_link(path: Path) -> None:
    """Raise a UserError for a broken link, so that its target is not silently skipped."""
    if path.is_symlink() and not path.exists():
        raise UserError(Code.READ_FAILED, path, "broken link", "correct or remove it")


def require_folder(path: Path, remedy: str) -> None:
    """Raise a UserError unless the path is a folder."""
    if not path.exists():
        raise UserError(Code.FOLDER_MISSING, path, "the folder does not exist", remedy)
    if not path.is_dir():
        raise UserError(Code.NOT_A_FOLDER, path, "a file, not a folder", remedy)


def with_children(folder: Path) -> list[Path]:
    """Return a folder and its direct subfolders."""
    return [folder, *(path for path in visible_entries(folder) if path.is_dir())]


def _is_hidden(path: Path) -> bool:
    """Return whether a file manager hides a file because of its name."""
    return path.name.startswith(".") or path.name.lower() in HIDDEN_ON_WINDOWS
