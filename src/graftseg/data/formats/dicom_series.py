"""Slices of a DICOM series -> a volume. Only the tags that voxels and geometry need are read, none about a person."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.formats.dicom_pixels import PIXELS, stored_pixels
from graftseg.data.formats.dicom_tags import AGAIN, Floats, number, numbers, read_tags
from graftseg.data.formats.scan import Guess, Scan, lps_geometry, refuse_bytes

HEADER = (
    "Rows",
    "Columns",
    "PixelSpacing",
    "SpacingBetweenSlices",
    "SliceThickness",
    "ImagerPixelSpacing",
    "NominalScannedPixelSpacing",
    "InstanceNumber",
    "ImagePositionPatient",
    "ImageOrientationPatient",
)
PLACE = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6}
"""The tags that say where a slice lies, and how many numbers each has."""

DISTANCES = ("SpacingBetweenSlices", "SliceThickness")
"""The tags that tell how far slices lie apart, the better one first."""

GAP = 1.5
"""Slices that lie so many times as far apart as usual have lost one between them."""

ONE_SERIES = "keep the slices of one series only"


@dataclass(frozen=True)
class Slice:
    """The header of a slice, the file it comes from and its pixels ``(columns, rows)``, rescaled."""

    where: Path
    header: Any
    pixels: Callable[[], NDArray[np.float32]]

    @classmethod
    def of(cls, where: Path, header: Any) -> "Slice":
        """A slice that is all of a file."""
        return cls(where, header, partial(stored_pixels, where, header))

    def numbers(self, tag: str, count: int) -> Floats | None:
        """So many numbers of the header, None where the tag is not there or empty."""
        return numbers(self.where, self.header, tag, count)

    def number(self, tag: str, default: float = 0.0) -> float:
        """A number of the header."""
        return number(self.where, self.header, tag, default)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return int(self.number("Columns")), int(self.number("Rows"))


def read_series(files: Sequence[Path]) -> Scan:
    """The voxels ``(1, columns, rows, slices)`` of a series, rescaled (to Hounsfield units in CT), as float32."""
    return volume_of([read_slice(path, path, pixels=True) for path in files])


def series_geometry(files: Sequence[Path]) -> Geometry:
    """Where the voxels of a series lie, from the headers alone."""
    return arranged([read_slice(path, path, pixels=False) for path in files])[1]


def read_slice(where: Path, content: Path | BinaryIO, *, pixels: bool) -> Slice:
    """One slice, with its pixels or without."""
    return Slice.of(where, read_tags(where, content, (*HEADER, *PIXELS) if pixels else HEADER))


def volume_of(slices: Sequence[Slice]) -> Scan:
    """The voxels ``(1, columns, rows, slices)`` of slices, sorted along their normal."""
    order, geometry = arranged(slices)
    volume = np.empty(geometry.shape, np.float32)
    for place, index in enumerate(order):
        volume[:, :, place] = _checked(slices[index], geometry.shape[:2])
    return Scan(volume[None], geometry)


def arranged(slices: Sequence[Slice]) -> tuple[list[int], Geometry]:
    """The slices along their normal, and their grid; by number or file where no header tells a position."""
    columns, rows = _same_size(slices)
    shape = (columns, rows, len(slices))
    refuse_bytes(slices[0].where.parent, 4 * prod(shape))
    down, across = _same_spacing(slices)
    positions = [one.numbers("ImagePositionPatient", 3) for one in slices]
    known = [position for position in positions if position is not None]
    if not known:
        spacing = np.array([across, down, _distance(slices[0])[0]])
        return _by_number(slices)[0], lps_geometry(shape, np.eye(3), spacing, np.zeros(3), is_placed=False)
    _refuse_unplaced(slices)
    axes = _axes(slices)
    heights = np.array([float(axes[:, 2] @ position) for position in known])
    order = [int(index) for index in np.argsort(heights, kind="stable")]
    _refuse_gaps(slices, heights, order)
    step, length = _step(slices, [known[index] for index in order], axes[:, 2], order)
    spacing = np.array([across, down, length])
    return order, lps_geometry(shape, np.column_stack([axes[:, :2], step]), spacing, known[order[0]])


def _same_size(slices: Sequence[Slice]) -> tuple[int, int]:
    first = slices[0]
    if min(first.size) <= 0:
        raise UserError(Code.DICOM_SERIES, first.where, "its header tells no number of columns and rows", AGAIN)
    for one in slices:
        if one.size != first.size:
            (columns, rows), (usual_columns, usual_rows) = one.size, first.size
            finding = f"the slice has {columns} x {rows} pixels where {first.where.name} has"
            raise UserError(Code.DICOM_SERIES, one.where, f"{finding} {usual_columns} x {usual_rows}", ONE_SERIES)
    return first.size


def _same_spacing(slices: Sequence[Slice]) -> Floats:
    """The distances between rows and between columns."""
    first = _spacing(slices[0])
    for one in slices[1:]:
        if not np.allclose(_spacing(one), first, rtol=1e-3):
            finding = f"PixelSpacing is {_spacing(one).tolist()} where {slices[0].where.name} has {first.tolist()}"
            raise UserError(Code.DICOM_SERIES, one.where, finding, ONE_SERIES)
    return first


def _spacing(one: Slice) -> Floats:
    values = one.numbers("PixelSpacing", 2)
    if values is None:
        raise UserError(Code.DICOM_SERIES, one.where, "its header has no PixelSpacing", AGAIN)
    if (values <= 0).any():
        raise UserError(
            Code.DICOM_SERIES, one.where, f"PixelSpacing in its header is {values.tolist()}, not above 0 mm", AGAIN
        )
    return values


def guesses_about(where: Path, slices: Sequence[Slice]) -> tuple[Guess, ...]:
    """What is guessed where no slice says where it lies: the order, the direction and the distance."""
    if any(one.numbers("ImagePositionPatient", 3) is not None for one in slices):
        return ()
    distance, told_by = _distance(slices[0])
    apart = f"{distance:g} mm apart by {told_by}" if told_by else f"{distance:g} mm apart, which no tag tells"
    count = "1 slice" if len(slices) == 1 else f"{len(slices)} slices"
    taken = f"{count} in the order of their {_by_number(slices)[1]}, {apart}, the first taken for the lowest"
    what = "no slice says where it lies (ImagePositionPatient): order, direction and slice spacing are guesses"
    remedy = "export the series again with its positions, or save it as NIfTI with the spacing that you know"
    return (Guess(where, what, taken, remedy),)


def _by_number(slices: Sequence[Slice]) -> tuple[list[int], str]:
    """The order of the slices' own numbers, or of their files where these do not tell all of them apart; by what."""
    counted = [one.number("InstanceNumber", -1.0) for one in slices]
    if len(set(counted)) < len(counted):
        return list(range(len(slices))), "file names"
    return sorted(range(len(slices)), key=counted.__getitem__), "numbers (InstanceNumber)"


