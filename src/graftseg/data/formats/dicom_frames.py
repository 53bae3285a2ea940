"""A multi-frame DICOM file (enhanced CT or MR) -> its slices."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.data.formats.dicom_pixels import PIXELS, rescale, undecoded, upright
from graftseg.data.formats.dicom_series import Slice
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags
from graftseg.errors import UserError

SHARED, EACH = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
HEADER = ("Rows", "Columns", "NumberOfFrames", SHARED, EACH)
GROUPS = {
    "PixelMeasuresSequence": ("PixelSpacing", "SliceThickness"),
    "PlanePositionSequence": ("ImagePositionPatient",),
    "PlaneOrientationSequence": ("ImageOrientationPatient",),
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept"),
}
SINGLE = "export the series as single slices"


def read_frames(where: Path, content: Path | BinaryIO, *, pixels: bool) -> list[Slice]:
    """The frames of a file, in the order they are stored in; each must say where it lies."""
    header = read_tags(where, content, (*HEADER, *PIXELS) if pixels else HEADER)
    count = int(number(where, header, "NumberOfFrames", 1))
    each = header.get(EACH) or ()
    if not each:
        finding = f"a multi-frame file whose {count} frames do not say where they lie, such as a film"
        raise UserError(where, finding, SINGLE)
    if len(each) != count:
        raise UserError(where, f"{count} frames, and the places of {len(each)}", AGAIN)
    shared = (header.get(SHARED) or [{}])[0]
    decoded = _Decoded(where, header)
    slices = []
    for index, own in enumerate(each):
        merged = dict(_merged(header, shared, own))
        if "ImagePositionPatient" not in merged or "ImageOrientationPatient" not in merged:
            raise UserError(where, f"frame {index + 1} of {count} does not say where it lies", SINGLE)
        slices.append(Slice(where, merged, partial(decoded.frame, index, merged)))
    return slices


def _merged(header: Any, shared: Any, own: Any) -> Iterator[tuple[str, Any]]:
    """What is true of one frame: of the file, of all frames and of itself, the last winning."""
    for tag in ("Rows", "Columns", "PhotometricInterpretation", "BitsStored", "PixelRepresentation"):
        yield tag, header.get(tag)
    for group, tags in GROUPS.items():
        for source in (shared, own):
            if sequence := source.get(group):
                yield from ((tag, sequence[0].get(tag)) for tag in tags if sequence[0].get(tag) is not None)


class _Decoded:
    """The pixels of all frames, decoded once, when the first is asked for."""

    def __init__(self, where: Path, header: Any) -> None:
        self.where, self.header = where, header
        self.stored = cache(self._stored)

    def frame(self, index: int, merged: Any) -> NDArray[np.float32]:
        """Pixels ``(columns, rows)`` of a frame, rescaled."""
        pixels = upright(np.asarray(self.stored()[index], np.float32).T, merged)
        slope = number(self.where, merged, "RescaleSlope", 1.0)
        return rescale(self.where, pixels, slope, number(self.where, merged, "RescaleIntercept"))

    def _stored(self) -> NDArray[Any]:
        try:
            pixels = np.asarray(self.header.pixel_array)
        except Exception as error:
            raise undecoded(self.where, self.header, error) from None
        # a file of one frame has no axis for it
        return pixels[None] if pixels.ndim == 2 else pixels
