"""Read the slices of a DICOM series, or the frames of an enhanced file, as a volume, without patient tags."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.types import Geometry
from graftseg.data.formats import dicom_pixels
from graftseg.data.formats.dicom_tags import AGAIN, number, numbers, read_tags, user_errors, value
from graftseg.data.formats.scan import Floats, Guess, Scan, lps_geometry, refuse_bytes, refuse_memory, unsupported

SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
POSE = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6}  # position and orientation: number of values by tag
SLICE_DISTANCES = ("SpacingBetweenSlices", "SliceThickness")  # read if positions are missing, the best first
HEADER = ("Rows", "Columns", "InstanceNumber", "FrameOfReferenceUID", *SPACINGS, *SLICE_DISTANCES, *POSE)
GAP = 1.5  # if a distance between slices exceeds ``GAP`` times the median distance, a slice is missing
ONE_SERIES = "keep the slices of one series only"
SHARED, PER_FRAME = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
FRAMES_HEADER = (*HEADER, "NumberOfFrames", SHARED, PER_FRAME)
GROUPS = {  # tags to read from each functional group
    "PixelMeasuresSequence": ("PixelSpacing", "SliceThickness"),
    "PlanePositionSequence": ("ImagePositionPatient",),
    "PlaneOrientationSequence": ("ImageOrientationPatient",),
    "SegmentIdentificationSequence": ("ReferencedSegmentNumber",),
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept"),
}
SINGLE_SLICES = "export the series as single slices"


@dataclass(frozen=True)
class Slice:
    """The header of a slice, its file and a function that returns its rescaled pixels ``(columns, rows)``."""

    where: Path
    header: Any
    pixels: Callable[[], NDArray[np.float32]]

    def numbers(self, tag: str, count: int) -> Floats | None:
        """Return the value of a tag as ``count`` numbers, or None if the tag is missing or empty."""
        return numbers(self.where, self.header, tag, count)

    def number(self, tag: str, default: float = 0.0) -> float:
        """Return the value of a tag as a number, or the default if the tag is missing or empty."""
        return number(self.where, self.header, tag, default)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return int(self.number("Columns")), int(self.number("Rows"))


def read_series(files: Sequence[Path]) -> Scan:
    """Read a series as float32 ``(1, columns, rows, slices)``, rescaled (to Hounsfield units in CT)."""
    return volume_of(files[0].parent, [read_slice(path, path, pixels=True) for path in files])


def series_geometry(files: Sequence[Path]) -> Geometry:
    """Return the geometry of a series from its headers."""
    return arranged([read_slice(path, path, pixels=False) for path in files])[1]


def read_slice(where: Path, content: Path | BinaryIO, *, pixels: bool) -> Slice:
    """Read a file with one slice, with or without its pixels."""
    header = read_tags(where, content, (*HEADER, *dicom_pixels.PIXELS) if pixels else HEADER)
    return Slice(where, header, partial(dicom_pixels.stored_pixels, where, header))


def volume_of(where: Path, slices: Sequence[Slice]) -> Scan:
    """Return the volume ``(1, columns, rows, slices)``, with slices sorted along their normal."""
    order, geometry = arranged(slices)
    volume = np.empty(0, np.float32)
    for z, index in enumerate(order):
        pixels = slices[index].pixels()
        if z == 0:
            # a file with fewer pixels than its header claims was already refused by ``pixels``
            refuse_memory(where, 4 * prod(geometry.shape))
            volume = np.empty(geometry.shape, np.float32)
        if pixels.shape != geometry.shape[:2]:
            finding = f"the pixels have the shape {pixels.shape}"
            raise unsupported(slices[index].where, finding, "export one gray slice per file")
        volume[:, :, z] = pixels
    return Scan(volume[None], geometry, _guesses(where, slices))


def arranged(slices: Sequence[Slice]) -> tuple[list[int], Geometry]:
    """Return the order of slices (without positions: by instance number or name) and the geometry of the volume."""
    columns, rows = _common_size(slices)
    shape = (columns, rows, len(slices))
    refuse_bytes(slices[0].where.parent, 4 * prod(shape))
    down, across = _common_spacing(slices)
    positions = [slice_.numbers("ImagePositionPatient", 3) for slice_ in slices]
    corners = [position for position in positions if position is not None]
    if not corners:
        spacing = np.array([across, down, _assumed_distance(slices[0])[0]])
        return _order_by_number(slices)[0], lps_geometry(shape, np.eye(3), spacing, np.zeros(3), is_placed=False)
    _refuse_unplaced(slices)
    axes = _axes(slices)
    order, heights = slice_order(corners, axes[:, 2])
    _refuse_gaps(slices, heights, order)
    step, length = _step(slices, [corners[index] for index in order], axes[:, 2], order)
    spacing = np.array([across, down, length])
    return order, lps_geometry(shape, np.column_stack([axes[:, :2], step]), spacing, corners[order[0]])


def slice_order(positions: Sequence[Floats], normal: Floats) -> tuple[list[int], Floats]:
    """Return the order of slices along their normal, and the height (position along the normal) of each slice."""
    heights = np.array([float(normal @ position) for position in positions])
    return [int(index) for index in np.argsort(heights, kind="stable")], heights


def _common_size(slices: Sequence[Slice]) -> tuple[int, int]:
    first = slices[0]
    if min(first.size) <= 0:
        raise UserError(Code.SCAN_HEADER, first.where, "the header has no number of columns and rows", AGAIN)
    for slice_ in slices:
        if slice_.size != first.size:
            pixels, expected = (f"{columns} x {rows}" for columns, rows in (slice_.size, first.size))
            finding = f"the slice has {pixels} pixels, but {first.where.name} has {expected}"
            raise UserError(Code.DICOM_SERIES, slice_.where, finding, ONE_SERIES)
    return first.size


def _common_spacing(slices: Sequence[Slice]) -> Floats:
    first = pixel_spacing(slices[0])
    for slice_ in slices[1:]:
        if not np.allclose(spacing := pixel_spacing(slice_), first, rtol=1e-3):
            finding = f"PixelSpacing is {spacing.tolist()}, but {slices[0].where.name} has {first.tolist()}"
            raise UserError(Code.DICOM_SERIES, slice_.where, finding, ONE_SERIES)
    return first


def pixel_spacing(slice_: Slice, tags: Sequence[str] = ("PixelSpacing",), default: Floats | None = None) -> Floats:
    """Return the distances between rows and between columns, from the first of ``tags`` that the header has."""
    values = next((spacing for tag in tags if (spacing := slice_.numbers(tag, 2)) is not None), default)
    if values is None:
        raise UserError(Code.SCAN_HEADER, slice_.where, "the header has no PixelSpacing", AGAIN)
    if (values <= 0).any():
        finding = f"PixelSpacing in the header is {values.tolist()}, not above 0 mm"
        raise UserError(Code.SCAN_HEADER, slice_.where, finding, AGAIN)
    return values


def _guesses(where: Path, slices: Sequence[Slice]) -> tuple[Guess, ...]:
    """Return the guess about order, direction and distance of slices if no slice has a position."""
    if any(slice_.numbers("ImagePositionPatient", 3) is not None for slice_ in slices):
        return ()
    distance, source = _assumed_distance(slices[0])
    count = counted(len(slices), "slice")
    assumed = f"{count} ordered by {_order_by_number(slices)[1]}, {distance:g} mm apart ({source}), lowest slice first"
    what = "no slice has a position (ImagePositionPatient): order, direction and slice spacing are guesses"
    remedy = "export the series again with positions, or save it as NIfTI with the correct spacing"
    return (Guess(where, what, assumed, remedy),)


def _order_by_number(slices: Sequence[Slice]) -> tuple[list[int], str]:
    """Return the order by instance number, or by file name if numbers repeat, and the name of the criterion."""
    instances = [slice_.number("InstanceNumber", -1.0) for slice_ in slices]
    if len(set(instances)) < len(instances):
        return list(range(len(slices))), "file name"
    return sorted(range(len(slices)), key=instances.__getitem__), "InstanceNumber"


def _assumed_distance(slice_: Slice) -> tuple[float, str]:
    """Return the distance between slices without positions, in mm, and its tag, or 1 mm and "default"."""
    # some scanners write a negative distance to give the direction
    distances = ((abs(slice_.number(tag)), tag) for tag in SLICE_DISTANCES)
    return next(((distance, tag) for distance, tag in distances if distance > 0), (1.0, "default"))


def _refuse_unplaced(slices: Sequence[Slice]) -> None:
    """Raise a UserError if a slice has no position or orientation, because the order would be a guess."""
    where = slices[0].where if len(slices) == 1 else slices[0].where.parent
    for tag, count in POSE.items():
        if unplaced := [slice_.where.name for slice_ in slices if slice_.numbers(tag, count) is None]:
            finding = f"{len(unplaced)} of {len(slices)} slices have no {tag}, the first is {unplaced[0]}"
            remedy = "export the series again, or remove files that do not belong to it"
            raise UserError(Code.DICOM_SERIES, where, finding, remedy)


def _axes(slices: Sequence[Slice]) -> Floats:
    """Return unit vectors along rows, columns and normal, as matrix columns. They must be equal for all slices."""
    orientations = [slice_.numbers("ImageOrientationPatient", 6) for slice_ in slices]
    directions, *others = [values for values in orientations if values is not None]
    for slice_, other in zip(slices[1:], others, strict=True):
        if np.abs(other - directions).max() > 1e-3:
            finding = f"the slice is tilted against {slices[0].where.name}"
            raise UserError(Code.DICOM_SERIES, slice_.where, finding, ONE_SERIES)
    along, down = directions[:3], directions[3:]
    lengths = np.linalg.norm(along), np.linalg.norm(down)
    if min(lengths) < 0.9 or abs(along @ down) > 0.01 * lengths[0] * lengths[1]:
        finding = f"ImageOrientationPatient in the header, {directions.tolist()}, is not two orthogonal directions"
        raise UserError(Code.SCAN_HEADER, slices[0].where, finding, AGAIN)
    along, down = along / lengths[0], down / lengths[1]
    return np.stack([along, down, np.cross(along, down)], axis=1)


def _refuse_gaps(slices: Sequence[Slice], heights: Floats, order: Sequence[int]) -> None:
    """Raise a UserError for missing slices and for several slices at one position."""
    if len(order) == 1:
        return
    steps = np.diff(heights[list(order)])
    positions = 1 + int(np.count_nonzero(steps > 1e-3))
    if len(order) >= 2 * positions:
        finding = f"{len(order)} slices at {positions} positions: several time points, echoes or volumes"
        raise UserError(Code.DICOM_SERIES, slices[0].where.parent, finding, "keep one volume")
    median = float(np.median(steps))
    for lower, upper in pairwise(order):
        step, name = float(heights[upper] - heights[lower]), slices[lower].where.name
        if step < median / 4 or step <= 0:
            finding = f"the slice is {step:.2f} mm from {name}, others are {median:.2f} mm apart"
            raise UserError(Code.DICOM_SERIES, slices[upper].where, finding, ONE_SERIES)
        if step > GAP * median:
            count = round(step / median) - 1
            missing = f"{count} slices are missing" if count > 1 else "a slice is missing"
            finding = f"{missing} before this slice: {step:.2f} mm from {name}, others are {median:.2f} mm apart"
            raise UserError(Code.DICOM_SERIES, slices[upper].where, finding, AGAIN)


def _step(
    slices: Sequence[Slice], positions: Sequence[Floats], normal: Floats, order: Sequence[int]
) -> tuple[Floats, float]:
    """Return direction (unit vector) and length of the step between slices. The step is oblique for a tilted gantry."""
    if len(positions) == 1:
        return normal, abs(slices[0].number("SliceThickness")) or 1.0
    step = (positions[-1] - positions[0]) / (len(positions) - 1)
    length = float(np.linalg.norm(step))
    for z, position in enumerate(positions):
        distance = float(np.linalg.norm(position - positions[0] - z * step))
        if distance > length / 2:
            finding = f"the slice is {distance:.2f} mm from its position at regular steps of {length:.2f} mm"
            remedy = "export the series with slices at regular distances"
            raise UserError(Code.DICOM_SERIES, slices[order[z]].where, finding, remedy)
    return step / length, length


def read_frames(where: Path, content: Path | BinaryIO, *, pixels: bool) -> list[Slice]:
    """Return the frames of a file in stored order. Each of several frames must have a position and an orientation."""
    header = read_tags(where, content, (*FRAMES_HEADER, *dicom_pixels.PIXELS) if pixels else FRAMES_HEADER)
    count = int(number(where, header, "NumberOfFrames", 1))
    dicom_pixels.refuse_lookup_table(where, header)
    groups = header.get(PER_FRAME) or ([{}] if count == 1 else ())
    if not groups:
        finding = f"a multi-frame file without positions for its {count} frames, such as a cine loop"
        raise unsupported(where, finding, SINGLE_SLICES)
    if len(groups) != count:
        raise UserError(Code.SCAN_HEADER, where, f"{count} frames, but positions for {len(groups)}", AGAIN)
    shared = (header.get(SHARED) or [{}])[0]
    is_divisible = dicom_pixels.has_separate_frames(where, header)
    decode = None if is_divisible else cache(partial(_decoded_frames, where, header, count))
    slices = []
    for index, frame in enumerate(groups):
        merged = dict(_merged_tags(where, header, shared, frame, is_single=count == 1))
        if count > 1 and any(tag not in merged for tag in POSE):
            raise unsupported(where, f"frame {index + 1} of {count} has no position or orientation", SINGLE_SLICES)
        slices.append(Slice(where, merged, partial(_frame_pixels, where, header, index, merged, decode)))
    return slices


def _merged_tags(where: Path, header: Any, shared: Any, frame: Any, *, is_single: bool) -> Iterator[tuple[str, Any]]:
    """Yield tags of the file, then those of its functional groups and of this frame, which override them."""
    for tag in (*HEADER, *dicom_pixels.PIXEL_VALUES):
        if (is_single or tag not in POSE) and (content := value(where, header, tag)) is not None:
            yield tag, content
    for group, tags in GROUPS.items():
        for source in (shared, frame):
            if sequence := source.get(group):
                values = ((tag, value(where, sequence[0], tag)) for tag in tags)
                yield from ((tag, content) for tag, content in values if content is not None)


def _frame_pixels(
    where: Path, header: Any, index: int, merged: dict[str, Any], decode: Callable[[], NDArray[Any]] | None
) -> NDArray[np.float32]:
    """Return the rescaled pixels ``(columns, rows)`` of a frame. ``decode`` decodes all frames on the first call."""
    with user_errors(where):
        frame = _decoded(where, header, index) if decode is None else decode()[index]
        return dicom_pixels.rescale(where, np.asarray(frame, np.float32).T, merged)


def _decoded_frames(where: Path, header: Any, count: int) -> NDArray[Any]:
    pixels = _decoded(where, header)
    # pydicom returns a single frame without a frame axis
    return pixels[None] if count == 1 else pixels


def _decoded(where: Path, header: Any, index: int | None = None) -> NDArray[Any]:
    """Return the stored values of a frame, or of all frames."""
    try:
        return dicom_pixels.decoded(where, header, index)
    except UserError:
        raise
    except Exception as error:
        remedy = "export the series uncompressed or as single slices"
        raise dicom_pixels.decoding_error(where, header, error, remedy) from None
