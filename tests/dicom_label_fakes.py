"""Small DICOM images with oblique, sheared slices, and DICOM segmentations and structure sets for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from dicom_fakes import write_slice

SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4"
LABELMAP = "1.2.840.10008.5.1.4.1.1.66.7"
STRUCTURE_SET = "1.2.840.10008.5.1.4.1.1.481.3"


@dataclass(frozen=True)
class Image:
    """A series with oblique rows and columns. Its slices are also shifted along the rows (sheared)."""

    shape: tuple[int, int, int] = (9, 7, 5)
    spacing: tuple[float, float] = (0.5, 0.75)
    along: tuple[float, ...] = (0.8, 0.6, 0.0)
    down: tuple[float, ...] = (-0.36, 0.48, 0.8)
    step: tuple[float, ...] = (1.36, -0.88, 1.2)
    origin: tuple[float, ...] = (-30.0, 12.5, 100.0)
    frame: str = "1.2.3.4"
    jitter: dict[int, float] = field(default_factory=dict)
    """Additional steps of a slice, for uneven distances."""

    def point(self, column: float, row: float, plane: float) -> NDArray[np.float64]:
        """Return the LPS coordinates of an index, which may be fractional."""
        place = np.array(self.origin) + (plane + self.jitter.get(int(plane), 0.0)) * np.array(self.step)
        place = place + column * self.spacing[0] * np.array(self.along)
        return np.asarray(place + row * self.spacing[1] * np.array(self.down))

    def contour(self, points: Sequence[tuple[float, float]], plane: float) -> list[float]:
        """Return ContourData of (column, row) points on a slice."""
        return [round(float(value), 8) for point in points for value in self.point(*point, plane)]

    def write(self, folder: Path) -> Path:
        """Write slices with values from 100 times their number, and file names in another order than the positions."""
        series, noise = generate_uid(), np.random.default_rng([*folder.name.encode()])
        for plane in range(self.shape[2]):
            tags: dict[str, Any] = {"SeriesInstanceUID": series, "FrameOfReferenceUID": self.frame}
            tags |= {"PixelSpacing": [self.spacing[1], self.spacing[0]]}
            tags |= {"ImageOrientationPatient": [*self.along, *self.down]}
            pixels = noise.integers(100 * plane, 100 * plane + 100, self.shape[1::-1], np.int16)
            write_slice(folder / f"{(plane * 7) % 31:02d}.dcm", pixels, self.point(0, 0, plane).tolist(), **tags)
        return folder


def write_seg(
    path: Path,
    image: Image,
    frames: Sequence[tuple[int, float, NDArray[Any]]],
    names: dict[int, str],
    kind: str = "BINARY",
    **tags: Any,
) -> Path:
    """Write frames, each with a segment number, the index of its plane and pixels ``(columns, rows)``."""
    one = _file(path, LABELMAP if kind == "LABELMAP" else SEGMENTATION, "SEG")
    one.SegmentationType, one.FrameOfReferenceUID, one.NumberOfFrames = kind, image.frame, len(frames)
    one.SegmentSequence = [_item(SegmentNumber=key, SegmentLabel=name) for key, name in names.items()]
    one.SamplesPerPixel, one.PhotometricInterpretation, one.PixelRepresentation = 1, "MONOCHROME2", 0
    bits = 1 if kind == "BINARY" else 8
    one.BitsAllocated, one.BitsStored, one.HighBit = bits, bits, bits - 1
    stacked = np.stack([pixels.T for _, _, pixels in frames]).astype(np.uint8)
    one.Rows, one.Columns = stacked.shape[1:]
    raw = np.packbits(stacked.ravel(), bitorder="little") if bits == 1 else stacked
    one.PixelData = raw.tobytes() + b"\0" * (raw.nbytes % 2)
    spacing = [image.spacing[1], image.spacing[0]]
    orientation = _item(ImageOrientationPatient=[*image.along, *image.down])
    measures = _item(PixelSpacing=spacing, SliceThickness=2.0)
    one.SharedFunctionalGroupsSequence = [
        _item(PixelMeasuresSequence=[measures], PlaneOrientationSequence=[orientation])
    ]
    groups = []
    for segment, plane, _ in frames:
        place = [round(float(value), 8) for value in image.point(0, 0, plane)]
        group = _item(PlanePositionSequence=[_item(ImagePositionPatient=place)])
        if kind != "LABELMAP":
            group.SegmentIdentificationSequence = [_item(ReferencedSegmentNumber=segment)]
        groups.append(group)
    one.PerFrameFunctionalGroupsSequence = groups
    for tag, value in tags.items():
        setattr(one, tag, value)
    one.save_as(path, enforce_file_format=True)
    return path


def write_rtstruct(
    path: Path,
    rois: Sequence[tuple[int, str, Sequence[Sequence[float]]]],
    frame: str = "1.2.3.4",
    kinds: Sequence[str] = (),
) -> Path:
    """Write ROIs, each with its number, name and ContourData. ``kinds`` are the types of the contours of each ROI."""
    one = _file(path, STRUCTURE_SET, "RTSTRUCT")
    one.StructureSetROISequence = [
        _item(ROINumber=key, ROIName=name, ReferencedFrameOfReferenceUID=frame) for key, name, _ in rois
    ]
    one.ROIContourSequence = []
    for key, _, contours in rois:
        items = [
            _item(ContourGeometricType=kind, NumberOfContourPoints=len(data) // 3, ContourData=list(data))
            for data, kind in zip(contours, [*kinds, *["CLOSED_PLANAR"] * len(contours)], strict=False)
        ]
        one.ROIContourSequence.append(_item(ReferencedROINumber=key, ContourSequence=items))
    one.save_as(path, enforce_file_format=True)
    return path


def _file(path: Path, sop_class: str, modality: str) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, sop_class
    meta.MediaStorageSOPInstanceUID = generate_uid()
    one = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    one.SOPClassUID, one.Modality, one.PatientName, one.PatientID = sop_class, modality, "Doe^Jane", "12345"
    path.parent.mkdir(parents=True, exist_ok=True)
    return one


def _item(**tags: Any) -> Dataset:
    one = Dataset()
    for tag, value in tags.items():
        setattr(one, tag, value)
    return one
