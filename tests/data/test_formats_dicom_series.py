"""DICOM series."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_fakes import write_series, write_slice
from numpy.typing import NDArray

from graftseg.core.errors import UserError
from graftseg.data.formats.dicom_series import read_series, series_geometry
from graftseg.data.grid import axis_codes
from graftseg.data.scans import read_scan


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
    # to the left and to the back count as minus
    assert scan.geometry.matrix[:3, 3].tolist() == [10.0, 20.0, 5.0]
    assert series_geometry(paths) == scan.geometry


def test_pixels_are_rescaled(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 1), RescaleSlope=2, RescaleIntercept=-1024)
    np.testing.assert_array_equal(read_series(paths).array[0], 2.0 * volume - 1024)


def test_without_positions_the_file_names_tell(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = [tmp_path / f"{z:03d}.dcm" for z in range(5)]
    for z, path in enumerate(paths):
        write_slice(path, volume[:, :, z].T, None)
    scan = read_series(paths)
    np.testing.assert_array_equal(scan.array[0], volume)
    assert scan.geometry.spacing == (0.5, 0.5, 2.0) and axis_codes(scan.geometry) == "LPS"


@pytest.mark.parametrize(("tag", "lost"), [("ImagePositionPatient", 1), ("ImageOrientationPatient", 2)])
def test_a_place_that_only_some_slices_tell(volume: NDArray[np.int16], tmp_path: Path, tag: str, lost: int) -> None:
    """Without those that are lost the others must not be laid out by their numbers."""
    paths = write_series(tmp_path, volume, (0.7, 0.8, 2.5))
    for z in range(lost):
        write_slice(
            paths[z], volume[:, :, 4 - z].T, (-10, -20, 5 + 2.5 * (4 - z)), PixelSpacing=[0.8, 0.7], **{tag: None}
        )
    sentence = f"{tmp_path}: {lost} of its 5 slices without {tag}, the first 001.dcm; export the series again"
    for read in (read_series, series_geometry):
        with pytest.raises(UserError) as caught:
            read(paths)
        assert str(caught.value).startswith(sentence)


def test_positions_without_directions(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (1, 2, 3), ImageOrientationPatient=None)
    with pytest.raises(UserError, match=r"a\.dcm: 1 of its 1 slices without ImageOrientationPatient"):
        read_series([path])


def test_a_single_slice(volume: NDArray[np.int16], tmp_path: Path) -> None:
    scan = read_series(write_series(tmp_path, volume[:, :, :1], (1, 1, 3)))
    assert scan.geometry.shape == (4, 3, 1)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_missing_slice_is_refused(volume: NDArray[np.int16], tmp_path: Path, lost: int) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    with pytest.raises(UserError, match=r"a slice is missing before it: 4\.00 mm from .*\.dcm, usually 2\.00 mm"):
        read_series([*paths[:lost], *paths[lost + 1 :]])


def test_two_slices_in_one_place(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    write_slice(tmp_path / "extra.dcm", volume[:, :, 0].T, (-10, -20, 5), PixelSpacing=[1, 1])
    with pytest.raises(UserError, match=r"the slice lies 0\.00 mm from .* keep the slices of one series only"):
        read_series([*paths, tmp_path / "extra.dcm"])


def test_slices_of_two_sizes(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    write_slice(paths[-1], volume[:2, :, 0].T, (-10, -20, 5))
    with pytest.raises(UserError, match=r"the slice has 2 x 3 pixels where 001\.dcm has 4 x 3"):
        read_series(paths)


def test_files_that_cannot_be_read(volume: NDArray[np.int16], tmp_path: Path) -> None:
    paths = write_series(tmp_path, volume, (1, 1, 2))
    paths[0].write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"001\.dcm: not a DICOM file; copy or download the series again"):
        read_series(paths)
    write_slice(paths[0], volume[:, :, 4].T, (-10, -20, 13), PixelSpacing=[1, 1], PixelData=b"\0\0")
    with pytest.raises(UserError, match=r"001\.dcm: its pixels cannot be decoded"):
        read_series(paths)
    paths[0].unlink()
    with pytest.raises(UserError, match=r"001\.dcm: the file cannot be read"):
        read_series(paths)


def test_a_header_without_pixel_spacing(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), PixelSpacing=None)
    with pytest.raises(UserError, match="its header has no PixelSpacing"):
        read_series([path])
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), PixelSpacing=[1.0, 1.0, 1.0])
    with pytest.raises(UserError, match="PixelSpacing in its header is not 2 numbers"):
        read_series([path])


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [
        ({"PixelSpacing": [0.0, 0.5]}, r"PixelSpacing in its header is \[0\.0, 0\.5\], not above 0 mm"),
        ({"PixelSpacing": [-1.0, -1.0]}, r"PixelSpacing in its header is \[-1\.0, -1\.0\], not above 0 mm"),
        ({"RescaleSlope": [1, 2]}, "RescaleSlope in its header is not a number"),
        ({"RescaleIntercept": float("nan")}, "RescaleIntercept in its header is not a number"),
        ({"RescaleSlope": "1e99"}, "RescaleSlope 1e.99 makes its values infinite"),
        ({"Rows": [3, 3]}, "Rows in its header is not a number"),
    ],
)
def test_numbers_of_a_header_that_make_no_sense(
    volume: NDArray[np.int16], tmp_path: Path, tags: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, (0, 0, 0), **tags)
    with pytest.raises(UserError, match=rf"a\.dcm: {sentence}; copy or download the series again"):
        read_series([path])


def test_empty_numbers_of_a_header_are_as_if_they_were_not_there(volume: NDArray[np.int16], tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_slice(path, volume[:, :, 0].T, None, RescaleSlope=None, RescaleIntercept=None, SliceThickness=None)
    scan = read_series([path])
    np.testing.assert_array_equal(scan.array[0, :, :, 0], volume[:, :, 0])
    assert scan.geometry.spacing == (0.5, 0.5, 1.0)


def test_nothing_about_a_person_is_read(
    volume: NDArray[np.int16], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(UserError, match=r"pydicom is not installed; pip install pydicom"):
        read_series([tmp_path / "a.dcm"])


@pytest.mark.parametrize("cut", [140, 300])
def test_a_slice_that_is_cut_off_is_not_passed_over(volume: NDArray[np.int16], tmp_path: Path, cut: int) -> None:
    """Not even at an end of the series, where no gap would tell."""
    write_series(tmp_path / "a", volume, (0.7, 0.8, 2.5))
    last = sorted((tmp_path / "a").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:cut])
    with pytest.raises(UserError, match="the file is cut off before its pixels") as caught:
        read_scan(tmp_path / "a")
    assert caught.value.where == str(last)
