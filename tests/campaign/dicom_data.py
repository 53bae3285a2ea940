"""DICOM files with any tags, valid or not."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

UTF_8 = "ISO_IR 192"


def dicom_slice(z: int = 0, *, series: str = "1.2.1", side: int = 16, seed: int = 0) -> FileDataset:
    """Return a CT slice of ``side`` x ``side`` pixels."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = f"{series}.{z + 1}"
    one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    one.SpecificCharacterSet = UTF_8
    one.SOPClassUID, one.SOPInstanceUID = CTImageStorage, f"{series}.{z + 1}"
    one.Modality, one.SeriesInstanceUID = "CT", series
    one.Rows = one.Columns = side
    one.SamplesPerPixel, one.PhotometricInterpretation = 1, "MONOCHROME2"
    one.BitsAllocated, one.BitsStored, one.HighBit, one.PixelRepresentation = 16, 16, 15, 1
    one.PixelSpacing, one.SliceThickness = [1.0, 1.0], 1.0
    one.ImagePositionPatient, one.ImageOrientationPatient = [0.0, 0.0, float(z)], [1.0, 0, 0, 0, 1, 0]
    one.PixelData = np.random.default_rng(seed + z).integers(0, 100, (side, side)).astype("<i2").tobytes()
    return one


def write_dicom(path: Path, one: FileDataset, change: Callable[[Dataset], Any] | None = None) -> Path:
    """Write a DICOM file after a change, without checks of its values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = pydicom.config.settings.writing_validation_mode
    pydicom.config.settings.writing_validation_mode = pydicom.config.IGNORE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if change is not None:
                change(one)
            one.save_as(path, enforce_file_format=True)
    finally:
        pydicom.config.settings.writing_validation_mode = before
    return path
