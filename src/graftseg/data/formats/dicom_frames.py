"""Read the frames of an enhanced DICOM file (CT or MR) as slices."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_pixels import (
    PIXEL_VALUES,
    PIXELS,
    decoded,
    decoding_error,
    refuse_lookup_table,
    rescale,
)
from graftseg.data.formats.dicom_series import HEADER as SLICE_HEADER
from graftseg.data.formats.dicom_series import POSE, Slice
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags, user_errors, value

SHARED, PER_FRAME = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
HEADER = (*SLICE_HEADER, "NumberOfFrames", SHARED, PER_FRAME)
GROUPS = {  # tags to read from each functional group
    "PixelMeasuresSequence": ("PixelSpacing", "SliceThickness"),
    "PlanePositionSequence": ("ImagePositionPatient",),
    "PlaneOrientationSequence": ("ImageOrientationPatient",),
    "SegmentIdentificationSequence": ("ReferencedSegmentNumber",),
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept"),
}
SINGLE_SLICES = "export the series as single slices"


def read_frames(where: Path, content: Path | BinaryIO, *, pixels: bool) -> list[Slice]:
    """Return the frames of a file in stored order. Each of several frames must have a position and an orientation."""
    header = read_tags(where, content, (*HEADER, *PIXELS) if pixels else HEADER)
    count = int(number(where, header, "NumberOfFrames", 1))
    refuse_lookup_table(where, header)
    groups = header.get(PER_FRAME) or ([{}] if count == 1 else ())
    if not groups:
        finding = f"a multi-frame file without positions for its {count} frames, such as a cine loop"
        raise UserError(Code.SCAN_UNSUPPORTED, where, finding, SINGLE_SLICES)
    if len(groups) != count:
        raise UserError(Code.SCAN_HEADER, where, f"{count} frames, but positions for {len(groups)}", AGAIN)
    shared = (header.get(SHARED) or [{}])[0]
    decode = cache(partial(_decoded_frames, where, header, count))
    slices = []
    for index, frame in enumerate(groups):
        merged = dict(_merged_tags(where, header, shared, frame, is_single=count == 1))
        if count > 1 and any(tag not in merged for tag in POSE):
            finding = f"frame {index + 1} of {count} has no position or orientation"
            raise UserError(Code.SCAN_UNSUPPORTED, where, finding, SINGLE_SLICES)
        slices.append(Slice(where, merged, partial(_frame_pixels, where, decode, index, merged)))
    return slices


def _merged_tags(where: Path, header: Any, shared: Any, frame: Any, *, is_single: bool) -> Iterator[tuple[str, Any]]:
    """Yield the tags of the file, then the tags of each functional group, shared by all frames or of this frame.

    Later values override earlier values. If the file has several frames, position and orientation of the file itself
    are ignored.
    """
    for tag in (*SLICE_HEADER, *PIXEL_VALUES):
        if (is_single or tag not in POSE) and (content := value(where, header, tag)) is not None:
            yield tag, content
    for group, tags in GROUPS.items():
        for source in (shared, frame):
            if sequence := source.get(group):
                values = ((tag, value(where, sequence[0], tag)) for tag in tags)
                yield from ((tag, content) for tag, content in values if content is not None)


def _frame_pixels(
    where: Path, decode: Callable[[], NDArray[Any]], index: int, merged: dict[str, Any]
) -> NDArray[np.float32]:
    """Return the rescaled pixels ``(columns, rows)`` of a frame. ``decode`` decodes all frames on the first call."""
    with user_errors(where):
        return rescale(where, np.asarray(decode()[index], np.float32).T, merged)


def _decoded_frames(where: Path, header: Any, count: int) -> NDArray[Any]:
    try:
        pixels = decoded(where, header)
    except UserError:
        raise
    except Exception as error:
        remedy = "export the series uncompressed or as single slices"
        raise decoding_error(where, header, error, remedy) from None
    # pydicom returns a single frame without a frame axis
    return pixels[None] if count == 1 else pixels
