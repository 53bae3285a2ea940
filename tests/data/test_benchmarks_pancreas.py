"""Pancreas-CT: synthetic scans in the layout of the release."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dicom_fakes import write_series
from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.types import Geometry, Matrix
from graftseg.data.benchmarks import pancreas, read_benchmark
from graftseg.data.benchmarks.case_lists import PUBLISHED, read_list
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import identity_settings, prepare
from graftseg.data.scans import write_label, write_scan
from user_errors import user_error

SHAPE = (20, 16, 12)
LPS = (-1.0, -1.0, 1.0)


def affine(directions: tuple[float, ...], spacing: tuple[float, ...]) -> Matrix:
    matrix = np.diag([*(np.array(directions) * np.array(spacing)), 1.0])
    return tuple(tuple(float(value) for value in row) for row in matrix)


def volume(number: int) -> NDArray[np.int16]:
    """Return Hounsfield units with LPS axes."""
    return np.random.default_rng(number).integers(-300, 400, SHAPE).astype(np.int16)


def label(number: int) -> NDArray[np.uint8]:
    labels = np.zeros(SHAPE, np.uint8)
    labels[8:11, 3:6, 4 : 6 + number] = 1
    return labels


def write_dicom(root: Path, number: int, spacing: tuple[float, ...]) -> None:
    folder = root / "Pancreas-CT" / f"PANCREAS_{number:04d}" / "study" / "series"
    write_series(folder, volume(number) + np.int16(1024), spacing, RescaleSlope=1, RescaleIntercept=-1024)


def write_nifti(root: Path, number: int, spacing: tuple[float, ...]) -> None:
    """Write the same scan as NIfTI, with RAS axes."""
    path = root / "images" / f"PANCREAS_{number:04d}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_scan(path, volume(number)[::-1, ::-1], Geometry(SHAPE, affine((1.0, 1.0, 1.0), spacing)))


def write_labels(root: Path, number: int, spacing: tuple[float, ...]) -> None:
    """Write a label map that is flipped from back to front and has another origin than the scan, as in the release."""
    path = root / "TCIA_pancreas_labels-02-05-2017" / f"label{number:04d}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_label(path, label(number)[:, ::-1], Geometry(SHAPE, affine((-1.0, 1.0, 1.0), spacing)))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale margins and sizes down to these small scans."""
    monkeypatch.setattr(pancreas, "MARGIN", 2)
    monkeypatch.setattr(pancreas, "MIN_SIZE", 6)


