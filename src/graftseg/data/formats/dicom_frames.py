"""An enhanced DICOM file (CT or MR), of several frames or of one, -> its slices."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_pixels import PIXELS, refuse_table, rescale, undecoded, upright
from graftseg.data.formats.dicom_series import HEADER as OF_SLICES
from graftseg.data.formats.dicom_series import PLACE, Slice
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags, user_errors, value

SHARED, EACH = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
HEADER = (*OF_SLICES, "NumberOfFrames", SHARED, EACH)
OF_PIXELS = ("PhotometricInterpretation", "BitsStored", "PixelRepresentation", "RescaleSlope", "RescaleIntercept")
GROUPS = {
    "PixelMeasuresSequence": ("PixelSpacing", "SliceThickness"),
    "PlanePositionSequence": ("ImagePositionPatient",),
    "PlaneOrientationSequence": ("ImageOrientationPatient",),
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept"),
}
SINGLE = "export the series as single slices"
UNPACKED = "export the series uncompressed or as single slices"


def read_frames(where: Path, content: Path | BinaryIO, *, pixels: bool) -> list[Slice]:
    """The frames of a file, in the order they are stored in; each of several must say where it lies."""
    with user_errors(where):
        return _frames(where, content, pixels=pixels)


def _frames(where: Path, content: Path | BinaryIO, *, pixels: bool) -> list[Slice]:
    header = read_tags(where, content, (*HEADER, *PIXELS) if pixels else HEADER)
    count = int(number(where, header, "NumberOfFrames", 1))
    refuse_table(where, header)
    each = header.get(EACH) or ([{}] if count == 1 else ())
    if not each:
        finding = f"a multi-frame file whose {count} frames do not say where they lie, such as a film"
        raise UserError(Code.DICOM_SERIES, where, finding, SINGLE)
    if len(each) != count:
        raise UserError(Code.DICOM_SERIES, where, f"{count} frames, and the places of {len(each)}", AGAIN)
    shared = (header.get(SHARED) or [{}])[0]
    decoded = _Decoded(where, header, count)
    slices = []
    for index, own in enumerate(each):
        merged = dict(_merged(where, header, shared, own, is_alone=count == 1))
        if count > 1 and any(tag not in merged for tag in PLACE):
            raise UserError(
                Code.DICOM_SERIES, where, f"frame {index + 1} of {count} does not say where it lies", SINGLE
            )
        slices.append(Slice(where, merged, partial(decoded.frame, index, merged)))
    return slices


def _merged(where: Path, header: Any, shared: Any, own: Any, *, is_alone: bool) -> Iterator[tuple[str, Any]]:
    """What is true of one frame: of the file, of all frames and of itself, the last winning.

    Where the file lies says nothing about one frame of several.
    """
    for tag in (*OF_SLICES, *OF_PIXELS):
        if (is_alone or tag not in PLACE) and (found := value(where, header, tag)) is not None:
            yield tag, found
    for group, tags in GROUPS.items():
        for source in (shared, own):
            if sequence := source.get(group):
                told = ((tag, value(where, sequence[0], tag)) for tag in tags)
                yield from ((tag, found) for tag, found in told if found is not None)


class _Decoded:
    """The pixels of all frames, decoded once, when the first is asked for."""

    def __init__(self, where: Path, header: Any, count: int) -> None:
        self.where, self.header, self.count = where, header, count
        self.stored = cache(self._stored)

    def frame(self, index: int, merged: Any) -> NDArray[np.float32]:
        """Pixels ``(columns, rows)`` of a frame, rescaled."""
        with user_errors(self.where):
            pixels = upright(np.asarray(self.stored()[index], np.float32).T, merged)
            slope = number(self.where, merged, "RescaleSlope", 1.0)
            return rescale(self.where, pixels, slope, number(self.where, merged, "RescaleIntercept"))

    def _stored(self) -> NDArray[Any]:
        try:
            pixels = np.asarray(self.header.pixel_array)
        except Exception as error:
            raise undecoded(self.where, self.header, error, UNPACKED) from None
        # a file of one frame has no axis for it
        return pixels[None] if self.count == 1 else pixels
