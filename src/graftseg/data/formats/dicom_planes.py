"""The slice planes of a DICOM image, on which the structures of a DICOM label lie."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.formats.dicom import read_slices
from graftseg.data.formats.dicom_series import arranged
from graftseg.data.formats.dicom_tags import value
from graftseg.data.formats.scan import Floats

TOLERANCE = 0.1
"""Largest distance of a label from its slice, in slice distances, and of its pixels from voxel centers, in voxels."""
OTHER_IMAGE = "use the image for which the label was drawn, or save the label as NIfTI on the grid of the image"
DECIMALS = 6  # rounds coordinates, so that points on pixel centers stay there despite floating-point errors


@dataclass(frozen=True)
class Planes:
    """The slices of an image in the order of its volume."""

    geometry: Geometry
    positions: Floats  # centers of the first pixel of each slice in LPS coordinates
    frame_of_reference: str  # UID of the coordinate system, empty if unknown

    @cached_property
    def axes(self) -> Floats:
        """The steps from column to column, from row to row, and the normal of length 1, as matrix columns in LPS."""
        steps = self.geometry.matrix[:3, :2] * [[-1.0], [-1.0], [1.0]]
        normal = np.cross(steps[:, 0], steps[:, 1])
        return np.column_stack([steps, normal / np.linalg.norm(normal)])

    @property
    def slice_distance(self) -> float:
        """The distance between slices along the normal, in mm."""
        step = self.geometry.matrix[:3, 2] * [-1.0, -1.0, 1.0]
        return abs(float(step @ self.axes[:, 2]))

    def locate(self, where: Path, what: str, points: Floats) -> tuple[int, Floats]:
        """Return the slice that contains all points ``(n, 3)`` of ``what``, and their (column, row) coordinates."""
        heights = points @ self.axes[:, 2]
        planes = self.positions @ self.axes[:, 2]
        number = int(np.abs(planes - heights.mean()).argmin())
        distance = float(np.abs(heights - planes[number]).max())
        if distance > TOLERANCE * self.slice_distance:
            apart = f"slices are {self.slice_distance:.2f} mm apart"
            finding = f"{what} lies {distance:.2f} mm from the nearest slice of the image, {apart}"
            raise UserError(Code.GEOMETRY_MISMATCH, where, finding, OTHER_IMAGE)
        inverse = np.linalg.inv(self.axes)
        return number, np.round((points - self.positions[number]) @ inverse.T[:, :2], DECIMALS)

    def refuse_other_frame(self, where: Path, uid: object) -> None:
        """Raise a UserError if a label has positions in another coordinate system than the image."""
        if uid and self.frame_of_reference and str(uid) != self.frame_of_reference:
            finding = "the label and its image have different coordinate systems (FrameOfReferenceUID)"
            raise UserError(Code.GEOMETRY_MISMATCH, where, finding, OTHER_IMAGE)


def read_planes(image: Path) -> Planes:
    """Read the slice planes of a DICOM image from its headers."""
    slices = read_slices(image, pixels=False)
    positions = [slice_.numbers("ImagePositionPatient", 3) for slice_ in slices]
    if any(position is None for position in positions):
        finding = "the image has no slice positions, which a DICOM label needs"
        raise UserError(Code.DICOM_SERIES, image, finding, "export the series again with positions")
    order, geometry = arranged(slices)
    uid = value(slices[0].where, slices[0].header, "FrameOfReferenceUID")
    return Planes(geometry, np.array([positions[index] for index in order]), str(uid or ""))
