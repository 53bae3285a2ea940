"""DICOM: a folder or a zip of the slices of a series, or one file, -> a scan.

Files are told by their content, and series by their number in the headers. Scouts of a few slices beside a volume are
left out; where it is not clear which series is meant, none is guessed. Of what headers say about a person only one
thing is looked at, and forgotten at once: whether all slices are of the same one.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.folders import visible_entries
from graftseg.data.formats.dicom_frames import EACH, SHARED, read_frames
from graftseg.data.formats.dicom_members import LOOKED_AT, Member, files_below, is_slice, members_of
from graftseg.data.formats.dicom_series import Slice, arranged, guesses_about, read_slice, volume_of
from graftseg.data.formats.dicom_tags import AGAIN, number, read_tags, user_errors, value
from graftseg.data.formats.scan import Scan, lps_geometry, refuse_absent

SUFFIXES: tuple[str, ...] = (".dcm", ".zip")
TAGS = ("SeriesInstanceUID", "SeriesNumber", "Modality", "ImageType", "NumberOfFrames", "Rows")
PERSON = ("PatientID", "PatientName")
NO_IMAGES = ("SEG", "RTDOSE", "RTSTRUCT", "RTPLAN", "PR", "KO", "SR")
FEW = 5
SHARE = 4
"""A series of at most ``FEW`` slices is a scout beside one that has ``SHARE`` times as many."""

SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
KIND, IMAGES = "SOPClassUID", "Image Storage"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Image:
    """A DICOM file with pixels.

    ``patient`` and ``name`` are numbers that say nothing but whether two are the same, None where the tag is empty.
    ``is_enhanced`` says that what is true of its frames stands in groups of the header.
    """

    member: Member
    series: str
    called: str
    is_scout: bool
    frames: int
    is_enhanced: bool
    patient: int | None
    name: int | None

    def slices(self, *, pixels: bool) -> list[Slice]:
        """The slices in the file, with their pixels or without."""
        where, content = self.member.where, self.member.content()
        if self.frames > 1 or self.is_enhanced:
            return read_frames(where, content, pixels=pixels)
        return [read_slice(where, content, pixels=pixels)]


def holds_slices(folder: Path) -> bool:
    """Whether a folder, or one below it, holds DICOM files; a link to a folder above it holds nothing of its own."""
    if folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve()):
        return False
    return any(is_slice(file) for file in islice(files_below(folder), LOOKED_AT))


def holds_own_slices(folder: Path) -> bool:
    """Whether a folder itself is a case: it holds one DICOM file, or files of one slice each."""
    own = [Member.on_disk(file) for file in visible_entries(folder) if file.is_file() and is_slice(file)]
    return len(own) == 1 or any(image.frames == 1 for image in _images(own[:LOOKED_AT]))


def slice_files(folder: Path) -> list[Path]:
    """The DICOM files of a folder and of those below it, by name."""
    return [file for file in files_below(folder) if is_slice(file)]


def dicom_geometry(path: Path) -> Geometry:
    """Where the voxels lie, from the headers alone."""
    slices = _slices(path, pixels=False)
    return _flat_geometry(slices[0]) if _is_flat(slices) else arranged(slices)[1]


def read_dicom(path: Path) -> Scan:
    """Voxels ``(1, columns, rows, slices)``, or ``(1, columns, rows)`` of one picture that has no place, as float32."""
    slices = _slices(path, pixels=True)
    if not _is_flat(slices):
        return replace(volume_of(slices), guesses=guesses_about(path, slices))
    geometry, pixels = _flat_geometry(slices[0]), slices[0].pixels()
    if pixels.shape != geometry.shape:
        raise UserError(
            Code.SCAN_UNSUPPORTED, path, f"its pixels have the shape {pixels.shape}", "export one grey picture a file"
        )
    return Scan(pixels[None], geometry)


def _slices(path: Path, *, pixels: bool) -> list[Slice]:
    """The slices of the one series that a path holds."""
    if not path.is_dir():
        refuse_absent(path)
    with members_of(path) as members:
        chosen = _chosen(path, _images(members))
        if len(chosen) > 1 and (several := sum(image.frames > 1 for image in chosen)):
            finding = f"{len(chosen)} files in one series, {several} of several frames"
            raise UserError(
                Code.SCAN_UNSUPPORTED, path, finding, "keep one of these, or export the series as single slices"
            )
        return [one for image in chosen for one in image.slices(pixels=pixels)]


def _images(members: Sequence[Member]) -> list[_Image]:
    found = []
    for member in members:
        with user_errors(member.where):
            found.append(_image(member))
    return [image for image in found if image is not None]


def _image(member: Member) -> _Image | None:
    """What a file says of itself; None for one without pixels."""
    header = read_tags(member.where, member.content(), (*TAGS, *PERSON, KIND, SHARED, EACH))
    told = {tag: value(member.where, header, tag) for tag in (*TAGS, *PERSON)}
    modality = str(told["Modality"] or "unknown kind")
    if not told["Rows"] or modality in NO_IMAGES:
        _refuse_rest(member.where, header, modality)
        return None
    patient, name = (str(told[tag] or "").strip("^ ") for tag in PERSON)
    place = told["SeriesNumber"]
    return _Image(
        member,
        series=str(told["SeriesInstanceUID"] or ""),
        called=modality if place is None else f"number {place}, {modality}",
        is_scout="LOCALIZER" in (told["ImageType"] or ()),
        frames=int(number(member.where, told, "NumberOfFrames", 1)) or 1,
        is_enhanced=SHARED in header or EACH in header,
        patient=hash(patient) if patient else None,
        name=hash(name) if name else None,
    )


def _refuse_rest(where: Path, header: Any, modality: str) -> None:
    """A file without pixels is another kind of object, such as a report; what would be an image was cut off."""
    kind = value(where, header, KIND)
    # of several kinds, as no file has, the first thing to doubt is the header
    if modality not in NO_IMAGES and getattr(kind, "name", IMAGES).endswith(IMAGES):
        raise UserError(Code.SCAN_DAMAGED, where, "the file is cut off before its pixels", AGAIN)


def _chosen(path: Path, images: Sequence[_Image]) -> list[_Image]:
    """The images of the series that is the volume."""
    if not images:
        raise UserError(Code.NOT_A_SCAN, path, "no DICOM images in it", "give the folder or zip of one series")
    if (people := _people(images)) > 1:
        raise UserError(
            Code.DICOM_SERIES, path, f"the slices of {people} patients in one place", "give every patient a folder"
        )
    series: dict[str, list[_Image]] = {}
    for image in images:
        series.setdefault(image.series, []).append(image)
    ranked = sorted(series.values(), key=_count, reverse=True)
    largest, *others = [one for one in ranked if not one[0].is_scout] or ranked
    if doubtful := [one for one in others if _count(one) > FEW or _count(one) * SHARE > _count(largest)]:
        listed = ", ".join(_words(one) for one in (largest, *doubtful))
        finding = f"{1 + len(doubtful)} series in one place ({listed})"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "give a folder or zip with the one that is meant")
    for one in ranked:
        if one is not largest:
            log.warning("%s: left out beside the volume: %s", path, _words(one))
    return largest


def _people(images: Sequence[_Image]) -> int:
    """How many patients there are for certain: numbers tell, and names where a number is missing."""
    numbers = {image.patient for image in images} - {None}
    if len(numbers) > 1:
        return len(numbers)
    numbered = {image.name for image in images if image.patient is not None} - {None}
    unnumbered = {image.name for image in images if image.patient is None} - {None}
    return len(unnumbered - numbered) + bool(numbered)


def _count(images: Sequence[_Image]) -> int:
    return sum(image.frames for image in images)


def _words(images: Sequence[_Image]) -> str:
    slices = "1 slice" if _count(images) == 1 else f"{_count(images)} slices"
    return f"{slices} of {images[0].called} beginning with {images[0].member.where.name}"


def _is_flat(slices: Sequence[Slice]) -> bool:
    """Whether the scan is one picture, such as a radiograph, that says nothing of its place in the body."""
    one = slices[0]
    places = ("ImagePositionPatient", "ImageOrientationPatient")
    return len(slices) == 1 and all(value(one.where, one.header, tag) is None for tag in places)


def _flat_geometry(one: Slice) -> Geometry:
    spacing = next((found for tag in SPACINGS if (found := one.numbers(tag, 2)) is not None), np.ones(2))
    if (spacing <= 0).any():
        raise UserError(
            Code.SCAN_HEADER, one.where, f"PixelSpacing in its header is {spacing.tolist()}, not above 0 mm", AGAIN
        )
    return lps_geometry(one.size, np.eye(2), spacing[::-1], np.zeros(2))
