"""Series of DICOM slices: order, geometry, rescaling and refused input."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dicom_fakes import write_series, write_slice
from graftseg.core.errors import Code
from graftseg.data.formats.dicom_series import read_series, series_geometry
from graftseg.data.grid import axis_codes
from graftseg.data.scans import read_scan
from user_errors import user_error


@pytest.fixture
def volume() -> NDArray[np.int16]:
    return np.random.default_rng(0).integers(-1000, 1000, (4, 3, 5)).astype(np.int16)


def test_slices_are_sorted_along_their_normal(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (0.7, 0.8, 2.5))
    scan = read_series(paths)
    np.testing.assert_array_equal(scan.array[0], volume)
    assert scan.array.dtype == np.float32
    assert axis_codes(scan.geometry) == "LPS"
    assert scan.geometry.spacing == pytest.approx((0.7, 0.8, 2.5))
    # left and back are negative
    assert scan.geometry.matrix[:3, 3].tolist() == [10.0, 20.0, 5.0]
    assert series_geometry(paths) == scan.geometry


def test_pixels_are_rescaled(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 1), RescaleSlope=2, RescaleIntercept=-1024)
    np.testing.assert_array_equal(read_series(paths).array[0], 2.0 * volume - 1024)


def test_slices_without_positions_are_ordered_by_file_name(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = [tmp_path / f"{z:03d}.dcm" for z in range(5)]
    for z, path in enumerate(paths):
        write_slice(path, volume[:, :, z].T, None)
    scan = read_series(paths)
    np.testing.assert_array_equal(scan.array[0], volume)
    assert scan.geometry.spacing == (0.5, 0.5, 2.0) and axis_codes(scan.geometry) == "LPS"


@pytest.mark.parametrize(("tag", "lost"), [("ImagePositionPatient", 1), ("ImageOrientationPatient", 2)])
def test_a_position_that_some_slices_lack(volume: NDArray[np.int16], tmp_path: Path, tag: str, lost: int) -> None:
    """The remaining slices must not be ordered by number."""
    paths = write_series(tmp_path, volume, (0.7, 0.8, 2.5))
    for z in range(lost):
        write_slice(
            paths[z], volume[:, :, 4 - z].T, (-10, -20, 5 + 2.5 * (4 - z)), PixelSpacing=[0.8, 0.7], **{tag: None}
        )
    for read in (read_series, series_geometry):
        with user_error(Code.DICOM_SERIES, tmp_path, f"{lost} of 5 slices have no {tag}"):
            read(paths)


def test_positions_without_directions(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (1, 2, 3), ImageOrientationPatient=None)
    with user_error(Code.DICOM_SERIES, "a.dcm", "ImageOrientationPatient"):
        read_series([path])


def test_a_single_slice(volume: NDArray[np.int16], tmp_path: Path) -> None:
    scan = read_series(write_series(tmp_path, volume[:, :, :1], (1, 1, 3)))
    assert scan.geometry.shape == (4, 3, 1)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_missing_slice_is_refused(volume: NDArray[np.int16], tmp_path: Path, lost: int) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    with user_error(Code.DICOM_SERIES, keyword="missing before this slice"):
        read_series([*paths[:lost], *paths[lost + 1 :]])


def test_two_slices_at_one_position(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    write_slice(tmp_path / "extra.dcm", volume[:, :, 0].T, (-10, -20, 5), PixelSpacing=[1, 1])
    with user_error(Code.DICOM_SERIES, keyword="0.00 mm"):
        read_series([*paths, tmp_path / "extra.dcm"])


def test_slices_of_two_sizes(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    write_slice(paths[-1], volume[:2, :, 0].T, (-10, -20, 5))
    with user_error(Code.DICOM_SERIES, keyword="2 x 3 pixels"):
        read_series(paths)


def test_files_that_cannot_be_read(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    paths[0].write_bytes(b"nothing")
    with user_error(Code.NOT_A_SCAN, "001.dcm", "not a DICOM file"):
        read_series(paths)
    write_slice(paths[0], volume[:, :, 4].T, (-10, -20, 13), PixelSpacing=[1, 1], PixelData=b"\0\0")
    with user_error(Code.SCAN_DAMAGED, "001.dcm", "pixels cannot be decoded"):
        read_series(paths)
    paths[0].unlink()
    with user_error(Code.READ_FAILED, "001.dcm", "cannot be read"):
        read_series(paths)


def test_a_header_without_pixel_spacing(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), PixelSpacing=None)
    with user_error(Code.SCAN_HEADER, keyword="header has no PixelSpacing"):
        read_series([path])
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), PixelSpacing=[1.0, 1.0, 1.0])
    with user_error(Code.SCAN_HEADER, keyword="is not 2 numbers"):
        read_series([path])


@pytest.mark.parametrize(
    "tags",
    [
        {"PixelSpacing": [0.0, 0.5]},
        {"PixelSpacing": [-1.0, -1.0]},
        {"RescaleSlope": [1, 2]},
        {"RescaleIntercept": float("nan")},
        {"RescaleSlope": "1e99"},
        {"Rows": [3, 3]},
    ],
)
def test_invalid_numbers_of_a_header(volume: NDArray[np.int16], tmp_path: Path, tags: dict[str, Any]) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), **tags)
    with user_error(Code.SCAN_HEADER, "a.dcm", next(iter(tags))):
        read_series([path])


def test_empty_numbers_of_a_header_count_as_missing(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, None, RescaleSlope=None, RescaleIntercept=None, SliceThickness=None)
    scan = read_series([path])
    np.testing.assert_array_equal(scan.array[0, :, :, 0], volume[:, :, 0])
    assert scan.geometry.spacing == (0.5, 0.5, 1.0)


def test_no_patient_tags_are_read(volume: NDArray[np.int16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pydicom

    paths, seen, read = write_series(tmp_path, volume, (1, 1, 2)), [], pydicom.dcmread

    def spy(*arguments: object, **options: object) -> object:
        seen.append(read(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(pydicom, "dcmread", spy)
    read_series(paths)
    series_geometry(paths)
    assert len(seen) == 10
    assert not any("Patient" in element.keyword and "Image" not in element.keyword for one in seen for element in one)


def test_pydicom_missing_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with user_error(Code.PACKAGE_MISSING, keyword="pip install pydicom"):
        read_series([tmp_path / "a.dcm"])


@pytest.mark.parametrize("cut", [140, 300])
def test_a_truncated_slice_is_not_skipped(volume: NDArray[np.int16], tmp_path: Path, cut: int) -> None:
    """Test this also at the end of the series, where a missing slice leaves no gap."""
    write_series(tmp_path / "a", volume, (0.7, 0.8, 2.5))
    last = sorted((tmp_path / "a").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:cut])
    with user_error(Code.SCAN_DAMAGED, keyword="before its pixels") as caught:
        read_scan(tmp_path / "a")
    assert caught.value.where == str(last)
