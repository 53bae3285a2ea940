"""Files: atomic writes, JSON, checksums, locks, and checks of target files."""

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import open_regular, read_start

PARTIAL = ".partial-"  # prefix of temporary files and folders
MAX_SUFFIX = 40  # maximum number of characters of a target's name in the name of its temporary file
WRITE_REMEDY = "check free disk space and permissions"
RESTORE_REMEDY = "restore the file or create it again"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, None)
"""Error numbers of a full disk. None is included because numpy raises this error without a number."""
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EPERM)
"""Error numbers to ignore: the file system cannot flush folders, or the folder is not readable."""
CHECKSUM = "content_sha256"  # entry of a JSON object with the checksum of all other entries
MAX_JSON_BYTES, MAX_LEVELS, MAX_DIGITS = 64 * 2**20, 100, 300
"""Limits of a JSON file: its size, the levels of nested lists and objects, and the digits of an integer."""
# The umask can only be read by setting it, which is unsafe once threads are running.
UMASK = os.umask(0o077)
os.umask(UMASK)
_is_flush_deferred: ContextVar[bool] = ContextVar("is_flush_deferred", default=False)


@contextmanager
def flushed_together() -> Iterator[None]:
    """Flush all files that the block writes once, at its end. This saves time for many small files.

    A power failure inside the block may damage these files. Their checksums must therefore be verified later.
    """
    token = _is_flush_deferred.set(True)
    try:
        yield
    finally:
        _is_flush_deferred.reset(token)
        os.sync()


@contextmanager
def atomic_path(target: Path, size: int | None = None) -> Iterator[Path]:
    """Yield a temporary path. The file replaces ``target`` if the block succeeds, and is deleted if the block fails.

    The temporary file is in the same folder and keeps the suffixes of the target (``.nii.gz``), because some writers
    choose the format by suffix. Raise a UserError if the disk is full, the folder is not writable, or ``target`` is
    a device or a pipe. The error for a full disk names ``size``, the bytes that the file needs, if given.
    """
    with write_errors(target, size), _partial_file(target) as partial:
        yield partial
        _finish(partial)
        partial.replace(target)
        _flush_folder(target.parent)


@contextmanager
def write_errors(target: Path, size: int | None = None) -> Iterator[None]:
    """Turn an OSError into a UserError about ``target``. If the disk is full, name the needed and the free bytes."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        if error.errno in FULL_DISK:
            reason += _space_on_disk(target, size)
        raise UserError(Code.WRITE_FAILED, target, f"cannot be written ({reason})", WRITE_REMEDY) from None


def _space_on_disk(target: Path, size: int | None) -> str:
    """Return a text with the bytes that the file needs, if known, and the free bytes on the disk."""
    text = "" if size is None else f"; needs {size:,} bytes"
    with suppress(OSError):
        folder = next(path for path in (target, *target.parents) if path.is_dir())
        text += f"; {shutil.disk_usage(folder).free:,} bytes are free on the disk"
    return text


@contextmanager
def _partial_file(target: Path) -> Iterator[Path]:
    """Yield an empty temporary file in the folder of ``target`` and delete it if it still exists afterwards."""
    _check_plain_file(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # shorten the name, because the prefix could make it too long for the file system
    handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=f"-{target.name[-MAX_SUFFIX:]}", dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _finish(partial: Path) -> None:
    """Flush a temporary file to disk and give it the permissions of a normal file."""
    _flush_to_disk(partial)
    partial.chmod(0o666 & ~UMASK)


def _flush_to_disk(path: Path) -> None:
    if _is_flush_deferred.get():
        return
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a renamed file is still there after a power failure."""
    if _is_flush_deferred.get():
        return
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def _flush_tree(root: Path) -> None:
    """Flush all files and folders below a folder to disk. Links are not followed."""
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if path.is_file() and not path.is_symlink():
                with suppress(PermissionError):  # a hard link to a file of another user
                    _flush_to_disk(path)
        _flush_folder(Path(folder))


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder. It is renamed to ``target`` if the block succeeds, and deleted if the block fails.

    All files are on disk before the rename, so a power failure leaves the whole folder or none. Errors about files in
    the temporary folder name the final path.
    """
    with write_errors(target), ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=target.parent))
        stack.callback(shutil.rmtree, partial, ignore_errors=True)
        try:
            yield partial
        except UserError as error:
            if not Path(error.where).is_relative_to(partial):
                raise
            where = target / Path(error.where).relative_to(partial)
            raise UserError(error.code, where, error.finding, error.remedy) from None
        partial.chmod(0o777 & ~UMASK)
        _flush_tree(partial)
        partial.rename(target)
        _flush_folder(target.parent)


def write_bytes(target: Path, content: bytes) -> None:
    """Write ``content`` atomically."""
    with atomic_path(target, len(content)) as partial:
        partial.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write ``content`` atomically as UTF-8. Characters that UTF-8 cannot encode become backslash escapes."""
    write_bytes(target, _encode(content))


def write_json(target: Path, content: Any) -> None:
    """Write ``content`` atomically as indented JSON."""
    write_text(target, json_text(content))


