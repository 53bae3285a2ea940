"""Enhanced DICOM files with one frame or several, described by functional groups of the header."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.uid import RLELossless, generate_uid
from test_formats_dicom import Volume, refused, series

from dicom_fakes import write_enhanced, write_slice
from graftseg.core.errors import Code
from graftseg.data.scans import read_geometry, read_scan
from graftseg.data.scans_to_predict import scan_cases
from user_errors import user_error

SPACING = (0.7, 0.8, 2.5)


def write_single(path: Path, volume: Volume, z: int, slope: float = 1.0, **tags: Any) -> None:
    """Write one slice of a volume as an enhanced file with a single frame."""
    write_enhanced(path, volume[:, :, z : z + 1], SPACING, slope, **tags)
    one = pydicom.dcmread(path)
    place = one.PerFrameFunctionalGroupsSequence[0].PlanePositionSequence[0]
    place.ImagePositionPatient = [-10.0, -20.0, 5 + z * SPACING[2]]
    one.save_as(path)


def without(path: Path, names: Sequence[str], **tags: Any) -> None:
    """Remove shared functional groups of a file and set tags of the file."""
    one = pydicom.dcmread(path)
    for name in names:
        delattr(one.SharedFunctionalGroupsSequence[0], name)
    for tag, value in tags.items():
        setattr(one, tag, value)
    one.save_as(path)


def test_a_multi_frame_file(volume: Volume, tmp_path: Path) -> None:
    write_enhanced(tmp_path / "case.dcm", volume, (0.7, 0.8, 2.5), slope=2.0)
    scan, plain = read_scan(tmp_path / "case.dcm"), read_geometry(series(tmp_path / "plain", volume))
    np.testing.assert_array_equal(scan.array[0], 2.0 * volume)
    np.testing.assert_allclose(scan.geometry.matrix, plain.matrix)
    assert read_geometry(tmp_path / "case.dcm") == scan.geometry
    (tmp_path / "folder").mkdir()
    (tmp_path / "case.dcm").rename(tmp_path / "folder" / "x")
    assert read_geometry(tmp_path / "folder") == scan.geometry


def test_inconsistent_multi_frame_files_are_refused(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, (1, 1, 1))
    one = pydicom.dcmread(path)
    frames = list(one.PerFrameFunctionalGroupsSequence)
    del one.PerFrameFunctionalGroupsSequence
    one.save_as(path)
    refused(path, Code.SCAN_UNSUPPORTED, "a multi-frame file")
    one.PerFrameFunctionalGroupsSequence = frames[:7]
    one.save_as(path)
    refused(path, Code.SCAN_HEADER, "8 frames")
    one.PerFrameFunctionalGroupsSequence = [*frames[:7], pydicom.Dataset()]
    one.save_as(path)
    refused(path, Code.SCAN_UNSUPPORTED, "frame 8 of 8")
    one.PerFrameFunctionalGroupsSequence = frames[:4] * 2
    one.save_as(path)
    with user_error(Code.DICOM_SERIES, keyword="at 4 positions"):
        read_scan(path)
    uid = generate_uid()
    for name in "xy":
        write_enhanced(tmp_path / "two" / f"{name}.dcm", volume, (1, 1, 1), SeriesInstanceUID=uid)
    refused(tmp_path / "two", Code.DICOM_SERIES, "2 of them")


def test_a_file_of_a_single_frame(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "case.dcm"
    write_single(path, volume, 3, slope=2.5)
    scan = read_scan(path)
    np.testing.assert_array_equal(scan.array[0, :, :, 0], 2.5 * volume[:, :, 3])
    np.testing.assert_array_equal(scan.geometry.matrix[:3], [[-0.7, 0, 0, 10], [0, -0.8, 0, 20], [0, 0, 2.5, 12.5]])
    assert read_geometry(path) == scan.geometry and scan.geometry.shape == (4, 3, 1)


def test_a_series_of_single_frames(volume: Volume, tmp_path: Path) -> None:
    uid, folder = generate_uid(), tmp_path / "all" / "case"
    for z in range(8):
        # file names are in reverse order of positions
        write_single(folder / f"{9 - z}.dcm", volume, z, slope=z + 1, SeriesInstanceUID=uid)
    scan = read_scan(folder)
    np.testing.assert_array_equal(scan.array[0], volume * np.arange(1, 9))
    np.testing.assert_allclose(scan.geometry.matrix, read_geometry(series(tmp_path / "plain", volume)).matrix)
    assert read_geometry(folder) == scan.geometry
    assert [case.name for case in scan_cases(folder, 1)[0]] == ["case"]
    (folder / "5.dcm").unlink()
    refused(folder, Code.DICOM_SERIES, "5.00 mm from 6.dcm")


def test_single_frames_next_to_a_multi_frame_file(volume: Volume, tmp_path: Path) -> None:
    uid = generate_uid()
    write_single(tmp_path / "1.dcm", volume, 0, SeriesInstanceUID=uid)
    write_enhanced(tmp_path / "2.dcm", volume[:, :, 1:], SPACING, SeriesInstanceUID=uid)
    refused(tmp_path, Code.DICOM_SERIES, "1 of them")


def test_tags_of_a_single_frame_may_be_shared_or_of_the_file(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_single(path, volume, 2, slope=2.0)
    expected = read_scan(path)
    one = pydicom.dcmread(path)
    shared = one.SharedFunctionalGroupsSequence[0]
    shared.PlanePositionSequence = one.PerFrameFunctionalGroupsSequence[0].PlanePositionSequence
    del one.PerFrameFunctionalGroupsSequence
    one.save_as(path)
    assert read_scan(path).geometry == expected.geometry
    one.ImagePositionPatient = shared.PlanePositionSequence[0].ImagePositionPatient
    one.ImageOrientationPatient = shared.PlaneOrientationSequence[0].ImageOrientationPatient
    one.PixelSpacing, one.SliceThickness, one.RescaleSlope = [0.8, 0.7], 2.5, 2.0
    one.SharedFunctionalGroupsSequence = []
    one.save_as(path)
    scan = read_scan(path)
    assert scan.geometry == expected.geometry
    np.testing.assert_array_equal(scan.array, expected.array)


def test_a_single_frame_without_position_is_2d(volume: Volume, tmp_path: Path) -> None:
    groups, path = [pydicom.Dataset()], tmp_path / "a.dcm"
    tags = {"SharedFunctionalGroupsSequence": groups, "PerFrameFunctionalGroupsSequence": groups}
    write_slice(path, volume[:, :, 0].T, None, PixelSpacing=None, ImagerPixelSpacing=[0.2, 0.1], **tags)
    scan = read_scan(path)
    np.testing.assert_array_equal(scan.array[0], volume[:, :, 0])
    assert scan.geometry.spacing == (0.1, 0.2) and read_geometry(path) == scan.geometry


def test_colors_of_a_single_frame_are_not_frames(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_single(path, volume, 0)
    without(path, (), SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0, PixelData=bytes(72))
    with user_error(Code.SCAN_UNSUPPORTED, keyword="pixels have the shape"):
        read_scan(path)


def test_a_rescaling_of_the_whole_file(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, SPACING)
    without(path, ["PixelValueTransformationSequence"], RescaleSlope=2, RescaleIntercept=-1024)
    np.testing.assert_array_equal(read_scan(path).array[0], 2.0 * volume - 1024)
    # tags of the frames override tags of the file
    write_enhanced(path, volume, SPACING, slope=3.0, RescaleSlope=2, RescaleIntercept=-1024)
    np.testing.assert_array_equal(read_scan(path).array[0], 3.0 * volume)


@pytest.mark.parametrize("tag", ["PixelSpacing", "RescaleSlope"])
def test_an_invalid_number_of_a_frame_is_not_quoted(volume: Volume, tmp_path: Path, tag: str) -> None:
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, (0.7, 0.8, 2.5), slope=1.125)
    written = {"PixelSpacing": b"0.8\\0.7", "RescaleSlope": b"1.125"}[tag]
    content = path.read_bytes()
    assert content.count(written) == 1
    path.write_bytes(content.replace(written, b"Doe" + written[3:]))
    refused(path, Code.SCAN_HEADER, tag)


def test_a_picture_with_an_invalid_position(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (1.25, 2.5, 3.75))
    path.write_bytes(path.read_bytes().replace(b"1.25\\2.5", b"Doe.\\2.5"))
    refused(path, Code.SCAN_HEADER, "ImagePositionPatient in")


def test_the_orientation_of_a_file_is_not_used_for_frames(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, SPACING, ImageOrientationPatient=[1, 0, 0, 0, 1, 0])
    without(path, ["PlaneOrientationSequence"])
    refused(path, Code.SCAN_UNSUPPORTED, "frame 1 of 8")


def test_lookup_tables_are_refused(volume: Volume, tmp_path: Path) -> None:
    write_enhanced(tmp_path / "a.dcm", volume, SPACING, ModalityLUTSequence=[pydicom.Dataset()])
    refused(tmp_path / "a.dcm", Code.SCAN_UNSUPPORTED, "ModalityLUTSequence")


def test_compressed_frames(volume: Volume, tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_single(path, volume, 1, SOPClassUID="1.2.840.10008.5.1.4.1.1.2.1")
    one = pydicom.dcmread(path)
    one.compress(RLELossless)
    one.save_as(path)
    np.testing.assert_array_equal(read_scan(path).array[0, :, :, 0], volume[:, :, 1])


@pytest.mark.parametrize("rows", [3, 4])
def test_frames_of_one_bit_per_pixel(tmp_path: Path, rows: int) -> None:
    """Frames of 3 x 6 pixels do not begin at whole bytes."""
    volume = np.random.default_rng(0).integers(0, 2, (6, rows, 5)).astype(np.int16)
    path = tmp_path / "a.dcm"
    write_enhanced(path, volume, (1, 1, 1))
    written = pydicom.dcmread(path)
    written.BitsAllocated, written.BitsStored, written.HighBit, written.PixelRepresentation = 1, 1, 0, 0
    bits = np.packbits(volume[:, :, ::-1].ravel("F"), bitorder="little").tobytes()
    written.PixelData = bits + bytes(len(bits) % 2)
    written.save_as(path)
    np.testing.assert_array_equal(read_scan(path).array[0], volume)


def test_uncompressed_frames_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    write_enhanced(tmp_path / "a.dcm", volume, (1, 1, 1))
    monkeypatch.setattr(pydicom.Dataset, "pixel_array", None)
    np.testing.assert_array_equal(read_scan(tmp_path / "a.dcm").array[0], volume)
