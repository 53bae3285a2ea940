"""Folders that this person must not look into, told by their own names rather than by those of files in them."""

import errno
import os
from pathlib import Path

from graftseg.core.errors import Code, UserError

REMEDY = "give yourself the right to read it and what is in it (chmod -R u+rX), or name another folder"


def refuse_closed(folder: Path) -> None:
    """Raise a UserError where a folder is there and must not be looked into, or one above it."""
    try:
        with os.scandir(folder):
            _enter(folder)
    except PermissionError as error:
        raise denied(error, folder) from None
    except OSError:
        # whoever wants something of it says what else is wrong
        return


def refuse_unwritable(folder: Path) -> None:
    """Raise a UserError where nothing could be written into a folder, or where it could not be made."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if there.exists() and not there.is_dir():
        raise UserError(
            Code.DAMAGED_FILE, there, "a file, not a folder that could be written into", "name another folder"
        )
    if os.access(there, os.W_OK | os.X_OK):
        return
    if _is_read_only(there):
        finding = f"the folder cannot be written into ({os.strerror(errno.EROFS)})"
        raise UserError(Code.PERMISSION_DENIED, there, finding, "name a folder on another file system")
    raise UserError(
        Code.PERMISSION_DENIED,
        there,
        "the folder cannot be written into",
        "give yourself the right to write there (chmod u+wx)",
    )


def refuse_target(file: Path) -> None:
    """Raise a UserError where a file could not be written, before work is done for it."""
    if file.exists() and not file.is_file():
        raise UserError(Code.UNSAFE_TARGET, file, "exists and is not a plain file", "name another file")
    refuse_unwritable(file.parent)


def denied(error: PermissionError, path: Path | None = None) -> UserError:
    """What to tell of a path that must not be touched: the folder that bars the way to it, or else the path itself."""
    reason = error.strerror or str(error)
    if path is None and not isinstance(error.filename, str | os.PathLike):
        return UserError(Code.PERMISSION_DENIED, "a file", reason, "check disk and permissions")
    barred = path or Path(error.filename)
    above = next((folder for folder in reversed(barred.parents) if _is_closed(folder)), None)
    if above is not None or barred.is_dir():
        return UserError(
            Code.PERMISSION_DENIED, above or barred, f"the folder must not be looked into ({reason})", REMEDY
        )
    return UserError(Code.PERMISSION_DENIED, barred, reason, "check disk and permissions")


def _is_read_only(folder: Path) -> bool:
    """Whether no right would help, since nothing is written into the file system of a folder."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _is_closed(folder: Path) -> bool:
    try:
        _enter(folder)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _enter(folder: Path) -> None:
    """Reach for something in a folder, which takes another right than to list it."""
    (folder / "..").stat()
