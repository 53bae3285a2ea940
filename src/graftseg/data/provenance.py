"""The files that a stored case was made from, so that a change is noticed."""

import hashlib
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.files import sha256_of
from graftseg.data.folders import refuse_lost
from graftseg.data.scans import files_of
from graftseg.data.store import Source


def source_of(path: Path) -> Source:
    """Size, time and hash of a scan; those of all its files together where it is several."""
    files = _files(path)
    try:
        size, mtime_ns = _size_and_time(files)
        hashes = [sha256_of(file) for file in files]
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"the file cannot be read ({error.strerror})", "check that it is there"
        ) from None
    return Source(
        size, mtime_ns, hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    )


def unchanged(path: Path, source: Source) -> bool:
    """Whether a scan is what it was: by size and time, and by content where only the time differs."""
    try:
        size, mtime_ns = _size_and_time(_files(path))
    except (OSError, UserError):
        return False
    if size != source.size:
        return False
    return mtime_ns == source.mtime_ns or source_of(path).sha256 == source.sha256


def _files(path: Path) -> list[Path]:
    refuse_lost(path)
    files = files_of(path)
    if not files or (path.exists() and not path.is_file() and files == [path]):
        raise UserError(Code.DAMAGED_FILE, path, "not a file", "put a scan in its place")
    return files


def _size_and_time(files: list[Path]) -> tuple[int, int]:
    stats = [file.stat() for file in files]
    return sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
