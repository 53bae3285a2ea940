"""DICOM: read one series from a folder, a zip or a single file.

Files are recognized by content or by the suffix ``.dcm``, and grouped by series. Localizers and short series are
skipped if there is a volume. If several series may be the volume, reading fails. Patient tags are used only to detect
slices of two patients.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.types import Geometry
from graftseg.data.folders import visible_entries
from graftseg.data.formats.dicom_members import PROBED_FILES, Member, files_below, is_dicom, members_of
from graftseg.data.formats.dicom_series import (
    PER_FRAME,
    POSE,
    SHARED,
    SPACINGS,
    Slice,
    arranged,
    pixel_spacing,
    read_frames,
    read_slice,
    volume_of,
)
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags, user_errors, value
from graftseg.data.formats.scan import Scan, lps_geometry, refuse_absent, unsupported

SUFFIXES: tuple[str, ...] = (".dcm", ".zip")
PHOTOMETRIC = "PhotometricInterpretation"
TAGS = ("SeriesInstanceUID", "SeriesNumber", "Modality", "ImageType", "NumberOfFrames", "Rows", PHOTOMETRIC)
POSITION = "ImagePositionPatient"
PATIENT_TAGS = ("PatientID", "PatientName")
NON_IMAGE_MODALITIES = ("SEG", "RTDOSE", "RTSTRUCT", "RTPLAN", "PR", "KO", "SR")
SLICE_MODALITIES = ("CT", "MR", "PT")
SHORT_SERIES = 5  # maximum number of slices of a short series
VOLUME_RATIO = 4  # a short series is skipped if the longest series has at least ``VOLUME_RATIO`` times as many slices
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _ImageFile:
    """A DICOM file with pixels."""

    member: Member
    series: str
    modality: str
    number: str
    is_localizer: bool
    frames: int
    is_slice: bool  # one slice of a volume
    is_enhanced: bool  # the header contains functional groups
    problem: str  # why the pixels are not the gray values of a slice, or empty
    patient: int | None  # hash of the ID, None if the tag is empty
    name: int | None  # hash of the patient's name, None if the tag is empty

    def slices(self, *, pixels: bool) -> list[Slice]:
        """Read the slices of the file, with or without their pixels."""
        where, content = self.member.where, self.member.content()
        if self.problem:
            raise unsupported(where, self.problem, "export the series as gray slices")
        with user_errors(where):
            if self.frames > 1 or self.is_enhanced:
                return read_frames(where, content, pixels=pixels)
            return [read_slice(where, content, pixels=pixels)]


def contains_dicom(folder: Path) -> bool:
    """Return whether there are DICOM files below a folder. A link to a parent folder is not searched."""
    if folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve()):
        return False
    return any(is_dicom(file) for file in islice(files_below(folder), PROBED_FILES))


def is_dicom_case(folder: Path) -> bool:
    """Return whether a folder is one case: it directly contains a single DICOM file, or slices.

    Files with one frame are slices unless all of them are pictures of different series, such as radiographs.
    """
    members = [Member.on_disk(file) for file in visible_entries(folder) if file.is_file() and is_dicom(file)]
    images = [image for image in _image_files(members[:PROBED_FILES]) if image.frames == 1]
    are_pictures = len({image.series for image in images}) == len(images) and not any(
        image.is_slice for image in images
    )
    return len(members) == 1 or not are_pictures


def series_folders(folder: Path) -> list[Path]:
    """Return the subfolders with DICOM series if there are at least two series, otherwise nothing."""
    files: dict[Path, list[Path]] = {}
    for file in files_below(folder):
        files.setdefault(file.parent, []).append(file)
    counts, first = {}, {}
    for place, content in files.items():
        found = next((file for file in islice(content, PROBED_FILES) if is_dicom(file)), None)
        if found is not None:
            counts[place], first[place] = len(content), found
    longest = max(counts.values(), default=0)
    kept = [place for place, n in counts.items() if n > SHORT_SERIES or n * VOLUME_RATIO > longest or longest == 1]
    images = {place: image for place in kept if (image := _series_of_file(first[place])) is not None}
    return sorted(images) if len(images) > 1 and len(set(images.values())) > 1 else []


def _series_of_file(file: Path) -> str | None:
    """Return the series of a file, its path if it cannot be read, or None if the file is no image."""
    try:
        images = _image_files([Member.on_disk(file)])
    except UserError:
        return str(file)
    return images[0].series if images else None


def dicom_files(folder: Path) -> list[Path]:
    """Return the DICOM files below a folder, sorted by name."""
    return [file for file in files_below(folder) if is_dicom(file)]


def series_of_slices(files: Sequence[Path]) -> list[list[Path]]:
    """Return the files of each series that has several slices in separate files. Skip files that cannot be read."""
    series: dict[str, list[Path]] = {}
    for file in files:
        try:
            images = _image_files([Member.on_disk(file)])
        except UserError:
            continue
        for image in images:
            if image.is_slice:
                series.setdefault(image.series, []).append(file)
    return [slices for slices in series.values() if len(slices) > 1]


def dicom_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the headers. ``channel_count`` is for formats with several channels and is not used."""
    slices = read_slices(path, pixels=False)
    return _picture_geometry(slices[0]) if _is_picture(slices) else arranged(slices)[1]


def read_dicom(path: Path, channel_count: int | None = None) -> Scan:
    """Read a series as float32 ``(1, columns, rows, slices)``, or a 2-D picture as ``(1, columns, rows)``."""
    slices = read_slices(path, pixels=True)
    if not _is_picture(slices):
        return volume_of(path, slices)
    geometry, pixels = _picture_geometry(slices[0]), slices[0].pixels()
    if pixels.shape != geometry.shape:
        raise unsupported(path, f"the pixels have the shape {pixels.shape}", "export one gray picture per file")
    return Scan(pixels[None], geometry)


