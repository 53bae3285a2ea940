"""Reading chosen tags of a DICOM file, and numbers out of them."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import silence
from graftseg.data.formats.scan import optional

AGAIN = "copy or download the series again"
Floats = NDArray[np.float64]


@contextmanager
def user_errors(where: Path) -> Iterator[None]:
    """Whatever the content of a file makes other packages raise becomes one sentence that names the file.

    Their own words are left out: they may quote the header, and with it a person's name.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        told = error.strerror if isinstance(error, OSError) else None
        finding = f"the file cannot be read ({told})" if told else "the file is damaged or cut off"
        raise UserError(Code.READ_FAILED, where, finding, AGAIN) from None


def read_tags(where: Path, content: Path | BinaryIO, tags: Sequence[str]) -> Any:
    """The named tags of a file, and no others; the pixels only where they are among them."""
    pydicom = pydicom_package()
    with user_errors(where):
        try:
            return pydicom.dcmread(content, specific_tags=list(tags), stop_before_pixels="PixelData" not in tags)
        except pydicom.errors.InvalidDicomError:
            raise UserError(Code.NOT_A_SCAN, where, "not a DICOM file", AGAIN) from None


def value(where: Path, header: Any, tag: str) -> Any:
    """What a header says; None where the tag is not there or empty."""
    try:
        return header.get(tag)
    except Exception:
        # the reason may quote the value, and with it a person's name
        raise UserError(Code.SCAN_DAMAGED, where, f"{tag} in its header cannot be read", AGAIN) from None


def number(where: Path, header: Any, tag: str, default: float = 0.0) -> float:
    """A single number of a header; the default where the tag is not there or empty."""
    found = value(where, header, tag)
    if found is None:
        return default
    try:
        single = float(found)
    except (TypeError, ValueError):
        single = np.nan
    if not np.isfinite(single):
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in its header is not a number", AGAIN)
    return single


def numbers(where: Path, header: Any, tag: str, count: int) -> Floats | None:
    """So many numbers of a header; None where the tag is not there or empty."""
    found = value(where, header, tag)
    if found is None:
        return None
    try:
        values = np.array([float(one) for one in found])
    except (TypeError, ValueError):
        values = np.zeros(0)
    if len(values) != count or not np.isfinite(values).all():
        raise UserError(Code.SCAN_HEADER, where, f"{tag} in its header is not {count} numbers", AGAIN)
    return values


def pydicom_package() -> Any:
    """The package pydicom, told not to warn of values and of headers that no standard allows: it quotes them."""
    pydicom = optional("pydicom", "pydicom", "DICOM files")
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    # for good, since threads share the filters and would end each other's silence
    warnings.filterwarnings("ignore", module=r"pydicom\.")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    return pydicom


def silence_dicom_packages() -> AbstractContextManager[None]:
    """Neither a warning nor a line in a log of the packages that read and write whole headers: both quote names."""
    return silence("pydicom", "highdicom", below=logging.CRITICAL + 1)
