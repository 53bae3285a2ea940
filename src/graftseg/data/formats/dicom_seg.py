"""DICOM segmentations of the types BINARY and LABELMAP: segments and their pixels on the slices of an image."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_planes import OTHER_IMAGE, TOLERANCE, Planes
from graftseg.data.formats.dicom_series import Slice, pixel_spacing, read_frames
from graftseg.data.formats.dicom_structures import SEGMENTS, Mask, Structure, structures_in
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags, value
from graftseg.data.formats.scan import Floats, refuse_bytes, unsupported

SOP_CLASSES = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")  # Segmentation, Label Map Segmentation
HEADER = ("SegmentationType", SEGMENTS, "FrameOfReferenceUID", "NumberOfFrames", "Rows", "Columns")


def segments_of(path: Path) -> list[Structure]:
    """Return the segments in order of their numbers."""
    segments = structures_in(path, read_tags(path, path, HEADER), SEGMENTS)
    # a LABELMAP may describe the background as segment 0
    return [segment for segment in segments if segment.number != 0]


def segment_masks(path: Path, planes: Planes, wanted: Collection[int]) -> Iterator[Mask]:
    """Yield a mask of each wanted segment in each frame, on the image slice at the position of the frame."""
    header = read_tags(path, path, HEADER)
    planes.refuse_other_frame(path, value(path, header, "FrameOfReferenceUID"))
    segmentation_type = str(value(path, header, "SegmentationType") or "missing")
    if segmentation_type not in ("BINARY", "LABELMAP"):
        remedy = "export the segmentation as BINARY or LABELMAP, or save a NIfTI file with one class number per voxel"
        raise unsupported(path, f"SegmentationType is {segmentation_type:.20}", remedy)
    refuse_bytes(path, int(np.prod([number(path, header, tag, 1) for tag in ("NumberOfFrames", "Rows", "Columns")])))
    described = {segment.number for segment in segments_of(path)}
    for index, frame in enumerate(read_frames(path, path, pixels=True)):
        pixels = frame.pixels().astype(np.int32)
        if segmentation_type == "BINARY":
            pixels *= int(frame.number("ReferencedSegmentNumber", -1))
        present = {int(segment) for segment in np.unique(pixels[pixels != 0])}
        if present - described:
            finding = f"the segment of frame {index + 1} is not described in SegmentSequence"
            raise UserError(Code.SCAN_HEADER, path, finding, AGAIN)
        for segment in sorted(present.intersection(wanted)):
            yield Mask(segment, *_on_slice(frame, f"frame {index + 1}", pixels == segment, planes))


def _on_slice(frame: Slice, name: str, mask: NDArray[np.bool_], planes: Planes) -> tuple[int, NDArray[np.bool_]]:
    """Return the slice of a frame, and the pixels of the frame in the columns and rows of the slice."""
    points = _pixel_centers(frame, name, np.array([(0, 0), (1, 0), (0, 1), (mask.shape[0] - 1, mask.shape[1] - 1)]))
    plane, coordinates = planes.locate(frame.where, name, points)
    steps = np.rint(coordinates[1:3] - coordinates[0]).astype(np.int64)
    origin = np.rint(coordinates[0]).astype(np.int64)
    pixels = np.argwhere(mask) @ steps + origin
    # the frame may be mirrored or rotated relative to the slice, but its pixels must coincide with pixels of the slice
    is_turn = (np.abs(steps).sum(axis=0) == 1).all() and (np.abs(steps).sum(axis=1) == 1).all()
    offset = np.abs(coordinates - np.rint(coordinates)).max()
    if not is_turn or offset > TOLERANCE:
        finding = f"the pixels of {name} do not coincide with pixels of the image"
        raise UserError(Code.GEOMETRY_MISMATCH, frame.where, finding, OTHER_IMAGE)
    if (pixels < 0).any() or (pixels >= planes.geometry.shape[:2]).any():
        finding = f"the segment in {name} reaches beyond the image"
        raise UserError(Code.GEOMETRY_MISMATCH, frame.where, finding, OTHER_IMAGE)
    placed = np.zeros(planes.geometry.shape[:2], np.bool_)
    placed[tuple(pixels.T)] = True
    return plane, placed


def _pixel_centers(frame: Slice, name: str, pixels: NDArray[np.int64]) -> Floats:
    """Return the LPS coordinates of pixels, given as (column, row)."""
    position, directions = frame.numbers("ImagePositionPatient", 3), frame.numbers("ImageOrientationPatient", 6)
    if position is None or directions is None:
        raise UserError(Code.SCAN_HEADER, frame.where, f"{name} has no position or orientation", AGAIN)
    down, across = pixel_spacing(frame)
    centers: Floats = position + pixels @ (directions.reshape(2, 3) * [[across], [down]])
    return centers
