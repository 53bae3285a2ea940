"""Selected tags of DICOM headers and their numeric values."""

import logging
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import SEEK_END, BufferedReader, BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.packages import import_optional
from graftseg.core.progress import silence
from graftseg.core.reading import open_regular
from graftseg.data.formats.scan import EMPTY, FREE_EXPANSION, Floats, decompressed, refuse_bytes, refuse_memory

AGAIN = "copy or download the series again"
COUNTS = ("Rows", "Columns", "SamplesPerPixel", "NumberOfFrames")  # their product is the number of values
MAX_LENGTH = 1e9  # limit of coordinates and distances, in mm
FIRST_GROUPS = (b"\x02\x00", b"\x08\x00")  # first bytes of old files, which do not begin with a preamble
DECIMALS = re.compile(rb"[-+0-9.eE \\]*\0?")  # the characters of decimal strings, and a padding byte


@contextmanager
def user_errors(where: Path) -> Iterator[None]:
    """Turn exceptions about a file into UserErrors without their text, which may quote a patient's name."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(Code.READ_FAILED, where, f"cannot be read ({error.strerror})", AGAIN) from None
        raise UserError(Code.SCAN_DAMAGED, where, "the file is damaged or truncated", AGAIN) from None


def read_tags(where: Path, content: Path | BinaryIO, tags: Sequence[str]) -> Any:
    """Read only the given tags of a file. Pixels are read if the tags include ``PixelData``."""
    pydicom = pydicom_package()
    with user_errors(where):
        try:
            with _Content(where, content) as stream:
                is_bare = stream.peek(2)[:2] in FIRST_GROUPS
                header = pydicom.dcmread(
                    stream, specific_tags=list(tags), stop_before_pixels="PixelData" not in tags, force=is_bare
                )
                return _with_transfer_syntax(header) if is_bare else header
        except pydicom.errors.InvalidDicomError:
            if isinstance(content, Path) and content.stat().st_size == 0:
                raise UserError(Code.SCAN_DAMAGED, where, EMPTY, AGAIN) from None
            raise UserError(Code.NOT_A_SCAN, where, "not a DICOM file", AGAIN) from None


def _with_transfer_syntax(header: Any) -> Any:
    """Add the transfer syntax of a file without preamble, unless it is in the header. Its pixels are uncompressed."""
    uid = pydicom_package().uid
    is_implicit, is_little_endian = header.original_encoding
    if "TransferSyntaxUID" not in header.file_meta:
        little = uid.ImplicitVRLittleEndian if is_implicit else uid.ExplicitVRLittleEndian
        header.file_meta.TransferSyntaxUID = little if is_little_endian else uid.ExplicitVRBigEndian
    return header


class _Content(BufferedReader):
    """A file that refuses excessive deflated content, which pydicom reads by ``read()`` without a size."""

    def __init__(self, where: Path, content: Path | BinaryIO) -> None:
        if isinstance(content, Path) and content.exists() and not content.is_file():
            raise UserError(Code.NOT_A_SCAN, where, "not a file", AGAIN)
        super().__init__(open_regular(content) if isinstance(content, Path) else content)  # type: ignore[arg-type]
        self.where = where
        self.size = self.seek(0, SEEK_END)
        self.seek(0)

    @property
    def name(self) -> str:
        """The path, which pydicom needs."""
        return str(self.where)

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes. Refuse the compressed rest of a file if it is much larger than its pixels."""
        if size == -1:
            rest = super().read()
            _refuse_inflation(self.where, rest)
            return rest
        # limit the size, because ``read`` allocates memory for all requested bytes
        return super().read(None if size is None else min(size, max(0, self.size - self.tell())))


def _refuse_inflation(where: Path, content: bytes) -> None:
    """Raise a UserError if deflated content contains much more than the pixels that its header describes."""
    parts = decompressed(zlib.decompressobj(-zlib.MAX_WBITS), [content])
    first = next(parts, b"")
    header = pydicom_package().dcmread(BytesIO(first), force=True, specific_tags=[*COUNTS, "BitsAllocated"])
    limit, count = FREE_EXPANSION + pixel_bytes(where, header), len(first)
    refuse_bytes(where, limit - FREE_EXPANSION)
    with suppress(EOFError):  # the reader reports truncated content
        while count <= limit and (part := next(parts, b"")):
            count += len(part)
    if count > limit:
        finding = f"the deflated content is larger than {limit} bytes, more than its header describes"
        raise UserError(Code.SCAN_TOO_LARGE, where, finding, AGAIN)
    refuse_memory(where, count)


def pixel_bytes(where: Path, header: Any) -> int:
    """Return the number of bytes of the uncompressed pixels according to the header."""
    counts = (max(int(number(where, header, tag, 1)), 1) for tag in COUNTS)
    return prod(counts) * max(int(number(where, header, "BitsAllocated", 8)), 8) // 8


def value(where: Path, header: Any, tag: str) -> Any:
    """Return the value of a tag, or None if the tag is missing or empty."""
    try:
        return header.get(tag)
    except Exception:
        # the original message may quote the value, which may be a patient's name
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header cannot be read", AGAIN) from None


def number(where: Path, header: Any, tag: str, default: float = 0.0) -> float:
    """Return the value of a tag as a number, or the default if the tag is missing or empty."""
    content = value(where, header, tag)
    if content is None:
        return default
    try:
        result = float(content)
    except (TypeError, ValueError):
        result = np.nan
    if not np.isfinite(result):
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header is not a number", AGAIN)
    return result


def numbers(where: Path, header: Any, tag: str, count: int | None = None) -> Floats | None:
    """Return the value of a tag as ``count`` numbers (None: any count), or None if the tag is missing or empty."""
    content = value(where, header, tag)
    if content is None:
        return None
    try:
        if isinstance(content, bytes):  # from pydicom for a list of more than 64 kB (written as UN)
            content = content.rstrip(b"\0").split(b"\\") if DECIMALS.fullmatch(content) else [""]
        values = np.array([float(word) for word in content])
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if count not in (None, len(values)) or not (np.abs(values) < MAX_LENGTH).all():
        expected = "a list of numbers" if count is None else f"{count} numbers"
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header is not {expected}", AGAIN)
    return values


def pydicom_package() -> Any:
    """Import pydicom and disable its warnings, which quote header values."""
    pydicom = import_optional("pydicom", "DICOM files")
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    # the filter stays active, because warning filters are shared between threads
    warnings.filterwarnings("ignore", module=r"pydicom\.")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    return pydicom


def silence_dicom_packages() -> AbstractContextManager[None]:
    """Suppress warnings and log lines of pydicom and highdicom, because they quote header values."""
    return silence("pydicom", "highdicom", below=logging.CRITICAL + 1)
