"""Decode the pixels of a DICOM file, invert them if high values are dark, and rescale them."""

import re
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.decoder import DecodingError, decode
from graftseg.data.formats.dicom_tags import AGAIN, COUNTS, number, pixel_bytes, pydicom_package, user_errors, value
from graftseg.data.formats.scan import refuse_expansion, unsupported

PIXEL_VALUES = ("PhotometricInterpretation", "BitsStored", "PixelRepresentation", "RescaleSlope", "RescaleIntercept")
PIXEL_LAYOUT = ("SamplesPerPixel", "PlanarConfiguration", "NumberOfFrames", "BitsAllocated", "HighBit")
PIXELS = (*PIXEL_VALUES, *PIXEL_LAYOUT, "ModalityLUTSequence", "PixelData")
DECODER_TAGS = (*COUNTS, *PIXEL_VALUES[:3], "PlanarConfiguration", "BitsAllocated", "HighBit")
RLE, RLE_EXPANSION = "1.2.840.10008.1.2.5", 64  # transfer syntax RLE Lossless, and its largest expansion
INSTALL_ITK = "pip install SimpleITK, or export the series uncompressed"
SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7.3"  # SOP class of pictures with one or several frames
MISSING_DECODER = ("missing dependencies", "missing required dependencies")  # in messages of pydicom
SAFE_REASONS = {
    re.compile(r"less than expected \((\d+) vs (\d+) bytes\)"): r"\1 of \2 bytes found",
    re.compile(r"Missing required element: \(\w{4},\w{4}\) '([\w ]+)'"): r"the header has no \1",
    re.compile(r"has no 'Pixel Data'"): "the file contains none",
}
"""Messages of pydicom and their new wording. Other messages are not shown, because they may quote a patient's name."""


def stored_pixels(where: Path, header: Any) -> NDArray[np.float32]:
    """Return the pixels ``(columns, rows)`` of one slice, rescaled."""
    with user_errors(where):
        refuse_lookup_table(where, header)
        try:
            pixels = np.asarray(decoded(where, header), np.float32).T
        except UserError:
            raise
        except Exception as error:
            raise decoding_error(where, header, error) from None
        return rescale(where, pixels, header)


def has_separate_frames(where: Path, header: Any) -> bool:
    """Return whether a frame can be read without the other frames, which saves memory."""
    bits = [number(where, header, tag, 8) for tag in ("Rows", "Columns", "BitsAllocated")]
    return not _is_compressed(header) and prod(bits) % 8 == 0


def decoded(where: Path, header: Any, index: int | None = None) -> NDArray[Any]:
    """Return stored values. With ``index``, return an uncompressed frame. A child process decodes compressed pixels."""
    if index is not None:
        return np.asarray(pydicom_package().pixels.pixel_array(header, index=index))
    if not _is_compressed(header):
        return np.asarray(header.pixel_array)
    content = value(where, header, "PixelData") or b""
    needed = pixel_bytes(where, header)
    if header.file_meta.TransferSyntaxUID == RLE and needed > RLE_EXPANSION * len(content):
        finding = f"{len(content)} bytes of RLE cannot contain {needed} bytes of pixels"
        raise UserError(Code.SCAN_DAMAGED, where, finding, AGAIN)
    refuse_expansion(where, needed, len(content))
    tags = {tag: stored for tag in DECODER_TAGS if (stored := value(where, header, tag)) is not None}
    try:
        return decode(where, "pydicom", needed, content, syntax=header.file_meta.TransferSyntaxUID, tags=tags)
    except DecodingError:
        array = _decode_with_itk(where, header, tags)
        if array is None:
            raise
        return array


def _is_compressed(header: Any) -> bool:
    syntax = header.file_meta.get("TransferSyntaxUID")
    return bool(syntax and syntax.is_transfer_syntax and syntax.is_encapsulated)


