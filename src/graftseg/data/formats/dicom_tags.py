"""Selected tags of DICOM headers and their numeric values."""

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import silence
from graftseg.data.formats.scan import EMPTY, optional

AGAIN = "copy or download the series again"
DECIMALS = re.compile(rb"[-+0-9.eE \\]*\0?")  # the characters of decimal strings, and a padding byte
Floats = NDArray[np.float64]


@contextmanager
def user_errors(where: Path) -> Iterator[None]:
    """Turn every exception about a file's content into a UserError.

    The original message is dropped because it may quote the header, including a patient's name.
    """
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
            return pydicom.dcmread(content, specific_tags=list(tags), stop_before_pixels="PixelData" not in tags)
        except pydicom.errors.InvalidDicomError:
            if isinstance(content, Path) and content.stat().st_size == 0:
                raise UserError(Code.SCAN_DAMAGED, where, EMPTY, AGAIN) from None
            raise UserError(Code.NOT_A_SCAN, where, "not a DICOM file", AGAIN) from None


def value(where: Path, header: Any, tag: str) -> Any:
    """Return the value of a tag, or None if the tag is missing or empty."""
    try:
        return header.get(tag)
    except Exception:
        # the original message may quote the value, which may be a patient's name
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header cannot be read", AGAIN) from None


def number(where: Path, header: Any, tag: str, default: float = 0.0) -> float:
    """Return the value of a tag as a number, or the default if the tag is missing or empty."""
    found = value(where, header, tag)
    if found is None:
        return default
    try:
        single = float(found)
    except (TypeError, ValueError):
        single = np.nan
    if not np.isfinite(single):
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header is not a number", AGAIN)
    return single


def numbers(where: Path, header: Any, tag: str, count: int | None = None) -> Floats | None:
    """Return the value of a tag as ``count`` numbers (None: any count), or None if the tag is missing or empty."""
    found = value(where, header, tag)
    if found is None:
        return None
    try:
        values = np.array([float(one) for one in (_decimals(found) if isinstance(found, bytes) else found)])
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if count not in (None, len(values)) or not np.isfinite(values).all():
        expected = "a list of numbers" if count is None else f"{count} numbers"
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in the header is not {expected}", AGAIN)
    return values


def count_numbers(header: Any, tag: str) -> int:
    """Return how many numbers a tag has, without the slow conversion of decimal strings."""
    element = header.get_item(tag)
    found = None if element is None else element.value
    if isinstance(found, bytes):
        return found.count(b"\\") + 1 if found.strip(b" \0") else 0
    return 0 if found is None else int(np.size(found))


def _decimals(content: bytes) -> list[bytes]:
    """Split a list of decimal strings (DS). pydicom returns bytes if the list has more than 64 kB (written as UN)."""
    if not DECIMALS.fullmatch(content):
        raise ValueError("not a list of decimal strings")
    return content.rstrip(b"\0").split(b"\\")


def pydicom_package() -> Any:
    """Import pydicom and disable its warnings, which quote header values."""
    pydicom = optional("pydicom", "pydicom", "DICOM files")
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    # the filter stays active, because warning filters are shared between threads
    warnings.filterwarnings("ignore", module=r"pydicom\.")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    return pydicom


def silence_dicom_packages() -> AbstractContextManager[None]:
    """Suppress warnings and log lines of pydicom and highdicom, because they quote header values."""
    return silence("pydicom", "highdicom", below=logging.CRITICAL + 1)
