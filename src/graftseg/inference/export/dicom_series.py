"""DICOM series with complete headers, for segmentations that refer to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom_series import slice_order
from graftseg.data.formats.dicom_tags import pydicom_package, user_errors
from graftseg.data.formats.scan import lps_geometry

UIDS = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
GRID = ("Rows", "Columns", "PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient")
NEEDED = (*UIDS, "Modality", *GRID)  # tags without which a segmentation cannot refer to a slice
PATIENT = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex")
MAY_BE_EMPTY = (*PATIENT, "AccessionNumber", "StudyID", "StudyDate", "StudyTime")
"""Tags that may be empty but not missing. De-identified series often lack these tags, so empty tags are added."""


@dataclass(frozen=True)
class Series:
    """Headers of slices sorted by position.

    ``shape`` is (columns, rows, slices). ``affine`` maps an index (column, row, slice) to RAS coordinates in mm.
    """

    slices: tuple[Any, ...]
    shape: tuple[int, int, int]
    affine: NDArray[np.float64]


def series_in(folder: Path) -> list[Series]:
    """Return the series in a folder that are stacks of slices. Other files are skipped."""
    pydicom = pydicom_package()
    found: dict[str, list[Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with user_errors(path):
            try:
                header = pydicom.dcmread(path, stop_before_pixels=True)
            except pydicom.errors.InvalidDicomError:
                continue
            if "Rows" in header:
                found.setdefault(str(header.get("SeriesInstanceUID", "")), []).append(header)
    if not found:
        raise UserError(Code.DICOM_SERIES, folder, "contains no DICOM image", "name the folder of a DICOM series")
    stacks = [_stack(folder, slices) for slices in found.values()]
    return [stack for stack in stacks if stack is not None]


def _stack(folder: Path, slices: Sequence[Any]) -> Series | None:
    """Return the slices sorted along their normal, or None if the slices are not one stack."""
    first = slices[0]
    if any(one.get("ImagePositionPatient") is None or one.get("ImageOrientationPatient") is None for one in slices):
        return None
    if missing := [name for name in NEEDED for one in slices if one.get(name) in (None, "")]:
        finding = f"the headers of a series lack {missing[0]}, which a segmentation needs"
        raise UserError(Code.DICOM_SERIES, folder, finding, "export the series from its source again")
    if any((one.Rows, one.Columns) != (first.Rows, first.Columns) for one in slices):
        return None
    axes = np.array(first.ImageOrientationPatient, dtype=np.float64).reshape(2, 3)
    normal = np.cross(axes[0], axes[1])
    positions = np.array([one.ImagePositionPatient for one in slices], dtype=np.float64)
    order, _ = slice_order(list(positions), normal)
    for one in slices:
        for name in MAY_BE_EMPTY:
            if name not in one:
                setattr(one, name, None)
    placed = positions[order]
    step = (placed[-1] - placed[0]) / (len(slices) - 1) if len(slices) > 1 else normal
    shape = (first.Columns, first.Rows, len(slices))
    spacing = np.array([first.PixelSpacing[1], first.PixelSpacing[0], 1], dtype=np.float64)
    affine = lps_geometry(shape, np.column_stack([*axes, step]), spacing, placed[0]).matrix
    return Series(tuple(slices[index] for index in order), shape, affine)
