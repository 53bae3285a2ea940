"""Reading of regular files. Pipes, devices and most files below ``/proc`` are never opened: they could wait forever.

``tests/test_architecture.py`` checks that other modules read files with these functions.
"""

import errno
import hashlib
import io
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> io.BufferedReader | io.BytesIO:
    """Open a regular file for reading. Raise an OSError for anything else.

    A file without content is not opened, because files below ``/proc`` have the size 0, and reading them may wait.
    """
    if not _regular_size(path, path.stat()):
        return io.BytesIO()
    # if the file was replaced by a pipe in the meantime, O_NONBLOCK does not wait for a writer
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _regular_size(path, os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _regular_size(path: Path, info: os.stat_result) -> int:
    """Return the size of a regular file. Raise an OSError for anything else."""
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def check_regular(path: Path) -> None:
    """Check a file that another package will open.

    Raise an OSError if it is not a regular file, and a ValueError if it is empty.
    """
    if not _regular_size(path, path.stat()):
        raise ValueError("the file is empty")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Return the content of a regular file. Raise an OSError if it has more than ``limit`` bytes."""
    with open_regular(path) as stream:
        content = stream.read() if limit is None else stream.read(limit + 1)
    if limit is not None and len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return content


def read_text(path: Path, encoding: str = "utf-8", errors: str = "strict", limit: int | None = None) -> str:
    """Return the content of a regular file as text. All line ends become ``\\n``."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path, limit)), encoding, errors).read()


def read_start(path: Path, count: int) -> bytes:
    """Return the first bytes of a file. A pipe or device counts as empty."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return b""
    with open_regular(path) as stream:
        return stream.read(count)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a regular file."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
