"""Truncated and damaged DICOM files: the error names the file and quotes nothing of its header."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.uid import CTImageStorage

from dicom_fakes import write_enhanced, write_slice
from graftseg.core.errors import Code, UserError
from graftseg.data.formats.dicom import is_dicom_case
from graftseg.data.scans import read_geometry, read_scan
from graftseg.inference.export.dicomseg import series_in
from scan_fakes import refused
from user_errors import user_error

VOLUME = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
READERS = (read_geometry, read_scan, is_dicom_case)


def classic(path: Path, **tags: Any) -> None:
    write_slice(path, VOLUME[:, :, 0].T, (0, 0, 0), SOPClassUID=CTImageStorage, **tags)


def enhanced(path: Path) -> None:
    write_enhanced(path, VOLUME, (1, 1, 1), SOPClassUID=CTImageStorage)


def sentences(folder: Path) -> list[str]:
    """Return the errors of all readers of a folder."""
    said = []
    for read in READERS:
        try:
            read(folder)
        except UserError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("write", [classic, enhanced])
def test_a_file_truncated_anywhere(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "case" / "a.dcm"
    write(path)
    content = path.read_bytes()
    for length in range(0, len(content), 17):
        path.write_bytes(content[:length])
        said = sentences(path.parent)
        assert said and all(sentence.startswith(str(path.parent)) for sentence in said), length
        assert not re.search(r"Doe|Jane|12345|\\x", "".join(said)), length
        with pytest.raises(UserError) as caught:
            read_scan(path)
        assert caught.value.where == str(path), length


@pytest.mark.parametrize("write", [classic, enhanced])
def test_damage_anywhere_in_the_header(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Readers raise only UserErrors and quote nothing of the header."""
    path = tmp_path / "case" / "a.dcm"
    write(path)
    content, generator = path.read_bytes(), np.random.default_rng(0)
    said = []
    for _ in range(60):
        damaged = bytearray(content)
        for place in generator.integers(132, len(content) - 24, 4):
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        said += sentences(path.parent)
    assert len(said) > 60 and all(sentence.startswith(str(path.parent)) for sentence in said)
    assert not re.search(r"Doe|Jane|12345|\\x", "".join(said))


def test_a_file_truncated_before_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    path.write_bytes(path.read_bytes()[:154])
    refused(path, Code.SCAN_DAMAGED, "damaged or truncated")
    with user_error(Code.SCAN_DAMAGED, "a.dcm", "the file is damaged"):
        series_in(tmp_path)


def test_a_damaged_length_of_the_file_meta(tmp_path: Path) -> None:
    """The original exception would quote the bytes of the header."""
    path = tmp_path / "a.dcm"
    classic(path)
    content = bytearray(path.read_bytes())
    assert content[132:140] == b"\x02\x00\x00\x00UL\x04\x00"
    content[138] = 0x4F
    path.write_bytes(content)
    refused(path, Code.SCAN_DAMAGED, "damaged or truncated")


def test_a_file_truncated_within_functional_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    enhanced(path)
    content = path.read_bytes()
    # within the position of the last frame
    path.write_bytes(content[: content.rindex(b"\x20\x00\x13\x91SQ") + 14])
    refused(path, Code.SCAN_DAMAGED, "damaged or truncated")


def test_a_missing_transfer_syntax(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    one = pydicom.dcmread(path)
    del one.file_meta.TransferSyntaxUID
    pydicom.dcmwrite(path, one, implicit_vr=False, little_endian=True)
    refused(path, Code.SCAN_HEADER, "TransferSyntaxUID")


def test_two_sop_classes_and_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    one = pydicom.dcmread(path)
    one.SOPClassUID = [CTImageStorage, CTImageStorage]
    del one.Rows
    one.save_as(path)
    refused(path, Code.SCAN_DAMAGED, "before its pixels")


def test_a_missing_image_size(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path, Columns=0)
    refused(path, Code.SCAN_HEADER, "columns and rows")


def test_why_pixels_cannot_be_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path, PixelData=b"\0\0")
    refused(path, Code.SCAN_DAMAGED, "2 of 24 bytes")
    classic(path, BitsStored=None)
    assert "Doe" not in refused(path, Code.SCAN_DAMAGED, "cannot be decoded")
    classic(path, PhotometricInterpretation="Doe^Jane")
    assert "Doe" not in "".join(sentences(path.parent))


def test_a_slope_of_zero(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path, RescaleSlope=0.0, RescaleIntercept=5.0)
    refused(path, Code.SCAN_HEADER, "RescaleSlope")
    write_enhanced(path, VOLUME, (1, 1, 1), slope=0.0)
    refused(path, Code.SCAN_HEADER, "RescaleSlope")
    # a constant slice is not affected by its slope
    write_slice(path, np.zeros((3, 4), np.int16), (0, 0, 0), RescaleSlope=0.0, RescaleIntercept=5.0)
    assert read_scan(path).array.tolist() == np.full((1, 4, 3, 1), 5.0).tolist()