def _distance(one: Slice) -> tuple[float, str | None]:
    """How far slices lie apart where positions do not tell, in mm, and the tag that does, if any; 1 mm if none."""
    # a sign says to which side the next one lies, in some scanners
    found = ((abs(one.number(tag)), tag) for tag in DISTANCES)
    return next(((distance, tag) for distance, tag in found if distance > 0), (1.0, None))


def _refuse_unplaced(slices: Sequence[Slice]) -> None:
    """Refuse slices without a place among others that have one: their order and distances would be guesses."""
    where = slices[0].where if len(slices) == 1 else slices[0].where.parent
    for tag, count in PLACE.items():
        if unplaced := [one.where.name for one in slices if one.numbers(tag, count) is None]:
            finding = f"{len(unplaced)} of its {len(slices)} slices without {tag}, the first {unplaced[0]}"
            raise UserError(
                Code.DICOM_SERIES, where, finding, "export the series again, or take out what is no slice of it"
            )


def _axes(slices: Sequence[Slice]) -> Floats:
    """The directions of columns, rows and their normal, as columns of length 1; the same in every slice."""
    directions, *others = [
        values for one in slices if (values := one.numbers("ImageOrientationPatient", 6)) is not None
    ]
    for one, other in zip(slices[1:], others, strict=True):
        if np.abs(other - directions).max() > 1e-3:
            raise UserError(
                Code.DICOM_SERIES, one.where, f"the slice is tilted against {slices[0].where.name}", ONE_SERIES
            )
    along, down = directions[:3], directions[3:]
    lengths = np.linalg.norm(along), np.linalg.norm(down)
    if min(lengths) < 0.9 or abs(along @ down) > 0.01 * lengths[0] * lengths[1]:
        finding = f"ImageOrientationPatient in its header, {directions.tolist()}, is not two directions at right angles"
        raise UserError(Code.DICOM_SERIES, slices[0].where, finding, AGAIN)
    along, down = along / lengths[0], down / lengths[1]
    return np.stack([along, down, np.cross(along, down)], axis=1)


def _refuse_gaps(slices: Sequence[Slice], heights: Floats, order: Sequence[int]) -> None:
    """Refuse two slices in one place, and places without one."""
    if len(order) == 1:
        return
    steps = np.diff(heights[list(order)])
    places = 1 + int(np.count_nonzero(steps > 1e-3))
    if len(order) >= 2 * places:
        finding = f"its {len(order)} slices lie in {places} places: several times, echoes or volumes"
        raise UserError(Code.DICOM_SERIES, slices[0].where.parent, finding, "keep one volume")
    usual = float(np.median(steps))
    for lower, upper in pairwise(order):
        step, name = float(heights[upper] - heights[lower]), slices[lower].where.name
        if step < usual / 4 or step <= 0:
            finding = f"the slice lies {step:.2f} mm from {name}, others {usual:.2f} mm apart"
            raise UserError(Code.DICOM_SERIES, slices[upper].where, finding, ONE_SERIES)
        if step > GAP * usual:
            count = round(step / usual) - 1
            missing = f"{count} slices are" if count > 1 else "a slice is"
            finding = f"{missing} missing before it: {step:.2f} mm from {name}, usually {usual:.2f} mm"
            raise UserError(Code.DICOM_SERIES, slices[upper].where, finding, AGAIN)


def _step(
    slices: Sequence[Slice], positions: Sequence[Floats], normal: Floats, order: Sequence[int]
) -> tuple[Floats, float]:
    """The direction, of length 1, and the length of the way from a slice to the next; oblique for a tilted gantry."""
    if len(positions) == 1:
        return normal, abs(slices[0].number("SliceThickness")) or 1.0
    way = (positions[-1] - positions[0]) / (len(positions) - 1)
    length = float(np.linalg.norm(way))
    for place, position in enumerate(positions):
        away = float(np.linalg.norm(position - positions[0] - place * way))
        if away > length / 2:
            finding = f"the slice lies {away:.2f} mm from where even steps of {length:.2f} mm would put it"
            raise UserError(
                Code.DICOM_SERIES,
                slices[order[place]].where,
                finding,
                "export the series with slices at even distances",
            )
    return way / length, length


def _checked(one: Slice, size: tuple[int, ...]) -> NDArray[np.float32]:
    pixels = one.pixels()
    if pixels.shape != size:
        raise UserError(
            Code.DICOM_SERIES, one.where, f"its pixels have the shape {pixels.shape}", "export one grey slice a file"
        )
    return pixels
