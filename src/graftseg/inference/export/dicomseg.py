"""Export of label maps to DICOM segmentations that refer to the original series.

The DICOM standard requires the patient and the study in a segmentation, so they are copied from the series. They never
appear in a file name, in printed text or in an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder
from graftseg.core.names import nfc
from graftseg.core.packages import import_optional
from graftseg.core.phrases import counted
from graftseg.core.run_folder import RunFolder
from graftseg.core.version import __version__
from graftseg.data.formats.dicom import NON_IMAGE_MODALITIES
from graftseg.data.formats.dicom_members import Member, members_of
from graftseg.data.formats.dicom_series import PER_FRAME, read_frames, slice_order
from graftseg.data.formats.dicom_tags import pydicom_package, silence_dicom_packages, user_errors
from graftseg.data.formats.scan import lps_geometry
from graftseg.data.labels import check_label_values
from graftseg.data.scans import Scan, is_dicom_scan, read_label, scan_stem
from graftseg.data.scans_to_predict import scan_cases
from graftseg.inference.export import Request, label_maps_of
from graftseg.inference.export.segment_codes import GENERIC, SegmentCodes, SnomedCode, read_codes

SERIES_NUMBER = 900  # series number of every exported segmentation
TOLERANCE = 0.01  # largest distance between the centers of a pixel and its voxel, in voxels
MAX_NAME = 64  # maximum length of a segment name in DICOM
UIDS = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
POSE = ("ImagePositionPatient", "ImageOrientationPatient")
GRID = ("Rows", "Columns", "PixelSpacing", *POSE)
NEEDED = (*UIDS, "Modality")  # tags without which a segmentation cannot refer to a file
PATIENT = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex")
MAY_BE_EMPTY = (*PATIENT, "AccessionNumber", "StudyID", "StudyDate", "StudyTime")
"""Tags that may be empty but not missing. They are added, because de-identified series often lack them."""
File = tuple[Any, list[Any]]  # the header of a DICOM file, and the grid tags of each of its frames


@dataclass(frozen=True)
class Series:
    """A stack of slices."""

    slices: tuple[Any, ...]  # headers of the slices sorted by position, or the header of one multi-frame file
    shape: tuple[int, int, int]  # numbers of columns, rows and slices
    affine: NDArray[np.float64]  # matrix from (column, row, slice) to RAS coordinates in mm
    frame_slices: tuple[int, ...] = ()  # slice number of each frame in a multi-frame file


def write(request: Request) -> list[str]:
    """Write ``OUT/CASE.dcm`` for every DICOM case with a label map."""
    import_optional("highdicom", "this export", extra="dicom")
    classes = tuple(request.run.training_manifest()["store"]["classes"])
    codes = read_codes(request.codes, request.run, classes)
    segments = {name: codes.get(nfc(name), GENERIC) for name in classes[1:]}
    predicted = label_maps_of(request)
    if request.data is None:
        remedy = "name the DICOM scans that were predicted: a series, a zip, or a folder of cases"
        raise UserError(Code.OPTION_INVALID, "--data", "missing", remedy)
    cases = _cases(request.run, request.data)
    map_of_case = {name: predicted.get(nfc(name)) or predicted.get(scan_stem(path)) for name, path in cases.items()}
    maps = {name: path for name, path in map_of_case.items() if path is not None}
    if not maps:
        finding = f"no label map of the {'case' if len(cases) == 1 else f'{len(cases)} cases'} in {request.data}"
        remedy = "predict the scans first and name the folder of the label maps as --predictions"
        raise UserError(Code.PREDICTIONS_MISMATCH, request.label_maps, finding, remedy)
    with atomic_folder(request.out) as out:
        for name, path in maps.items():
            label = read_label(path)
            check_label_values(path, label.array, range(len(classes)))
            with _private_errors(cases[name]):
                _segmentation(cases[name], path.name, label, segments).save_as(out / f"{name}.dcm")
    lines = [f"{request.out}: {counted(len(maps), 'DICOM segmentation')} of {', '.join(classes[1:])}"]
    if missing := len(cases) - len(maps):
        lines.append(f"left out {counted(missing, 'case')} without a label map in {request.label_maps}")
    if codes and (generic := [name for name in segments if nfc(name) not in codes]):
        lines.append(f"classes without SNOMED CT codes, exported as tissue: {', '.join(generic)}")
    return lines


def _cases(run: RunFolder, data: Path) -> dict[str, Path]:
    """Return the first channel of each DICOM case. Cases are found and named as in ``graftseg predict``."""
    path = data if data.name else data.absolute()
    cases, failures = scan_cases(path, run.training_manifest()["store"]["channels"], run.training_case_names())
    if not cases:
        raise next(iter(failures.values()))
    dicom = {case.name: case.images[0] for case in cases if is_dicom_scan(case.images[0])}
    if not dicom:
        remedy = "name the DICOM scans that were predicted"
        raise UserError(Code.DICOM_SERIES, data, "contains no DICOM scan, only other formats", remedy)
    return dicom


@contextmanager
def _private_errors(folder: Path) -> Iterator[None]:
    """Hide warnings of packages and replace their errors, because their texts may quote personal data."""
    try:
        with silence_dicom_packages():
            yield
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:
        finding = f"no segmentation can be written with the headers of its series ({type(error).__name__})"
        raise UserError(Code.DICOM_SERIES, folder, finding, "export the series from its source again") from None


def _segmentation(folder: Path, name: str, label: Scan, segments: Mapping[str, SegmentCodes]) -> Any:
    stacks = series_in(folder)
    if not stacks:
        finding = "none of its series has positions (ImagePositionPatient), which a segmentation needs"
        raise UserError(Code.DICOM_SERIES, folder, finding, "leave this case out, and use its NIfTI label map")
    fitting = [(series, frames) for series in stacks if (frames := as_frames(label, series)) is not None]
    if len(fitting) != 1:
        finding = f"{len(fitting) or 'none'} of its series fit the grid of the label map {name}"
        remedy = f"{'keep only' if fitting else 'give'} the series that was predicted"
        raise UserError(Code.GEOMETRY_MISMATCH, folder, finding, remedy)
    return _encode(*fitting[0], segments)


def as_frames(label: Scan, series: Series) -> NDArray[np.uint8] | None:
    """Return the label map as frames ``(slices, rows, columns)`` of a series, or None if the grids differ."""
    volume = label.array if label.array.ndim == 3 else label.array[..., None]
    if volume.size != np.prod(series.shape):
        return None
    with np.errstate(all="ignore"):
        to_voxel = np.linalg.inv(label.geometry.matrix) @ series.affine
    corners = np.array([(*corner, 1) for corner in product(*((0, size - 1) for size in series.shape))])
    voxels = corners @ to_voxel.T[:, :3]
    rounded = np.rint(voxels).astype(np.int64)
    if not np.isfinite(voxels).all() or np.abs(voxels - rounded).max() > TOLERANCE:
        return None
    if rounded.min() < 0 or (rounded.max(axis=0) != np.array(volume.shape) - 1).any():
        return None
    order = [int(np.abs(to_voxel[:3, axis]).argmax()) for axis in range(3)]
    if sorted(order) != [0, 1, 2]:
        return None
    flipped_axes = tuple(axis for axis in range(3) if to_voxel[order[axis], axis] < 0)
    columns_rows_slices = np.flip(volume.transpose(order), flipped_axes)
    if columns_rows_slices.shape != series.shape:
        return None
    return np.ascontiguousarray(columns_rows_slices.T.astype(np.uint8))


def _encode(series: Series, frames: NDArray[np.uint8], segments: Mapping[str, SegmentCodes]) -> Any:
    import highdicom

    return highdicom.seg.Segmentation(
        source_images=list(series.slices),
        pixel_array=frames[list(series.frame_slices)] if series.frame_slices else frames,
        segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[
            _segment(number, name, codes) for number, (name, codes) in enumerate(segments.items(), start=1)
        ],
        series_instance_uid=highdicom.UID(),
        series_number=SERIES_NUMBER,
        sop_instance_uid=highdicom.UID(),
        instance_number=1,
        manufacturer="graftseg",
        manufacturer_model_name="graftseg",
        software_versions=__version__,
        device_serial_number="0",
        content_label="SEGMENTATION",
        content_description="Automatic segmentation",
        series_description="Automatic segmentation",
        omit_empty_frames=bool(frames.any()),
    )


def _segment(number: int, name: str, segment: SegmentCodes) -> Any:
    import highdicom
    from pydicom.sr.codedict import codes

    return highdicom.seg.SegmentDescription(
        segment_number=number,
        segment_label=name[:MAX_NAME],
        segmented_property_category=_concept(segment.category),
        segmented_property_type=_concept(segment.type),
        anatomic_regions=[_concept(segment.region)] if segment.region else None,
        algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=highdicom.AlgorithmIdentificationSequence(
            name="graftseg", family=codes.DCM.ArtificialIntelligence, version=__version__
        ),
    )


def _concept(code: SnomedCode) -> Any:
    from pydicom.sr.coding import Code as DicomCode

    return DicomCode(code.value, "SCT", code.meaning)


def series_in(path: Path) -> list[Series]:
    """Return the series in a folder, a zip or a file that are stacks of slices. Skip all others."""
    by_series: dict[str, list[File]] = {}
    with members_of(path) as members:
        for member in members:
            with user_errors(member.where):
                file = _read(member)
            if file is not None:
                by_series.setdefault(str(file[0].get("SeriesInstanceUID", "")), []).append(file)
    if not by_series:
        raise UserError(Code.DICOM_SERIES, path, "contains no DICOM image", "name a DICOM series")
    stacks = [_stack(path, files) for files in by_series.values()]
    return [stack for stack in stacks if stack is not None]


def _read(member: Member) -> File | None:
    """Return the header of a file and the grid tags of its frames, or None if it contains no image."""
    pydicom = pydicom_package()
    try:
        header = pydicom.dcmread(member.content(), stop_before_pixels=True)
    except pydicom.errors.InvalidDicomError:
        return None
    if "Rows" not in header or header.get("Modality") in NON_IMAGE_MODALITIES:
        return None
    if PER_FRAME not in header:
        return header, [header]
    return header, [frame.header for frame in read_frames(member.where, member.content(), pixels=False)]


def _stack(path: Path, files: Sequence[File]) -> Series | None:
    """Return the slices sorted along their normal, or None if the slices are not one stack."""
    headers, frames = [header for header, _ in files], [frame for _, frames in files for frame in frames]
    if any(frame.get(tag) is None for frame in frames for tag in POSE):
        return None
    has_frames = any(len(frames) > 1 for _, frames in files)
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
    frame_slices = tuple(int(number) for number in np.argsort(order)) if has_frames else ()
    slices = headers if has_frames else [headers[index] for index in order]
    return Series(tuple(slices), (columns, rows, len(frames)), affine, frame_slices)


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
