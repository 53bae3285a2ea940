"""DICOM slices next to each other in a folder of cases, and DICOM files without a suffix."""

from pathlib import Path

import numpy as np
import pytest
from check_fakes import check
from PIL import Image

from dicom_fakes import write_enhanced, write_series, write_slice
from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.layouts import read_layout
from graftseg.data.scans import is_scan, read_label, read_scan, write_label
from graftseg.data.scans_to_predict import scan_cases
from user_errors import user_error

SPACING = (1.0, 1.0, 2.0)


def volume(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    return np.random.default_rng(seed).integers(-900, 900, (5, 4, 3)).astype(np.int16)


def write_case_label(path: Path, geometry: Geometry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_label(path, np.ones(geometry.shape, np.uint8), geometry)


def loose(root: Path, series: int, folder: str = "imagesTr") -> Path:
    """Write three slices of each series directly into a folder, and a label map of the first series."""
    for number in range(series):
        paths = write_series(root / "tmp", volume(number), SPACING, SeriesInstanceUID=f"1.2.{number}")
        write_case_label(root / "labelsTr/case_01.nii.gz", read_scan(root / "tmp").geometry)
        for path in paths:
            target = root / folder / f"s{number}_{path.name}"
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    return root


@pytest.mark.parametrize("series", [1, 2])
def test_loose_slices_are_one_error(tmp_path: Path, series: int) -> None:
    with user_error(
        Code.DICOM_SERIES, tmp_path / "imagesTr", f"{3 * series} DICOM slices of {series} series"
    ) as caught:
        read_layout(loose(tmp_path, series))
    assert "s0_001.dcm and 2 more" in caught.value.finding and "imagesTr/case_01" in caught.value.remedy


def test_loose_slices_without_suffix_and_among_unlabeled_scans(tmp_path: Path) -> None:
    write_series(tmp_path / "imagesTr/case_01", volume(0), SPACING)
    loose(tmp_path, 2, "imagesUn")
    for path in sorted((tmp_path / "imagesUn").iterdir()):
        path.rename(path.with_suffix(""))
    with user_error(Code.DICOM_SERIES, tmp_path / "imagesUn", "s1_001 and 2 more"):
        read_layout(tmp_path)


def test_the_remedy_works(tmp_path: Path) -> None:
    loose(tmp_path, 1)
    (tmp_path / "imagesTr/case_01").mkdir()
    for path in (tmp_path / "imagesTr").glob("*.dcm"):
        path.rename(tmp_path / "imagesTr/case_01" / path.name)
    (case,) = read_layout(tmp_path).cases
    assert (case.name, case.split) == ("case_01", "labeled")


def test_slices_with_their_own_label_maps_are_cases(tmp_path: Path) -> None:
    for path in sorted((loose(tmp_path, 1) / "imagesTr").iterdir()):
        write_case_label(tmp_path / f"labelsTr/{path.stem}_seg.nii.gz", read_scan(path).geometry)
    (tmp_path / "labelsTr/case_01.nii.gz").unlink()
    dataset = read_layout(tmp_path)
    assert [case.split for case in dataset.cases] == ["labeled"] * 3 and dataset.problems == ()


def test_radiographs_and_multi_frame_files_are_cases(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_slice(tmp_path / f"imagesTr/{name}.dcm", volume(0)[:, :, 0], None, Modality="DX", SeriesInstanceUID="1.5")
    write_case_label(tmp_path / "labelsTr/a.nii.gz", read_scan(tmp_path / "imagesTr/a.dcm").geometry)
    for name in ("c", "d"):
        write_enhanced(tmp_path / f"imagesUn/{name}.dcm", volume(1), SPACING, SeriesInstanceUID="1.6")
    assert [case.name for case in read_layout(tmp_path).cases] == ["a", "b", "c", "d"]


def write_radiographs(folder: Path, count: int) -> None:
    tags = {"Modality": "DX", "PixelSpacing": None, "ImagerPixelSpacing": [0.25, 0.5]}
    for number in range(count):
        pixels = volume(number)[:, :, 0]
        write_slice(folder / f"{'abc'[number]}.dcm", pixels, None, SeriesInstanceUID=f"1.{number}", **tags)


def test_radiographs_in_a_folder_are_separate_scans_to_predict(tmp_path: Path) -> None:
    write_radiographs(tmp_path, 3)
    cases, failures = scan_cases(tmp_path, 1)
    assert [case.name for case in cases] == ["a", "b", "c"] and not failures
    write_slice(tmp_path / "d.dcm", volume(0)[:, :, 0], (0, 0, 0))
    assert [case.name for case in scan_cases(tmp_path, 1)[0]] == [tmp_path.name]


def test_a_picture_labels_a_radiograph(tmp_path: Path) -> None:
    write_radiographs(tmp_path / "imagesTr", 2)
    (tmp_path / "labelsTr").mkdir()
    labels = np.zeros((5, 4), np.uint8)
    labels[3, 1] = 1
    for name in ("a", "b"):
        Image.fromarray(labels).save(tmp_path / f"labelsTr/{name}.png")
    image, label = tmp_path / "imagesTr/a.dcm", tmp_path / "labelsTr/a.png"
    scan = read_label(label, image)
    assert scan.geometry == read_scan(image).geometry and scan.geometry.spacing == (0.5, 0.25)
    np.testing.assert_array_equal(scan.array, labels.T)
    assert not [finding for finding in check(read_layout(tmp_path), workers=1) if finding.severity == "error"]
    Image.fromarray(labels[:, :3]).save(label)
    assert read_label(label, image).geometry.spacing == (1, 1)
    assert read_label(label, tmp_path / "moved").geometry.spacing == (1, 1)


@pytest.mark.parametrize("name", ["IM0001", "1.2.840.55"])
def test_a_dicom_file_without_suffix(tmp_path: Path, name: str) -> None:
    path = tmp_path / "imagesTr" / name
    write_enhanced(tmp_path / "a.dcm", volume(0), SPACING)
    path.parent.mkdir()
    path.write_bytes((tmp_path / "a.dcm").read_bytes())
    write_case_label(tmp_path / f"labelsTr/{name}.nii.gz", read_scan(tmp_path / "a.dcm").geometry)
    np.testing.assert_array_equal(read_scan(path).array, read_scan(tmp_path / "a.dcm").array)
    assert [case.name for case in scan_cases(path, 1)[0]] == [name]
    (path.parent / "other").write_bytes(path.read_bytes())
    assert {case.name for case in scan_cases(path.parent, 1)[0]} == {name, "other"}
    (path.parent / "other").unlink()
    dataset = read_layout(tmp_path)
    assert [(case.name, case.split) for case in dataset.cases] == [(name, "labeled")]
    assert not [finding for finding in check(dataset, workers=1) if finding.severity == "error"]


def test_other_files_without_suffix_are_not_scans(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("x" * 200)
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    assert not is_scan(tmp_path / "README") and not is_scan(tmp_path / "DICOMDIR") and not is_scan(tmp_path / "none")
    with user_error(Code.NOT_A_SCAN, "README"):
        read_scan(tmp_path / "README")


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nii", "a.nrrd", "a.png", "a.tif", "a.dcm", "a.zip"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with user_error(Code.SCAN_DAMAGED, name, "empty (0 bytes)"):
        read_scan(tmp_path / name)


def test_an_empty_slice_is_called_empty(tmp_path: Path) -> None:
    write_series(tmp_path / "case", volume(0), SPACING)[1].write_bytes(b"")
    with user_error(Code.SCAN_DAMAGED, "002.dcm", "empty"):
        read_scan(tmp_path / "case")
