"""A DICOM series of slices -> a scan. Only the tags that voxels and geometry need are read, none about a person."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.data.scans import MAX_BYTES, Scan
from graftseg.errors import UserError
from graftseg.types import Geometry

AGAIN = "copy or download the series again"
HEADER = ("Rows", "Columns", "PixelSpacing", "SliceThickness", "ImagePositionPatient", "ImageOrientationPatient")
PIXELS = (
    "RescaleSlope",
    "RescaleIntercept",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelData",
)
GAP = 1.5
"""Slices that lie so many times as far apart as usual have lost one between them."""

Floats = NDArray[np.float64]


def read_series(paths: Sequence[Path]) -> Scan:
    """The voxels ``(1, columns, rows, slices)`` of a series, rescaled (to Hounsfield units in CT), as float32."""
    slices = [_read(path, (*HEADER, *PIXELS)) for path in paths]
    order, geometry = _arranged(paths, slices)
    volume = np.empty(geometry.shape, np.float32)
    for place, index in enumerate(order):
        volume[:, :, place] = _voxels(paths[index], slices[index], geometry.shape[:2])
    return Scan(volume[None], geometry)


def series_geometry(paths: Sequence[Path]) -> Geometry:
    """Where the voxels of a series lie, from the headers alone."""
    return _arranged(paths, [_read(path, HEADER) for path in paths])[1]


def _read(path: Path, tags: Sequence[str]) -> Any:
    pydicom = _pydicom()
    try:
        return pydicom.dcmread(path, specific_tags=list(tags), stop_before_pixels="PixelData" not in tags)
    except pydicom.errors.InvalidDicomError:
        raise UserError(path, "not a DICOM file", AGAIN) from None
    except (OSError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise UserError(path, f"the file cannot be read ({' '.join(str(error).split())})", AGAIN) from None


def _arranged(paths: Sequence[Path], slices: Sequence[Any]) -> tuple[list[int], Geometry]:
    """The slices along their normal, and their grid; by file name where a header does not tell the position."""
    sizes = [_size(path, one) for path, one in zip(paths, slices, strict=True)]
    for path, size in zip(paths, sizes, strict=True):
        if size != sizes[0] or 0 in size:
            finding = (
                f"the slice has {size[0]} x {size[1]} pixels where {paths[0].name} has {sizes[0][0]} x {sizes[0][1]}"
            )
            raise UserError(path, finding, "keep the slices of one series only")
    shape = (*sizes[0], len(slices))
    if 4 * prod(shape) > MAX_BYTES:
        raise UserError(paths[0].parent, f"the series asks for {4 * prod(shape)} bytes, above the limit", AGAIN)
    rows, columns = _spacing(paths[0], slices[0])
    positions = [_optional(path, one, "ImagePositionPatient", 3) for path, one in zip(paths, slices, strict=True)]
    directions = _optional(paths[0], slices[0], "ImageOrientationPatient", 6)
    known = [position for position in positions if position is not None]
    if directions is None or len(known) < len(slices):
        thickness = _number(paths[0], slices[0], "SliceThickness") or 1.0
        return list(range(len(slices))), Geometry(shape, _affine(np.eye(3), (columns, rows, thickness), np.zeros(3)))
    along, down = directions[:3], directions[3:]
    normal = np.cross(along, down)
    heights = np.array([float(normal @ position) for position in known])
    order = [int(index) for index in np.argsort(heights, kind="stable")]
    axes = np.stack([along, down, normal], axis=1)
    step = _step(paths, heights, order)
    return order, Geometry(shape, _affine(axes, (columns, rows, step), known[order[0]]))


def _step(paths: Sequence[Path], heights: Floats, order: Sequence[int]) -> float:
    """The distance between neighbouring slices; two in one place, or one that is missing, are refused."""
    if len(order) == 1:
        return 1.0
    usual = float(np.median(np.diff(heights[list(order)])))
    for lower, upper in pairwise(order):
        step = float(heights[upper] - heights[lower])
        if step < usual / 4 or step <= 0:
            finding = f"the slice lies {step:.2f} mm from {paths[lower].name}, others {usual:.2f} mm apart"
            raise UserError(paths[upper], finding, "keep the slices of one series only")
        if step > GAP * usual:
            finding = f"a slice is missing before it: {step:.2f} mm from {paths[lower].name}, usually {usual:.2f} mm"
            raise UserError(paths[upper], finding, AGAIN)
    return usual


def _affine(axes: Floats, spacing: tuple[float, ...], origin: Floats) -> tuple[tuple[float, ...], ...]:
    """DICOM counts to the left and to the back, an affine to the right and to the front."""
    matrix = np.eye(4)
    matrix[:3, :3] = axes * np.array(spacing)
    matrix[:3, 3] = origin
    matrix[:2] *= -1
    return tuple(tuple(float(value) for value in row) for row in matrix)


def _voxels(path: Path, one: Any, size: tuple[int, ...]) -> NDArray[np.float32]:
    """Pixels ``(columns, rows)``, rescaled."""
    try:
        pixels = np.asarray(one.pixel_array, np.float32).T
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        finding = f"its pixels cannot be decoded ({reason})"
        raise UserError(path, finding, "copy the series again or export it uncompressed") from None
    if pixels.shape != size:
        raise UserError(path, f"its pixels have the shape {pixels.shape}", "export one grey slice a file")
    slope, intercept = _number(path, one, "RescaleSlope", 1.0), _number(path, one, "RescaleIntercept")
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: NDArray[np.float32] = pixels * np.float32(slope) + np.float32(intercept)
    if not np.isfinite(scaled).all():
        raise UserError(path, f"RescaleSlope {slope:g} makes its values infinite", AGAIN)
    return scaled


def _size(path: Path, one: Any) -> tuple[int, int]:
    return int(_number(path, one, "Columns")), int(_number(path, one, "Rows"))


def _spacing(path: Path, one: Any) -> Floats:
    values = _optional(path, one, "PixelSpacing", 2)
    if values is None:
        raise UserError(path, "its header has no PixelSpacing", AGAIN)
    if (values <= 0).any():
        raise UserError(path, f"PixelSpacing in its header is {values.tolist()}, not above 0 mm", AGAIN)
    return values


def _number(path: Path, one: Any, tag: str, default: float = 0.0) -> float:
    """A single number of a header; the default where the tag is not there or empty."""
    found = one.get(tag)
    if found is None:
        return default
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise UserError(path, f"{tag} in its header is not a number", AGAIN)
    return value


def _optional(path: Path, one: Any, tag: str, count: int) -> Floats | None:
    found = one.get(tag)
    if found is None:
        return None
    try:
        values = np.array([float(value) for value in found])
    except (TypeError, ValueError):
        values = np.zeros(0)
    if len(values) != count or not np.isfinite(values).all():
        raise UserError(path, f"{tag} in its header is not {count} numbers", AGAIN)
    return values


def _pydicom() -> Any:
    try:
        import pydicom
    except ImportError:
        raise UserError("DICOM files", "pydicom is not installed", "pip install pydicom") from None
    return pydicom
