"""The DICOM files of a case: in a folder, in a zip, or a single file.

Zip members are read into memory and never extracted, so their names cannot point outside of the zip.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import open_regular
from graftseg.data.formats.scan import MAX_BYTES, read_head, unreadable, unsupported

MAX_FILES = 100_000
PROBED_FILES = 64  # a folder is no DICOM scan if none of its first files, at most this many, is DICOM
_INDEX = "DICOMDIR"  # file with a list of files, on media with DICOM images
_MAGIC = b"DICM"
_HEAD_BYTES = 128 + len(_MAGIC)  # a DICOM file begins with a preamble of 128 bytes
_ENCRYPTED = 0x1  # flag of a zip member
_CHUNK = 4 * 2**20  # bytes read at once
_END_RECORD, _MAX_END_BYTES = b"PK\x05\x06", 22 + 2**16  # signature and maximum size of the end record of a zip
_ENTRY = b"PK\x01\x02"  # signature of an entry of the central directory
_LOCAL_HEADER = 30  # minimum bytes before the content of a member
_MAX_EXPANSION, _ALWAYS_ALLOWED = 100, 2**28  # maximum bytes of members per byte of the zip, and bytes in addition
_ZIP64 = 0xFFFF  # number of members in the end record of every ZIP64 file
_ONE_SERIES = "export the series to a folder or zip without other files"


@dataclass(frozen=True)
class Member:
    """A DICOM file: its path for error messages, and a function that returns its content."""

    where: Path
    content: Callable[[], Path | BinaryIO]

    @classmethod
    def on_disk(cls, file: Path) -> "Member":
        """Return the member for a file on disk."""
        return cls(file, lambda: file)


@contextmanager
def members_of(path: Path) -> Iterator[list[Member]]:
    """Yield the DICOM files of a folder or zip, sorted by name. Any other path is yielded as the only file."""
    if path.is_dir():
        yield [Member.on_disk(file) for file in files_below(path) if is_dicom(file)]
    elif path.suffix.lower() == ".zip":
        with _open_zip(path) as archive:
            yield list(_zip_members(path, archive))
    else:
        yield [Member.on_disk(path)]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted by name. Skip hidden files, links to folders, pipes and devices."""
    count = 0
    for root, folders, files in os.walk(folder, onerror=_refuse_folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in files if not name.startswith(".")):
            count += 1
            if count > MAX_FILES:
                raise UserError(Code.SCAN_TOO_LARGE, folder, f"more than {MAX_FILES} files", _ONE_SERIES)
            path = Path(root) / name
            if path.is_file() or not path.exists():  # keep a broken link, so that reading it reports an error
                yield path


def is_dicom(file: Path) -> bool:
    """Return whether a file is DICOM by content or by name. The name counts so that a damaged slice is not skipped."""
    if file.name.upper() == _INDEX:
        return False
    return file.name.lower().endswith(".dcm") or read_head(file, _HEAD_BYTES)[128:] == _MAGIC


def has_dicom_content(file: Path) -> bool:
    """Return whether a file is DICOM by content alone. An index of files (DICOMDIR) has no image and does not count."""
    try:
        is_image = file.is_file() and file.name.upper() != _INDEX
        return is_image and read_head(file, _HEAD_BYTES)[128:] == _MAGIC
    except UserError:
        return False


def _refuse_folder(error: OSError) -> None:
    """Raise an error for a folder that cannot be listed, because it may contain slices. Ignore a deleted folder."""
    if isinstance(error, PermissionError):
        raise error
    if not isinstance(error, FileNotFoundError):
        raise unreadable(Path(error.filename), error) from None


@contextmanager
def _open_zip(path: Path) -> Iterator[ZipFile]:
    try:
        listed = _listed_members(path)
        with ZipFile(path) as archive:
            _check_members(archive, listed)
            yield archive
    except (BadZipFile, NotImplementedError, EOFError, ValueError, LookupError, struct.error, zlib.error) as error:
        finding = f"the zip is damaged or of an unsupported kind ({error})"
        raise UserError(Code.SCAN_DAMAGED, path, finding, "copy or create it again") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _listed_members(path: Path) -> int:
    """Return the number of members in the end record, which ``zipfile`` ignores. Refuse too many entries."""
    file_size = path.stat().st_size
    with open_regular(path) as stream:
        tail_start = stream.seek(max(0, file_size - _MAX_END_BYTES))
        tail = stream.read()
        begin = tail.rfind(_END_RECORD)
        if begin < 0 or begin + 22 > len(tail):
            raise BadZipFile("the end of the zip is missing")
        listed, size = struct.unpack("<HI", tail[begin + 10 : begin + 16])
        # the size of the central directory is 0xFFFFFFFF in a ZIP64 file
        stream.seek(max(0, tail_start + begin - size))
        count, last = 0, b""
        while chunk := stream.read(_CHUNK):
            count += (last + chunk).count(_ENTRY)
            last = chunk[1 - len(_ENTRY) :]
    if count > MAX_FILES:
        raise UserError(Code.SCAN_TOO_LARGE, path, f"a zip with more than {MAX_FILES} files", _ONE_SERIES)
    return int(listed)


def _check_members(archive: ZipFile, listed: int) -> None:
    """Raise BadZipFile if members are missing (hidden by a damaged length), overlap or have no name."""
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    if listed not in (len(members), _ZIP64):
        raise BadZipFile(f"{len(members)} of {listed} members found")
    if not all(member.filename for member in members):
        raise BadZipFile("a member has no name")
    ends = [member.header_offset + _LOCAL_HEADER + member.compress_size for member in members]
    begins = [*(member.header_offset for member in members), archive.start_dir]
    if any(end > next_begin for end, next_begin in zip(ends, begins[1:], strict=True)):
        raise BadZipFile("members overlap")


def _zip_members(path: Path, archive: ZipFile) -> Iterator[Member]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    size = sum(member.file_size for member in members)
    if size > min(MAX_BYTES, _MAX_EXPANSION * path.stat().st_size + _ALWAYS_ALLOWED) or len(members) > MAX_FILES:
        finding = f"the zip contains {size} bytes in {len(members)} files, above the limit"
        raise UserError(Code.SCAN_TOO_LARGE, path, finding, _ONE_SERIES)
    for member in sorted(members, key=lambda member: member.filename):
        if member.flag_bits & _ENCRYPTED:
            raise unsupported(path, "the zip has a password", "unpack it into a folder")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise unsupported(path, f"the zip has compression method {member.compress_type}", "unpack it into a folder")
        name = PurePosixPath(member.filename).name
        if name.startswith(".") or name.upper() == _INDEX:
            continue
        if name.lower().endswith(".dcm") or _is_dicom_member(archive, member):
            yield Member(path / name, partial(_content, archive, member))


def _is_dicom_member(archive: ZipFile, member: ZipInfo) -> bool:
    with archive.open(member) as stream:
        if stream.read(_HEAD_BYTES)[128:] == _MAGIC:
            return True
        # read to the end to verify the checksum: the file may be a slice with a damaged beginning
        while stream.read(_CHUNK):
            pass
    return False


def _content(archive: ZipFile, member: ZipInfo) -> BinaryIO:
    with archive.open(member) as stream:
        # a read without a limit would inflate more bytes than the member has by its header
        return BytesIO(stream.read(member.file_size + 1))
