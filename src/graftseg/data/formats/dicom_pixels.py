"""The pixels of a DICOM file: decoded, upright in brightness, rescaled."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_tags import AGAIN, number, user_errors
from graftseg.data.formats.scan import optional

PIXELS = (
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelData",
)
THROUGH_ITK = "pip install SimpleITK (and unpack a zip), or export the series uncompressed"
MISSING = ("missing dependencies", "missing required dependencies")
REASONS = {
    re.compile(r"less than expected \((\d+) vs (\d+) bytes\)"): r"\1 of \2 bytes are there",
    re.compile(r"Missing required element: \(\w{4},\w{4}\) '([\w ]+)'"): r"its header has no \1",
    re.compile(r"has no 'Pixel Data'"): "they are not there",
}
"""What is told of the reasons why pixels cannot be decoded; the others may quote the header, and with it a name."""


def stored_pixels(where: Path, header: Any) -> NDArray[np.float32]:
    """Pixels ``(columns, rows)`` of one slice, rescaled."""
    with user_errors(where):
        slope, intercept = number(where, header, "RescaleSlope", 1.0), number(where, header, "RescaleIntercept")
        refuse_table(where, header)
        try:
            pixels = np.asarray(header.pixel_array, np.float32).T
        except Exception as error:
            rescaled = _through_itk(where, header)
            if rescaled is None:
                raise undecoded(where, header, error) from None
            if slope == 0:
                raise _flattened(where) from None
            return _inverted_rescaled(rescaled, header, slope, intercept)
        return rescale(where, upright(pixels, header), slope, intercept)


def refuse_table(where: Path, header: Any) -> None:
    """Raise a UserError where a slope and an intercept do not tell what stored values mean."""
    if header.get("ModalityLUTSequence"):
        raise UserError(
            Code.SCAN_HEADER,
            where,
            "its values stand in a table (ModalityLUTSequence)",
            "export it with a rescale slope",
        )


def upright(pixels: NDArray[np.float32], header: Any) -> NDArray[np.float32]:
    """Stored values of which high ones are bright: those of MONOCHROME1 are turned round within their bits."""
    top = _turned_from(header)
    return pixels if top is None else np.float32(top) - pixels


def rescale(where: Path, pixels: NDArray[np.float32], slope: float, intercept: float) -> NDArray[np.float32]:
    """Stored values -> those that the header means."""
    if slope == 0 and np.ptp(pixels) > 0:
        raise _flattened(where)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: NDArray[np.float32] = pixels * np.float32(slope) + np.float32(intercept)
    if not np.isfinite(scaled).all():
        raise UserError(Code.SCAN_HEADER, where, f"RescaleSlope {slope:g} makes its values infinite", AGAIN)
    return scaled


def _flattened(where: Path) -> UserError:
    finding = "RescaleSlope in its header is 0, which makes all its values the same"
    return UserError(
        Code.SCAN_HEADER, where, finding, "export the series again with the slope that it was scanned with"
    )


def _turned_from(header: Any) -> float | None:
    """The sum of a value and its counterpart in MONOCHROME1; None where high values are bright already."""
    if header.get("PhotometricInterpretation") != "MONOCHROME1":
        return None
    return -1.0 if header.get("PixelRepresentation") else float(2 ** int(header.get("BitsStored")) - 1)


def _inverted_rescaled(pixels: NDArray[np.float32], header: Any, slope: float, intercept: float) -> NDArray[np.float32]:
    """The same as ``upright`` for values that have been rescaled already."""
    top = _turned_from(header)
    return pixels if top is None else np.float32(slope * top + 2 * intercept) - pixels


def _is_compressed(header: Any) -> bool:
    syntax = header.file_meta.get("TransferSyntaxUID")
    return bool(syntax) and syntax.is_transfer_syntax and syntax.is_compressed


def _through_itk(where: Path, header: Any) -> NDArray[np.float32] | None:
    """Rescaled pixels ``(columns, rows)`` by SimpleITK, which decodes more than pydicom alone; None where it cannot."""
    if not (_is_compressed(header) and where.is_file()):
        return None
    try:
        itk = optional("SimpleITK", "SimpleITK", "compressed DICOM files")
        itk.ProcessObject.SetGlobalWarningDisplay(False)
        array = itk.GetArrayFromImage(itk.ReadImage(str(where), imageIO="GDCMImageIO"))
    except (UserError, RuntimeError):
        return None
    return np.asarray(array[0], np.float32).T if array.ndim == 3 and len(array) == 1 else None


def undecoded(where: Path, header: Any, error: Exception, remedy: str = THROUGH_ITK) -> UserError:
    """Why pixels cannot be decoded, with what helps where a package is missing."""
    if any(sign in str(error) for sign in MISSING):
        name = header.file_meta.TransferSyntaxUID.name
        finding = f"its pixels are compressed ({name}), which no installed package reads"
        return UserError(Code.SCAN_DAMAGED, where, finding, remedy)
    if not header.file_meta.get("TransferSyntaxUID"):
        return UserError(
            Code.SCAN_UNSUPPORTED, where, "its header does not say how its pixels are stored (TransferSyntaxUID)", AGAIN
        )
    found = ((sign.search(str(error)), told) for sign, told in REASONS.items())
    reason = next((f" ({sign.expand(told)})" for sign, told in found if sign), "")
    return UserError(
        Code.SCAN_DAMAGED,
        where,
        f"its pixels cannot be decoded{reason}",
        "copy the series again or export it uncompressed",
    )