@pytest.fixture(params=["dicom", "nifti"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "Pancreas"
    for number in (1, 2, 3):
        (write_dicom if request.param == "dicom" else write_nifti)(folder, number, (1.0, 1.0, 2.5))
        write_labels(folder, number, (1.0, 1.0, 1.0))
    (folder / "train.list").write_text("0002\n0001\n")
    (folder / "test.list").write_text("0003\n")
    return folder


def scaled(hu: NDArray[np.int16]) -> NDArray[np.float32]:
    return ((hu.clip(-125, 275).astype(np.float32) + 125) / 400).astype(np.float32)


def test_slice_distance_is_ignored_and_the_crop_follows_the_label(root: Path, tmp_path: Path) -> None:
    store = api.prepare(root, tmp_path / "store", benchmark="pancreas")
    assert store.classes == ("background", "pancreas")
    assert [(case.name, case.split) for case in store.cases] == [
        ("0002", "labeled"),
        ("0001", "labeled"),
        ("0003", "test"),
    ]
    for case in store.cases:
        number = int(case.name)
        # x 8:11 and y 3:6 with a margin of 2; z 4 to 6 + number with the same margin, at least 6
        box = np.s_[6:13, 1:8, 2 : 8 + number]
        np.testing.assert_array_equal(store.image(case)[0], scaled(volume(number))[box].astype(np.float16))
        np.testing.assert_array_equal(store.label(case), label(number)[box])


def test_a_folder_with_release_names_is_recognized(root: Path, tmp_path: Path) -> None:
    for place in (root, root.parent):
        dataset = read_layout(place)
        assert (dataset.layout, dataset.root, len(dataset.cases)) == ("pancreas", root, 3)
    assert read_benchmark("pancreas-62", root.parent).layout == "pancreas-62"


def test_scans_are_resampled_to_one_millimeter(tmp_path: Path) -> None:
    write_dicom(tmp_path, 1, (2.0, 2.0, 0.8))
    write_labels(tmp_path, 1, (2.0, 2.0, 0.8))
    (tmp_path / "train.list").write_text("0001\n")
    (tmp_path / "test.list").write_text("0001\n")
    dataset = read_benchmark("pancreas", tmp_path)
    labels = dataset.reader.label(dataset.cases[0]).array
    # every voxel becomes 2 x 2 x 2: the label has 6 x 6 x 6 voxels, with a margin of 2
    assert labels.shape == (10, 10, 10) and labels.sum() == 6 * 6 * 6 and labels[2:8, 2:8, 2:8].all()
    image = dataset.reader.image(dataset.cases[0]).array
    assert image.shape == (1, 10, 10, 10) and 0 <= image.min() < image.max() <= 1


def test_the_other_protocol_keeps_all_slices_and_standardizes_the_crop(root: Path, tmp_path: Path) -> None:
    store = api.prepare(root, tmp_path / "store", benchmark="pancreas-62")
    case = store.cases[0]
    # x from 8 to 10 has length 2: padding of 2 per side gives 6, then a margin of 2; the last voxel is excluded
    box = np.s_[4:14, 0:9, :]
    crop = scaled(volume(2))[box].astype(np.float64)
    np.testing.assert_allclose(store.image(case)[0], (crop - crop.mean()) / crop.std(), atol=2e-3)
    np.testing.assert_array_equal(store.label(case), label(2)[box])


def test_the_other_protocol_takes_the_spacing_of_the_label_map(tmp_path: Path) -> None:
    write_dicom(tmp_path, 1, (1.0, 1.0, 5.0))
    write_labels(tmp_path, 1, (1.0, 1.0, 2.0))
    (tmp_path / "train.list").write_text("0001\n")
    (tmp_path / "test.list").write_text("0001\n")
    dataset = read_benchmark("pancreas-62", tmp_path)
    assert dataset.reader.image(dataset.cases[0]).geometry.shape == (10, 9, 24)
    assert dataset.reader.label(dataset.cases[0]).geometry.shape == (10, 9, 24)


def test_another_protocol_recreates_the_store(root: Path, tmp_path: Path) -> None:
    first = api.prepare(root, tmp_path / "store", benchmark="pancreas")
    second = api.prepare(root, tmp_path / "store", benchmark="pancreas-62")
    assert first.settings == second.settings and first.identity != second.identity


def test_an_unlabeled_case_is_cropped_and_has_no_label(root: Path, tmp_path: Path) -> None:
    whole = prepare(read_layout(root), tmp_path / "whole", identity_settings(3))
    hidden = prepare(read_layout(root).for_training(1, 0), tmp_path / "hidden", identity_settings(3))
    assert [(case.name, case.split, case.label) for case in hidden.cases][1] == ("0001", "unlabeled", None)
    np.testing.assert_array_equal(hidden.image(hidden.cases[1]), whole.image(whole.cases[1]))


def test_published_lists_are_complete() -> None:
    def numbers(name: str) -> list[int]:
        return [int(entry) for entry in read_list(PUBLISHED / f"{name}.list")]

    assert numbers("pancreas-train") == [*range(1, 25), *range(26, 64)]
    assert numbers("pancreas-test") == [*range(64, 70), *range(71, 83)]
    train, test = numbers("pancreas-62-train"), numbers("pancreas-62-test")
    assert (len(train), len(test)) == (62, 20) and sorted(train + test) == list(range(1, 83))
    assert train[:12] == [57, 18, 62, 31, 20, 17, 32, 79, 61, 64, 70, 19]


def test_published_lists_replace_missing_lists(root: Path) -> None:
    for path in root.glob("*.list"):
        path.unlink()
    dataset = read_layout(root)
    assert [(case.name, case.split) for case in dataset.cases] == [
        ("0001", "labeled"),
        ("0002", "labeled"),
        ("0003", "labeled"),
    ]
    assert len(dataset.problems) == 77
    assert "case 0004 is in the published list" in dataset.problems[0].finding


def test_files_with_other_names_need_the_benchmark_option(tmp_path: Path) -> None:
    write_nifti(tmp_path, 1, (1.0, 1.0, 1.0))
    (tmp_path / "images" / "PANCREAS_0001.nii.gz").rename(tmp_path / "images" / "ct_0001.nii.gz")
    write_labels(tmp_path, 1, (1.0, 1.0, 1.0))
    (tmp_path / "train.list").write_text("image0001\n")
    (tmp_path / "test.list").write_text("image0001\n")
    with user_error(Code.LAYOUT_UNKNOWN, keyword="layout"):
        read_layout(tmp_path)
    assert read_benchmark("pancreas", tmp_path).cases[0].name == "0001"


def test_problems_of_a_folder(root: Path) -> None:
    labels = root / "TCIA_pancreas_labels-02-05-2017"
    (labels / "label0001.nii.gz").rename(labels / "label0003.nii")
    twice, missing = read_layout(root).problems
    assert (twice.code, "label0003.nii and label0003.nii.gz" in twice.finding) == (Code.CASE_DUPLICATE, True)
    assert (missing.code, "label0001.nii.gz" in missing.finding) == (Code.FILE_MISSING, True)
    (root / "train.list").write_text("first\n")
    with user_error(Code.BENCHMARK_MISMATCH, "train.list", "'first'"):
        read_layout(root)


def test_an_empty_label_map_and_one_of_another_scan(root: Path) -> None:
    dataset = read_layout(root)
    case, path = dataset.cases[0], root / "TCIA_pancreas_labels-02-05-2017" / "label0002.nii.gz"
    write_label(path, np.zeros(SHAPE, np.uint8), Geometry(SHAPE, affine(LPS, (1, 1, 1))))
    with user_error(Code.LABELS_EMPTY, keyword="empty"):
        dataset.reader.image(case)
    write_label(path, np.ones((4, 4, 4), np.uint8), Geometry((4, 4, 4), affine(LPS, (1, 1, 1))))
    with user_error(Code.BENCHMARK_MISMATCH, keyword="(4, 4, 4)"):
        dataset.reader.label(case)


def test_folders_with_no_series_or_two(tmp_path: Path) -> None:
    write_dicom(tmp_path, 1, (1.0, 1.0, 1.0))
    write_labels(tmp_path, 1, (1.0, 1.0, 1.0))
    (tmp_path / "train.list").write_text("0001\n")
    (tmp_path / "test.list").write_text("0001\n")
    folder = tmp_path / "Pancreas-CT" / "PANCREAS_0001"
    write_series(folder / "study" / "other", volume(1)[:, :, :1], (1.0, 1.0, 1.0))
    with user_error(Code.BENCHMARK_MISMATCH, keyword="two series"):
        read_layout(tmp_path)
    for path in folder.rglob("*.dcm"):
        path.unlink()
    with user_error(Code.BENCHMARK_MISMATCH, keyword="no .dcm file"):
        read_layout(tmp_path)


def test_a_volume_of_several_channels(root: Path) -> None:
    dataset = read_layout(root)
    case = dataset.cases[0]
    path = root / "four.nii.gz"
    write_scan(path, np.zeros((2, *SHAPE), np.int16), Geometry(SHAPE, affine(LPS, (1, 1, 1))))
    broken = type(case)(case.name, (path, case.images[-1]), case.label, case.split)
    with user_error(Code.BENCHMARK_MISMATCH, keyword="one channel"):
        dataset.reader.image(broken)
