"""RT structure sets: regions of interest (ROIs) and their filled contours on the slices of an image.

A pixel belongs to a contour if its center lies inside. Contours of an ROI on one slice are combined by exclusive or, so
a contour inside another contour is a hole. A hole can also be part of a single contour that runs into the hole and
back along the same line (keyhole).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_planes import Planes
from graftseg.data.formats.dicom_tags import AGAIN, Floats, count_numbers, number, numbers, read_tags, value
from graftseg.data.formats.polygons import fill_polygons
from graftseg.data.formats.structures import ROIS, Mask, Structure, structures_in

SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.481.3",)
"""RT Structure Set Storage."""
FILLED = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")
"""Geometric types of contours that enclose an area. Points and open lines are skipped."""
CONTOURS = "ROIContourSequence"


def regions_of(path: Path) -> list[Structure]:
    """Return the ROIs in order of their numbers."""
    return structures_in(path, read_tags(path, path, (ROIS,)), ROIS)


def region_masks(path: Path, planes: Planes, wanted: Collection[int]) -> Iterator[Mask]:
    """Yield the filled contours of each wanted ROI, combined on each slice."""
    shape = planes.geometry.shape[0], planes.geometry.shape[1]
    header = read_tags(path, path, (ROIS, CONTOURS))
    for one in value(path, header, ROIS) or ():
        if int(number(path, one, "ROINumber", -1)) in wanted:
            planes.refuse_other_frame(path, value(path, one, "ReferencedFrameOfReferenceUID"))
    for key, contours in _contours(path, header, wanted):
        polygons: dict[int, list[Floats]] = {}
        for index, contour in enumerate(contours):
            if _without_area(path, contour) is None:
                name = f"contour {index + 1} of ROI {key}"
                plane, points = planes.locate(path, name, _points(path, name, contour))
                polygons.setdefault(plane, []).append(points)
        yield from (Mask(key, plane, fill_polygons(found, shape)) for plane, found in polygons.items())


def skipped_contours(path: Path, wanted: Collection[int]) -> Counter[str]:
    """Return the number of contours without an area in the wanted ROIs, by kind."""
    found = _contours(path, read_tags(path, path, (CONTOURS,)), wanted)
    kinds = (_without_area(path, contour) for _, contours in found for contour in contours)
    return Counter(kind for kind in kinds if kind is not None)


def _contours(path: Path, header: Any, wanted: Collection[int]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the number and the contours of each wanted ROI that has contours."""
    # pydicom reads a truncated file without an error, but the number comes after the contours and is then missing
    regions = value(path, header, CONTOURS)
    keys = [int(number(path, region, "ReferencedROINumber", -1)) for region in regions or ()]
    if not keys or min(keys) < 0:
        raise UserError(Code.SCAN_DAMAGED, path, "the file is truncated in its contours", AGAIN)
    for key, region in zip(keys, regions, strict=True):
        if key in wanted:
            yield key, value(path, region, "ContourSequence") or ()


def _without_area(path: Path, contour: Any) -> str | None:
    """Return the kind of a contour that encloses no area, such as ``POINT``. Return None for a contour to fill."""
    kind = str(value(path, contour, "ContourGeometricType") or "without type")
    if kind not in FILLED:
        return kind
    # any other number that is not a multiple of 3 is an error
    return f"{kind} with fewer than 3 points" if count_numbers(contour, "ContourData") in (3, 6) else None


def _points(path: Path, name: str, contour: Any) -> Floats:
    """Return the LPS coordinates ``(n, 3)`` of a contour."""
    found = numbers(path, contour, "ContourData")
    if found is None or len(found) == 0 or len(found) % 3:
        raise UserError(Code.SCAN_HEADER, path, f"ContourData of {name} is not a list of 3-D points", AGAIN)
    return found.reshape(-1, 3)