def read_slices(path: Path, *, pixels: bool) -> list[Slice]:
    """Read the slices of the series that is the volume, in stored order."""
    if not path.is_dir():
        refuse_absent(path)
    with members_of(path) as members:
        chosen = _choose_series(path, _image_files(members))
        if len(chosen) > 1 and (several := sum(image.frames > 1 for image in chosen)):
            finding = f"{len(chosen)} files in one series, {several} of them with several frames"
            remedy = "keep one multi-frame file, or export the series as single slices"
            raise UserError(Code.DICOM_SERIES, path, finding, remedy)
        return [slice_ for image in chosen for slice_ in image.slices(pixels=pixels)]


def _image_files(members: Sequence[Member]) -> list[_ImageFile]:
    return [image for member in members if (image := _image_file(member)) is not None]


def _image_file(member: Member) -> _ImageFile | None:
    where = member.where
    with user_errors(where):
        header = read_tags(where, member.content(), (*TAGS, *PATIENT_TAGS, "SOPClassUID", POSITION, SHARED, PER_FRAME))
        tags = {tag: value(where, header, tag) for tag in (*TAGS, *PATIENT_TAGS)}
        modality = str(tags["Modality"] or "unknown modality")
        if modality in NON_IMAGE_MODALITIES:
            return None
        if not tags["Rows"]:
            sop_class = value(where, header, "SOPClassUID") or value(where, header.file_meta, "MediaStorageSOPClassUID")
            # a class UID without a name, such as an invalid list of UIDs, is treated as an image
            if getattr(sop_class, "name", "Image Storage").endswith("Image Storage"):
                raise UserError(Code.SCAN_DAMAGED, where, "the file is truncated before its pixels", AGAIN)
            return None
        patient, name = (str(tags[tag] or "").strip("^ ") for tag in PATIENT_TAGS)
        frames = int(number(where, tags, "NumberOfFrames", 1)) or 1
        problem = "the image has palette colors" if tags[PHOTOMETRIC] == "PALETTE COLOR" else ""
        if "MOSAIC" in (tags["ImageType"] or ()):
            problem = "the slices of a volume are tiles of one picture (mosaic)"
        is_enhanced = SHARED in header or PER_FRAME in header
        is_placed = is_enhanced or POSITION in header
        return _ImageFile(
            member,
            series=str(tags["SeriesInstanceUID"] or ""),
            modality=modality,
            number="without number" if tags["SeriesNumber"] is None else str(tags["SeriesNumber"]),
            is_localizer="LOCALIZER" in (tags["ImageType"] or ()),
            frames=frames,
            is_slice=frames == 1 and (is_placed or modality in SLICE_MODALITIES),
            is_enhanced=is_enhanced,
            problem=problem,
            patient=hash(patient) if patient else None,
            name=hash(name) if name else None,
        )


def _choose_series(path: Path, images: Sequence[_ImageFile]) -> list[_ImageFile]:
    if not images:
        raise UserError(Code.NOT_A_SCAN, path, "no DICOM images found", "pass the folder or zip of one series")
    if (patients := _count_patients(images)) > 1:
        finding = f"slices of {patients} patients in one scan"
        raise UserError(Code.DICOM_SERIES, path, finding, "use a separate folder for each patient")
    series: dict[str, list[_ImageFile]] = {}
    for image in images:
        series.setdefault(image.series, []).append(image)
    ranked = sorted(series.values(), key=_count_slices, reverse=True)
    largest, *others = [files for files in ranked if not files[0].is_localizer] or ranked
    skipped_slices = min(SHORT_SERIES, _count_slices(largest) / VOLUME_RATIO)
    volumes = [largest, *(files for files in others if _count_slices(files) > skipped_slices)]
    if len(volumes) > 1:
        finding = f"{len(volumes)} series in one scan: {', '.join(map(_describe, volumes))}"
        raise UserError(Code.DICOM_SERIES, path, finding, "pass a folder or zip that contains only the series to use")
    for files in ranked:
        if files is not largest:
            logger.warning("%s: skipped %s, because another series is the volume", path, _describe(files))
    return largest


def _count_patients(images: Sequence[_ImageFile]) -> int:
    """Return the number of patients that certainly differ: by ID, or by name if the ID is missing."""
    patients = {image.patient for image in images} - {None}
    if len(patients) > 1:
        return len(patients)
    with_id = {image.name for image in images if image.patient is not None} - {None}
    without_id = {image.name for image in images if image.patient is None} - {None}
    return len(without_id - with_id) + bool(with_id)


def _count_slices(images: Sequence[_ImageFile]) -> int:
    return sum(image.frames for image in images)


def _describe(images: Sequence[_ImageFile]) -> str:
    slices = counted(_count_slices(images), "slice")
    return f"series {images[0].number} ({images[0].modality}, {slices}, first file {images[0].member.where.name})"


def _is_picture(slices: Sequence[Slice]) -> bool:
    """Return whether the scan is a single picture without a position, such as a radiograph."""
    first = slices[0]
    return len(slices) == 1 and all(value(first.where, first.header, tag) is None for tag in POSE)


def _picture_geometry(picture: Slice) -> Geometry:
    spacing = pixel_spacing(picture, SPACINGS, default=np.ones(2))
    return lps_geometry(picture.size, np.eye(2), spacing[::-1], np.zeros(2))