def write_checked(target: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, which ``read_json`` verifies and removes."""
    write_text(target, checked_text(content))


def checked_text(content: Mapping[str, Any]) -> str:
    """Return a JSON object and its checksum as JSON text."""
    plain = json.loads(json_text(content))  # keys that are numbers become text
    return json_text({**plain, CHECKSUM: _json_checksum(plain)})


def _json_checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def json_text(content: Any) -> str:
    """Return ``content`` as indented JSON with a final newline."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _encode(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode(errors="backslashreplace")


def write_group(files: Mapping[Path, str | bytes], obsolete: Iterable[Path] = ()) -> None:
    """Write a group of files. If a file cannot be written, all previous versions are kept.

    Files in ``obsolete`` are removed. If the process is killed, some files may be missing, but there is never a mixture
    of old and new files.
    """
    with ExitStack() as stack:
        partials: dict[Path, Path] = {}
        for target, content in files.items():
            encoded = _encode(content)
            with write_errors(target, len(encoded)):
                partial = partials[target] = stack.enter_context(_partial_file(target))
                partial.write_bytes(encoded)
                _finish(partial)
        # only the first old file stays, and the next loop replaces it first, so old and new files never mix
        for previous in (*obsolete, *list(files)[1:]):
            with write_errors(previous):
                previous.unlink(missing_ok=True)
        for target, partial in partials.items():
            with write_errors(target):
                partial.replace(target)
        for folder in {target.parent for target in files}:
            with write_errors(folder):
                _flush_folder(folder)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raise a UserError if it is missing, unreadable, too large, not JSON or has a wrong checksum."""
    try:
        content = read_start(path, MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"more than {MAX_JSON_BYTES} bytes")
        parsed = parse_json(content.decode())
    except FileNotFoundError:
        raise UserError(Code.FILE_MISSING, path, "the file is missing", "check the path") from None
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check its permissions") from None
    except (ValueError, RecursionError) as error:
        finding = f"damaged or edited, not valid JSON ({error})"
        raise UserError(Code.DAMAGED_FILE, path, finding, RESTORE_REMEDY) from None
    if isinstance(parsed, dict) and CHECKSUM in parsed and parsed.pop(CHECKSUM) != _json_checksum(parsed):
        raise UserError(Code.DAMAGED_FILE, path, "damaged or edited, its checksum is wrong", RESTORE_REMEDY)
    return parsed


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(Code.DAMAGED_FILE, path, "damaged or edited, not a JSON object", RESTORE_REMEDY)
    return content


def parse_json(text: str | bytes, *, allow_nan: bool = False) -> Any:
    """Parse JSON. Raise ValueError or RecursionError if it is invalid, or has too many levels or digits."""
    parse_constant = None if allow_nan else _reject_number
    content = json.loads(text, parse_constant=parse_constant, parse_float=_finite_float, parse_int=_small_int)
    level = [content]
    for _ in range(MAX_LEVELS):
        level = [child for value in level if isinstance(value, list | dict) for child in _children(value)]
    if level:
        raise ValueError(f"more than {MAX_LEVELS} levels")
    return content


def _children(content: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return content.values() if isinstance(content, dict) else content


def _finite_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_number(text)


def _small_int(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS else _reject_number(text)


def _reject_number(text: str) -> Any:
    raise ValueError(f"{text:.40} is not a finite number, or has too many digits")


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link to a file, or a copy if the file system does not support the link."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        with open_regular(source) as stream, target.open("xb") as copy:
            shutil.copyfileobj(stream, copy)
        shutil.copystat(source, target)


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        finding = f"the folder cannot be created ({error.strerror})"
        raise UserError(Code.WRITE_FAILED, path, finding, "choose another folder") from None


@contextmanager
def locked(path: Path, finding: str) -> Iterator[None]:
    """Lock a folder or a file inside the block. Raise an error with ``finding`` if another process has the lock.

    The lock ends with the process, even if the process is killed.
    """
    folder = path if path.is_dir() else path.parent
    make_folder(folder)
    with write_errors(folder):
        mode = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
        handle = os.open(path, mode | os.O_NONBLOCK, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(Code.FOLDER_LOCKED, folder, finding, "wait until it ends or choose another --out") from None
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a folder or a file. Create and change nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def check_writable(folder: Path) -> None:
    """Raise a UserError if nothing can be written into a folder, or if the folder cannot be created."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if existing.exists() and not existing.is_dir():
        raise UserError(Code.NOT_A_FOLDER, existing, "a file, not a folder", "choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "change its permissions or choose another folder"
        raise UserError(Code.PERMISSION_DENIED, existing, "the folder is not writable", remedy)


def check_working_directory() -> None:
    """Raise a UserError if the working directory was deleted. PyTorch cannot be imported there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        finding = "the working directory was deleted"
        raise UserError(Code.FOLDER_MISSING, ".", finding, "change to another folder and repeat the command") from None


def check_target_file(file: Path) -> None:
    """Raise a UserError if a file cannot be written. Call this function before a long computation."""
    _check_plain_file(file)
    check_writable(file.parent)


def check_page_name(page: str | Path | None) -> None:
    """Raise a UserError if the name of a page does not end in ``.html``."""
    if page and Path(page).suffix.lower() not in (".html", ".htm"):
        raise UserError(Code.OPTION_INVALID, page, "not an HTML file", "choose a file that ends in .html as --out")


def _check_plain_file(target: Path) -> None:
    if target.exists() and not target.is_file():
        raise UserError(Code.UNSAFE_TARGET, target, "exists and is not a regular file", "choose another file")
