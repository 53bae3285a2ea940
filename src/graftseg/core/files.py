"""Files that are either wholly there or not there at all."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError

PARTIAL = ".partial-"
DISK = "check free disk space and permissions"
"""What mends every error of writing."""
# the mask can only be read by setting it, which is not safe once there are threads
UMASK = os.umask(0o077)
os.umask(UMASK)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that replaces it when the block ends well, and vanishes otherwise.

    The temporary name keeps the suffixes of the target (``.nii.gz``), since some writers choose the format by it.
    A full disk or a folder that must not be written is a user's matter, told in one sentence. So is a device or a
    pipe in the place of the target, which would be replaced.
    """
    with _told_of(target), _partial_beside(target) as partial:
        yield partial
        _make_ready(partial)
        partial.replace(target)


@contextmanager
def _told_of(target: Path) -> Iterator[None]:
    """Say in one sentence that a file or a folder cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UserError(Code.WRITE_FAILED, target, f"cannot be written ({reason})", DISK) from None


@contextmanager
def _partial_beside(target: Path) -> Iterator[Path]:
    if target.exists() and not target.is_file():
        raise UserError(Code.UNSAFE_TARGET, target, "exists and is not a plain file", "name another file")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=f"-{target.name}", dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target`` that takes its name if the block ends well, and vanishes otherwise.

    A file in it that cannot be written is told of by the name that it would have had.
    """
    partial = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=target.parent))
        yield partial
        partial.chmod(0o777 & ~UMASK)
        partial.rename(target)
    except UserError as error:
        if partial is None or not Path(error.where).is_relative_to(partial):
            raise
        where = target / Path(error.where).relative_to(partial)
        raise UserError(error.code, where, error.finding, error.remedy) from None
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UserError(Code.WRITE_FAILED, target, f"cannot be written ({reason})", DISK) from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def write_bytes(target: Path, content: bytes) -> None:
    """Write ``content`` atomically."""
    with atomic_path(target) as partial:
        partial.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write ``content`` as UTF-8, atomically; file names that are not UTF-8 are spelt out."""
    write_bytes(target, content.encode(errors="backslashreplace"))


def write_json(target: Path, content: Any) -> None:
    """Write ``content`` as readable JSON, atomically."""
    write_text(target, json_text(content))


def json_text(content: Any) -> str:
    """``content`` as readable JSON, which ends with a line."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def write_group(files: Mapping[Path, str | bytes], without: Iterable[Path] = ()) -> None:
    """Write files that tell of one another, all of them, or where that fails none: what was there then stays.

    Older files that the new ones do ``without`` are removed. Whenever this is cut off, no new file stands beside an
    older one.
    """
    with ExitStack() as stack:
        partials: dict[Path, Path] = {}
        for target, content in files.items():
            with _told_of(target):
                partial = partials[target] = stack.enter_context(_partial_beside(target))
                written = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
                partial.write_bytes(written)
                _make_ready(partial)
        for older in (*without, *list(files)[1:]):
            with _told_of(older):
                older.unlink(missing_ok=True)
        for target, partial in partials.items():
            with _told_of(target):
                partial.replace(target)


def read_json(path: Path) -> Any:
    """Read a JSON file, or say in one sentence why that cannot be done."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise UserError(Code.NO_SUCH_FOLD, path, "the file is missing", "check the folder's name") from None
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check its permissions") from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            Code.DAMAGED_FILE, path, f"not valid JSON ({error})", "restore the file or make it anew"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(Code.DAMAGED_FILE, path, "not a JSON object", "restore the file or make it anew")
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _make_ready(partial: Path) -> None:
    _flush_to_disk(partial)
    partial.chmod(0o666 & ~UMASK)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            Code.WRITE_FAILED, path, f"cannot be made a folder ({error.strerror})", "name another one"
        ) from None


@contextmanager
def locked(path: Path, finding: str) -> Iterator[None]:
    """Hold a folder, or a lock file, for this process; the lock goes with the process, however it ends."""
    folder = path if path.is_dir() else path.parent
    make_folder(folder)
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(
            Code.WRITE_FAILED, folder, f"cannot be written ({error.strerror})", "name another folder"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(Code.WRITE_FAILED, folder, finding, "wait for it or choose another --out") from None
    finally:
        os.close(handle)


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


def check_writable(folder: Path) -> None:
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


def check_target_file(file: Path) -> None:
    """Raise a UserError where a file could not be written, before work is done for it."""
    if file.exists() and not file.is_file():
        raise UserError(Code.UNSAFE_TARGET, file, "exists and is not a plain file", "name another file")
    check_writable(file.parent)


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
