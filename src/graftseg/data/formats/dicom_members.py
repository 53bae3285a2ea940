"""The DICOM files of a case: those of a folder, of a zip, or a single one.

A zip is read in memory. Nothing of it is written anywhere, so the names of its entries cannot lead out of it.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import MAX_BYTES

MOST_FILES = 100_000
LOOKED_AT = 64
"""How many files of a folder are looked at before it is taken to hold no slices."""

_MAGIC, _PREAMBLE = b"DICM", 128
_ENCRYPTED = 0x1
_PIECE = 4 * 2**20
_END, _LONGEST_END, _COUNTED_ELSEWHERE = b"PK\x05\x06", 22 + 0xFFFF, 0xFFFF
_NO_FOLDER = "export the series again as a folder or zip of its own"


@dataclass(frozen=True)
class Member:
    """A DICOM file: where it is, to tell people, and its content."""

    where: Path
    content: Callable[[], Path | BinaryIO]

    @classmethod
    def on_disk(cls, file: Path) -> "Member":
        """A file in a folder."""
        return cls(file, lambda: file)


@contextmanager
def members_of(path: Path) -> Iterator[list[Member]]:
    """The DICOM files of a folder with those below it, of a zip, or the one file, by name."""
    if path.is_dir():
        yield [Member.on_disk(file) for file in files_below(path) if is_slice(file)]
    elif path.suffix.lower() == ".zip":
        with _opened(path) as archive:
            yield [Member(path / name, content) for name, content in _entries(path, archive)]
    else:
        yield [Member.on_disk(path)]


def files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those below it, by name, without hidden ones; no link out of it is followed."""
    for count, file in enumerate(_walk(folder)):
        if count >= MOST_FILES:
            raise UserError(
                Code.SCAN_TOO_LARGE,
                folder,
                f"more than {MOST_FILES} files",
                "keep the slices of one series in the folder",
            )
        yield file


def is_slice(file: Path) -> bool:
    """Whether a file is DICOM by its content, since names say little, or claims to be by its name.

    A damaged slice must not be left out in silence.
    """
    if _claims(file.name):
        return True
    try:
        with file.open("rb") as stream:
            return _has_magic(stream)
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, file, f"cannot be read ({error.strerror})", "check the file's permissions"
        ) from None


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root) / name for name in sorted(files) if not name.startswith("."))


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed may hold slices, which must not be left out in silence."""
    if isinstance(error, PermissionError):
        raise error
    if not isinstance(error, FileNotFoundError):
        raise UserError(
            Code.READ_FAILED, error.filename, f"the folder cannot be read ({error.strerror})", "check the disk"
        ) from None


def _claims(name: str) -> bool:
    return name.lower().endswith(".dcm")


def _has_magic(stream: BinaryIO | IO[bytes]) -> bool:
    return stream.read(_PREAMBLE + len(_MAGIC))[_PREAMBLE:] == _MAGIC


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(path) as archive:
            _refuse_missing_entries(path, archive)
            yield archive
    except (BadZipFile, NotImplementedError, EOFError, zlib.error, LZMAError) as error:
        raise UserError(
            Code.SCAN_DAMAGED, path, f"the zip is damaged or of another kind ({error})", "copy or pack it again"
        ) from None
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"cannot be read ({error.strerror or error})", "check the file's permissions"
        ) from None


def _refuse_missing_entries(path: Path, archive: ZipFile) -> None:
    """Compare the entries with the number that stands at the end of the zip, which Python does not read.

    A damaged length in the list of entries swallows those behind it.
    """
    with path.open("rb") as stream:
        stream.seek(-min(path.stat().st_size, _LONGEST_END), os.SEEK_END)
        end = stream.read()
    begin = end.rfind(_END)
    listed = int.from_bytes(end[begin + 10 : begin + 12], "little")
    if begin < 0 or listed not in (len(archive.infolist()), _COUNTED_ELSEWHERE):
        raise BadZipFile(f"{len(archive.infolist())} entries where {listed} are listed")


def _entries(path: Path, archive: ZipFile) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """The DICOM files among the entries, by name, each with its content."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    size = sum(entry.file_size for entry in entries)
    if size > MAX_BYTES or len(entries) > MOST_FILES:
        finding = f"the zip asks for {size} bytes in {len(entries)} files, above the limit"
        raise UserError(Code.SCAN_TOO_LARGE, path, finding, _NO_FOLDER)
    for entry in sorted(entries, key=lambda entry: entry.filename):
        if entry.flag_bits & _ENCRYPTED:
            raise UserError(Code.SCAN_DAMAGED, path, "the zip is locked by a password", "unpack it into a folder")
        name = PurePosixPath(entry.filename).name
        if not name.startswith(".") and (_claims(name) or _is_dicom(archive, entry)):
            yield name, partial(_content, archive, entry)


def _is_dicom(archive: ZipFile, entry: ZipInfo) -> bool:
    with archive.open(entry) as stream:
        if _has_magic(stream):
            return True
        # the checksum at the end tells another file from a slice whose beginning is damaged
        while stream.read(_PIECE):
            pass
    return False


def _content(archive: ZipFile, entry: ZipInfo) -> BinaryIO:
    return BytesIO(archive.read(entry))
