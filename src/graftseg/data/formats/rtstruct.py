"""RT structure sets: regions of interest (ROIs) and their filled contours on the slices of an image.

A pixel belongs to a contour if its center lies inside. Contours of an ROI on one slice are combined by exclusive or, so
a contour inside another contour is a hole. A hole can also be part of a single contour that runs into the hole and
back along the same line (keyhole).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_planes import Planes
from graftseg.data.formats.dicom_structures import ROIS, Mask, Structure, structures_in
from graftseg.data.formats.dicom_tags import AGAIN, number, numbers, read_tags, value
from graftseg.data.formats.scan import Floats

SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.481.3",)  # RT Structure Set Storage
FILLED = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")  # types of contours with an area. Points and open lines are skipped
CONTOURS = "ROIContourSequence"
THINNEST = 1e-3  # smallest width of a contour, in mm. The points of a thinner contour lie on one line
REPEATED = "repeated"  # kind of a contour with the same edges as another contour of its ROI
CROSSINGS = 2**21  # about the number of crossings of edges and rows that are computed at once
DECIMALS = 4  # polygons are equal if their points are equal when rounded to this many decimals of a pixel


def regions_of(path: Path) -> list[Structure]:
    """Return the ROIs in order of their numbers."""
    return structures_in(path, read_tags(path, path, (ROIS,)), ROIS)


def region_masks(path: Path, planes: Planes, wanted: Collection[int], ignored: Counter[str]) -> Iterator[Mask]:
    """Yield the filled contours of each wanted ROI, combined on each slice. Count ignored contours by kind."""
    shape = planes.geometry.shape[0], planes.geometry.shape[1]
    header = read_tags(path, path, (ROIS, CONTOURS))
    for region in value(path, header, ROIS) or ():
        if int(number(path, region, "ROINumber", -1)) in wanted:
            planes.refuse_other_frame(path, value(path, region, "ReferencedFrameOfReferenceUID"))
    for key, contours in _contours(path, header, wanted):
        polygons: dict[int, list[Floats]] = {}
        seen: set[tuple[int, bytes]] = set()
        for index, contour in enumerate(contours):
            name = f"contour {index + 1} of ROI {key}"
            corners, kind = _points(path, name, contour)
            if corners is None:
                ignored[kind] += 1
                continue
            plane, points = planes.locate(path, name, corners)
            if (place := (plane, edges_of(points))) in seen:
                # by exclusive or, a contour and its copy would cancel
                ignored[REPEATED] += 1
                continue
            seen.add(place)
            polygons.setdefault(plane, []).append(points)
        yield from (Mask(key, plane, fill_polygons(on_plane, shape)) for plane, on_plane in polygons.items())


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


def _points(path: Path, name: str, contour: Any) -> tuple[Floats | None, str]:
    """Return the LPS coordinates ``(n, 3)`` of a contour, or None if it encloses no area, and the kind of contour."""
    kind = str(value(path, contour, "ContourGeometricType") or "without type")
    if kind not in FILLED:
        return None, kind
    coordinates = numbers(path, contour, "ContourData")
    if coordinates is None or len(coordinates) == 0 or len(coordinates) % 3:
        raise UserError(Code.SCAN_HEADER, path, f"ContourData of {name} is not a list of 3-D points", AGAIN)
    points = coordinates.reshape(-1, 3)
    if len(points) < 3:
        return None, f"{kind} with fewer than 3 points"
    _, lengths, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return (points, kind) if lengths[1] > THINNEST else (None, f"{kind} with all points on one line")


def edges_of(points: NDArray[np.float64]) -> bytes:
    """Return the edges of a closed polygon. The start, the direction and repeated points do not change the result."""
    rounded = points.round(DECIMALS) + 0.0  # without -0.0
    ends = np.stack([rounded, np.roll(rounded, -1, axis=0)], axis=1)
    ends = ends[(ends[:, 0] != ends[:, 1]).any(axis=1)]
    x, y = (ends[:, 1] - ends[:, 0]).T
    is_backward = (x < 0) | ((x == 0) & (y < 0))
    ends[is_backward] = ends[is_backward][:, ::-1]
    edges = ends.reshape(-1, 4)
    ordered: NDArray[np.float64] = edges[np.lexsort(edges.T)]
    return ordered.tobytes()


def fill_polygons(polygons: Sequence[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels ``(columns, rows)`` whose centers lie inside an odd number of closed polygons.

    The points of a polygon are (column, row) coordinates. The center of the first pixel is (0, 0). A center exactly on
    an edge is inside if the inside is toward higher columns or rows. Polygons with a common edge thus share no pixel.
    """
    columns, rows = shape
    x0, y0 = np.concatenate(polygons).T
    x1, y1 = np.concatenate([np.roll(points, -1, axis=0) for points in polygons]).T
    # an edge crosses the rows from ceil(lower end) up to, but not including, ceil(upper end)
    first = np.clip(np.ceil(np.minimum(y0, y1)), 0, rows).astype(np.int64)
    count = np.clip(np.ceil(np.maximum(y0, y1)), 0, rows).astype(np.int64) - first
    crossings = np.zeros((columns + 1, rows), np.int32)
    # edges in groups, to limit the memory for their crossings
    groups = np.searchsorted(np.cumsum(count), np.arange(CROSSINGS, count.sum(), CROSSINGS))
    for edges in np.split(np.arange(len(count)), groups):
        edge = np.repeat(edges, count[edges])
        row = np.arange(len(edge)) - np.repeat(np.cumsum(count[edges]) - count[edges], count[edges]) + first[edge]
        crossing = x0[edge] + (row - y0[edge]) * (x1 - x0)[edge] / (y1 - y0)[edge]
        column = np.clip(np.ceil(crossing), 0, columns).astype(np.int64)
        np.add.at(crossings, (column, row), 1)
    # a pixel is inside if the number of crossings at or before it in its row is odd
    inside: NDArray[np.bool_] = crossings[:columns].cumsum(axis=0) % 2 == 1
    return inside
