"""DICOM files that are cut off or damaged: one sentence that names the file and quotes nothing of its header."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from dicom_fakes import write_enhanced, write_slice
from pydicom.uid import CTImageStorage

from graftseg.core.errors import UserError
from graftseg.data.formats import dicom_pixels
from graftseg.data.formats.dicom import is_dicom_case
from graftseg.data.scans import read_geometry, read_scan
from graftseg.inference.export.dicom_series import series_in

VOLUME = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
READERS = (read_geometry, read_scan, is_dicom_case)
AGAIN = "copy or download the series again."


def classic(path: Path, **tags: Any) -> None:
    write_slice(path, VOLUME[:, :, 0].T, (0, 0, 0), SOPClassUID=CTImageStorage, **tags)


def enhanced(path: Path) -> None:
    write_enhanced(path, VOLUME, (1, 1, 1), SOPClassUID=CTImageStorage)


def sentences(folder: Path) -> list[str]:
    """What every reader of a folder says, where it says anything."""
    said = []
    for read in READERS:
        try:
            read(folder)
        except UserError as error:
            said.append(str(error))
    return said


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_scan(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("write", [classic, enhanced])
def test_a_file_cut_off_anywhere(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "case" / "a.dcm"
    write(path)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        said = sentences(path.parent)
        assert said and all(sentence.startswith(str(path.parent)) for sentence in said), length
        assert not re.search(r"Doe|Jane|12345|\\x", "".join(said)), length
        refusal(path)


@pytest.mark.parametrize("write", [classic, enhanced])
def test_damage_anywhere_in_the_header(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """No reader raises anything but the sentence, and none quotes the header."""
    path = tmp_path / "case" / "a.dcm"
    write(path)
    content, generator = path.read_bytes(), np.random.default_rng(0)
    said = []
    for _ in range(150):
        damaged = bytearray(content)
        for place in generator.integers(132, len(content) - 24, 4):
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        said += sentences(path.parent)
    assert len(said) > 150 and all(sentence.startswith(str(path.parent)) for sentence in said)
    assert not re.search(r"Doe|Jane|12345|\\x", "".join(said))


def test_a_file_cut_off_before_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    path.write_bytes(path.read_bytes()[:154])
    assert refusal(path) == f"the file is damaged or cut off; {AGAIN}"
    with pytest.raises(UserError, match=r"a\.dcm: the file is damaged or cut off"):
        series_in(tmp_path)


def test_a_damaged_length_of_the_file_meta(tmp_path: Path) -> None:
    """The package would quote the bytes of the header in what it raises."""
    path = tmp_path / "a.dcm"
    classic(path)
    content = bytearray(path.read_bytes())
    assert content[132:140] == b"\x02\x00\x00\x00UL\x04\x00"
    content[138] = 0x4F
    path.write_bytes(content)
    assert refusal(path) == f"the file is damaged or cut off; {AGAIN}"


def test_a_file_cut_off_within_a_group_of_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    enhanced(path)
    content = path.read_bytes()
    # within the first item of where the last frame lies
    path.write_bytes(content[: content.rindex(b"\x20\x00\x13\x91SQ") + 14])
    assert refusal(path) == f"the file is damaged or cut off; {AGAIN}"


def test_no_word_of_how_pixels_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    one = pydicom.dcmread(path)
    del one.file_meta.TransferSyntaxUID
    pydicom.dcmwrite(path, one, implicit_vr=False, little_endian=True)
    assert refusal(path) == f"its header does not say how its pixels are stored (TransferSyntaxUID); {AGAIN}"


def test_two_kinds_and_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path)
    one = pydicom.dcmread(path)
    one.SOPClassUID = [CTImageStorage, CTImageStorage]
    del one.Rows
    one.save_as(path)
    assert refusal(path) == f"the file is cut off before its pixels; {AGAIN}"


def test_a_size_that_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    classic(path, Columns=0)
    assert refusal(path) == f"its header tells no number of columns and rows; {AGAIN}"


def test_why_pixels_cannot_be_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    remedy = "copy the series again or export it uncompressed."
    classic(path, PixelData=b"\0\0")
    assert refusal(path) == f"its pixels cannot be decoded (2 of 24 bytes are there); {remedy}"
    classic(path, BitsStored=None)
    assert refusal(path).startswith("its pixels cannot be decoded") and "Doe" not in refusal(path)
    classic(path, PhotometricInterpretation="Doe^Jane")
    assert "Doe" not in "".join(sentences(path.parent))


def test_a_slope_that_makes_all_values_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    sentence = "RescaleSlope in its header is 0, which makes all its values the same; export the series again"
    classic(path, RescaleSlope=0.0, RescaleIntercept=5.0)
    assert refusal(path).startswith(sentence)
    write_enhanced(path, VOLUME, (1, 1, 1), slope=0.0)
    assert refusal(path).startswith(sentence)
    # a slice of air says nothing else by any slope
    write_slice(path, np.zeros((3, 4), np.int16), (0, 0, 0), RescaleSlope=0.0, RescaleIntercept=5.0)
    assert read_scan(path).array.tolist() == np.full((1, 4, 3, 1), 5.0).tolist()


def test_a_slope_of_zero_where_another_package_decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives values that are rescaled already."""
    path = tmp_path / "a.dcm"
    classic(path, RescaleSlope=0.0, PixelData=b"\0\0")
    monkeypatch.setattr(dicom_pixels, "_decode_with_itk", lambda where, header: np.zeros((4, 3), np.float32))
    assert refusal(path).startswith("RescaleSlope in its header is 0")
