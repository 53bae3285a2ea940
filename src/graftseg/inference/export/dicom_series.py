"""DICOM series to which segmentations refer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom import NON_IMAGE_MODALITIES
from graftseg.data.formats.dicom_members import Member, members_of
from graftseg.data.formats.dicom_series import PER_FRAME, read_frames, slice_order
from graftseg.data.formats.dicom_tags import pydicom_package, user_errors
from graftseg.data.formats.scan import lps_geometry

UIDS = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
POSE = ("ImagePositionPatient", "ImageOrientationPatient")
GRID = ("Rows", "Columns", "PixelSpacing", *POSE)
NEEDED = (*UIDS, "Modality")
"""Tags without which a segmentation cannot refer to a file."""
PATIENT = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex")
MAY_BE_EMPTY = (*PATIENT, "AccessionNumber", "StudyID", "StudyDate", "StudyTime")
"""Tags that may be empty but not missing. They are added, because de-identified series often lack them."""


@dataclass(frozen=True)
class Series:
    """A stack of slices.

    slices: headers of the slices sorted by position, or the header of one multi-frame file
    shape: numbers of columns, rows and slices
    affine: matrix from (column, row, slice) to RAS coordinates in mm
    stored: slice number of each frame in a multi-frame file
    """

    slices: tuple[Any, ...]
    shape: tuple[int, int, int]
    affine: NDArray[np.float64]
    stored: tuple[int, ...] = ()


@dataclass(frozen=True)
class _File:
    """The header of a DICOM file, and the grid tags of each of its frames."""

    header: Any
    frames: tuple[Any, ...]


def series_in(path: Path) -> list[Series]:
    """Return the series in a folder, a zip or a file that are stacks of slices. Skip all others."""
    by_series: dict[str, list[_File]] = {}
    with members_of(path) as members:
        for member in members:
            with user_errors(member.where):
                file = _read(member)
            if file is not None:
                by_series.setdefault(str(file.header.get("SeriesInstanceUID", "")), []).append(file)
    if not by_series:
        raise UserError(Code.DICOM_SERIES, path, "contains no DICOM image", "name a DICOM series")
    stacks = [_stack(path, files) for files in by_series.values()]
    return [stack for stack in stacks if stack is not None]


def _read(member: Member) -> _File | None:
    """Return the headers of a file, or None if it contains no image."""
    pydicom = pydicom_package()
    try:
        header = pydicom.dcmread(member.content(), stop_before_pixels=True)
    except pydicom.errors.InvalidDicomError:
        return None
    if "Rows" not in header or header.get("Modality") in NON_IMAGE_MODALITIES:
        return None
    if PER_FRAME not in header:
        return _File(header, (header,))
    return _File(header, tuple(frame.header for frame in read_frames(member.where, member.content(), pixels=False)))


def _stack(path: Path, files: Sequence[_File]) -> Series | None:
    """Return the slices sorted along their normal, or None if the slices are not one stack."""
    headers, frames = [file.header for file in files], [frame for file in files for frame in file.frames]
    if any(frame.get(tag) is None for frame in frames for tag in POSE):
        return None
    has_frames = any(len(file.frames) > 1 for file in files)
    missing = [tag for tag in NEEDED for header in headers if header.get(tag) in (None, "")]
    missing += [tag for tag in GRID for frame in frames if frame.get(tag) in (None, "")]
    if missing:
        finding = f"the headers of a series lack {missing[0]}, which a segmentation needs"
        raise UserError(Code.DICOM_SERIES, path, finding, "export the series from its source again")
    first = frames[0]
    columns, rows = int(first.get("Columns")), int(first.get("Rows"))
    has_one_size = all((frame.get("Columns"), frame.get("Rows")) == (columns, rows) for frame in frames)
    if not has_one_size or (has_frames and len(files) > 1):
        return None
    for header in headers:
        for tag in MAY_BE_EMPTY:
            if tag not in header:
                setattr(header, tag, None)
    order, affine = _order_and_affine(frames)
    stored = tuple(int(number) for number in np.argsort(order)) if has_frames else ()
    slices = headers if has_frames else [headers[index] for index in order]
    return Series(tuple(slices), (columns, rows, len(frames)), affine, stored)


def _order_and_affine(frames: Sequence[Any]) -> tuple[list[int], NDArray[np.float64]]:
    """Return the order of the frames along their normal, and the affine of the sorted frames."""
    first = frames[0]
    axes = np.array(first.get("ImageOrientationPatient"), dtype=np.float64).reshape(2, 3)
    normal = np.cross(axes[0], axes[1])
    positions = np.array([frame.get("ImagePositionPatient") for frame in frames], dtype=np.float64)
    order, _ = slice_order(list(positions), normal)
    positions = positions[order]
    step = (positions[-1] - positions[0]) / (len(frames) - 1) if len(frames) > 1 else normal
    shape = (int(first.get("Columns")), int(first.get("Rows")), len(frames))
    row_spacing, column_spacing = first.get("PixelSpacing")
    spacing = np.array([column_spacing, row_spacing, 1], dtype=np.float64)
    return order, lps_geometry(shape, np.column_stack([*axes, step]), spacing, positions[0]).matrix
