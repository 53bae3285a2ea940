"""Small DICOM series."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def write_slice(path: Path, pixels: NDArray[np.int16], position: Sequence[float] | None, **tags: Any) -> None:
    """Write a CT slice ``(rows, columns)`` with a patient's name, which must never be shown."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    one = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    one.PatientName, one.PatientID, one.Modality = "Doe^Jane", "12345", "CT"
    one.Rows, one.Columns = pixels.shape
    one.SamplesPerPixel, one.PhotometricInterpretation = 1, "MONOCHROME2"
    one.BitsAllocated, one.BitsStored, one.HighBit, one.PixelRepresentation = 16, 16, 15, 1
    one.PixelSpacing, one.SliceThickness = [0.5, 0.5], 2.0
    if position is not None:
        one.ImagePositionPatient, one.ImageOrientationPatient = list(position), list(AXIAL)
    one.PixelData = pixels.astype("<i2").tobytes()
    for tag, value in tags.items():
        setattr(one, tag, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    one.save_as(path, enforce_file_format=True)


def write_series(folder: Path, volume: NDArray[np.int16], spacing: Sequence[float], **tags: Any) -> list[Path]:
    """Write the slices of a volume ``(x, y, z)`` with LPS axes. File names count from the head down."""
    count = volume.shape[2]
    paths = [folder / f"{count - z:03d}.dcm" for z in range(count)]
    tags = {"PixelSpacing": [spacing[1], spacing[0]]} | tags
    for z, path in enumerate(paths):
        write_slice(path, volume[:, :, z].T, (-10.0, -20.0, 5 + z * spacing[2]), **tags)
    return sorted(paths)


def write_enhanced(
    path: Path, volume: NDArray[np.int16], spacing: Sequence[float], slope: float = 1.0, **tags: Any
) -> None:
    """Write all slices of a volume ``(x, y, z)`` with their positions to one file, highest slice first."""
    count = volume.shape[2]
    heights = range(count - 1, -1, -1)
    shared, measures, plane, values = Dataset(), Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = [spacing[1], spacing[0]], spacing[2]
    plane.ImageOrientationPatient = list(AXIAL)
    values.RescaleSlope, values.RescaleIntercept = slope, 0.0
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [plane]
    shared.PixelValueTransformationSequence = [values]
    frames = []
    for z in heights:
        place, frame = Dataset(), Dataset()
        place.ImagePositionPatient = [-10.0, -20.0, 5 + z * spacing[2]]
        frame.PlanePositionSequence = [place]
        frames.append(frame)
    stacked = volume[:, :, ::-1].transpose(2, 1, 0).astype("<i2")
    tags = {"SeriesInstanceUID": generate_uid(), "PixelSpacing": None, "SliceThickness": None} | tags
    tags |= {"NumberOfFrames": count, "PixelData": stacked.tobytes()}
    tags |= {"SharedFunctionalGroupsSequence": [shared], "PerFrameFunctionalGroupsSequence": frames}
    write_slice(path, stacked[0], None, **tags)
