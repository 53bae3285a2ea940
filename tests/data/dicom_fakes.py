"""Small DICOM series."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def write_slice(path: Path, pixels: NDArray[np.int16], position: Sequence[float] | None, **tags: Any) -> None:
    """One CT slice ``(rows, columns)``, with a patient's name that nobody shall see."""
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
    """Slices of a volume ``(x, y, z)`` to the left, the back and the head; their names count from the head down."""
    count = volume.shape[2]
    paths = [folder / f"{count - z:03d}.dcm" for z in range(count)]
    tags = {"PixelSpacing": [spacing[1], spacing[0]]} | tags
    for z, path in enumerate(paths):
        write_slice(path, volume[:, :, z].T, (-10.0, -20.0, 5 + z * spacing[2]), **tags)
    return sorted(paths)