def refuse_lookup_table(where: Path, header: Any) -> None:
    """Raise a UserError if a lookup table replaces slope and intercept."""
    if header.get("ModalityLUTSequence"):
        remedy = "export the series with a rescale slope"
        raise unsupported(where, "pixel values need a lookup table (ModalityLUTSequence)", remedy)


def rescale(where: Path, pixels: NDArray[np.float32], header: Any) -> NDArray[np.float32]:
    """Invert the stored values of MONOCHROME1, in which low values are bright, then apply slope and intercept."""
    slope, intercept = number(where, header, "RescaleSlope", 1.0), number(where, header, "RescaleIntercept")
    top = _inversion_sum(header)
    pixels = pixels if top is None else np.float32(top) - pixels
    if slope == 0 and np.ptp(pixels) > 0:
        raise _zero_slope(where)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: NDArray[np.float32] = pixels * np.float32(slope) + np.float32(intercept)
    if not np.isfinite(scaled).all():
        raise UserError(Code.SCAN_HEADER, where, f"RescaleSlope {slope:g} makes the values infinite", AGAIN)
    return scaled


def _zero_slope(where: Path) -> UserError:
    finding = "RescaleSlope in the header is 0, which makes all values equal"
    return UserError(Code.SCAN_HEADER, where, finding, "export the series again with its original slope")


def _inversion_sum(header: Any) -> float | None:
    """Return the sum of a MONOCHROME1 value and its inverse, or None if high values are already bright."""
    if header.get("PhotometricInterpretation") != "MONOCHROME1":
        return None
    return -1.0 if header.get("PixelRepresentation") else float(2 ** int(header.get("BitsStored")) - 1)


def _decode_with_itk(where: Path, header: Any, tags: dict[str, Any]) -> NDArray[Any] | None:
    """Return stored values from SimpleITK, which has more decoders, or None if it fails."""
    pydicom = pydicom_package()
    copy = pydicom.Dataset()
    copy.file_meta = pydicom.dataset.FileMetaDataset()
    copy.file_meta.TransferSyntaxUID = header.file_meta.TransferSyntaxUID
    copy.SOPClassUID, copy.SOPInstanceUID = SECONDARY_CAPTURE, "1.2.3"
    # the copy has no slope, and no MONOCHROME1, because only some versions of SimpleITK invert it
    for tag, stored in (tags | {"PhotometricInterpretation": "MONOCHROME2"}).items():
        setattr(copy, tag, stored)
    copy["PixelData"] = header["PixelData"]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pixels.dcm"
        pydicom.dcmwrite(file, copy, enforce_file_format=True)
        try:
            array = decode(where, "gdcm", 2 * pixel_bytes(where, header), path=str(file))
        except DecodingError:
            return None
    frames, shape = int(number(where, header, "NumberOfFrames", 1)), (header.get("Rows"), header.get("Columns"))
    if array.shape != (max(frames, 1), *shape):
        return None
    return array if frames > 1 else array[0]


def decoding_error(where: Path, header: Any, error: Exception, remedy: str = INSTALL_ITK) -> UserError:
    """Return the error for pixels that cannot be decoded. ``remedy`` is shown if a decoder is missing."""
    if any(sign in str(error) for sign in MISSING_DECODER):
        name = header.file_meta.TransferSyntaxUID.name
        return UserError(Code.PACKAGE_MISSING, where, f"no installed package decodes the pixels ({name})", remedy)
    if not header.file_meta.get("TransferSyntaxUID"):
        return UserError(Code.SCAN_HEADER, where, "the header has no TransferSyntaxUID", AGAIN)
    matches = ((sign.search(str(error)), reason) for sign, reason in SAFE_REASONS.items())
    reason = next((f" ({match.expand(reason)})" for match, reason in matches if match), "")
    remedy = "copy the series again or export it uncompressed"
    return UserError(Code.SCAN_DAMAGED, where, f"the pixels cannot be decoded{reason}", remedy)
