"""Findings about files and folders that are not used, and about images without a label map."""

from pathlib import Path

import numpy as np
import pytest
from check_fakes import check, geometry, image, label, put
from PIL import Image

from dicom_fakes import write_series
from graftseg.core.errors import Code
from graftseg.data.check import Finding
from graftseg.data.layouts import read_layout
from user_errors import user_error


def only(root: Path) -> Finding:
    (finding,) = check(read_layout(root), workers=1)
    return finding


def picture(path: Path, top: int = 200) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, top, (20, 24)).astype(np.uint8)).save(path)


def test_an_image_whose_label_map_is_missing(root: Path) -> None:
    put(root, "imagesTr/l3", image(3))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "l3", "1 of 4 images")
    assert finding.what == "images in imagesTr have no label map, so they are used as unlabeled scans"
    put(root, "imagesTr/l4", image(4))
    put(root, "imagesTr/l5", image(5))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("note", "l3 and 2 more", "3 of 6 images")
    assert finding.cases == ("l3", "l4", "l5")


def test_a_label_map_without_an_image_does_not_hide_an_image_without_a_label_map(root: Path) -> None:
    put(root, "imagesTr/l3", image(3))
    put(root, "labelsTr/other", label(1, 1, 2))
    found = check(read_layout(root), workers=1)
    assert [(one.severity, one.where) for one in found] == [("error", "labelsTr/other.nii.gz"), ("warning", "l3")]
    assert (found[1].size, found[1].cases) == ("1 of 4 images", ("l3",))


def test_a_label_map_of_an_unlabeled_image_does_not_make_the_others_missing(root: Path) -> None:
    put(root, "labelsTr/u0", label(1, 1, 2))
    assert check(read_layout(root), workers=1) == []


def test_a_test_scan_whose_label_map_is_missing(root: Path) -> None:
    for number in range(2):
        put(root, f"imagesTs/t{number}", image(20 + number))
    assert check(read_layout(root), workers=1) == []
    put(root, "labelsTs/t0", label(1, 1, 2))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "t1", "1 of 2 images")
    assert "graftseg test" in finding.remedy


@pytest.mark.parametrize(
    ("channels", "remedy"),
    [(1, "rename foo.nii.gz to foo_0000.nii.gz"), (2, "name the channels CASE_0000, CASE_0001, ...")],
)
def test_a_scan_without_a_channel_number(tmp_path: Path, channels: int, remedy: str) -> None:
    for channel in range(channels):
        put(tmp_path, f"imagesTr/l0_{channel:04d}", image(channel))
    put(tmp_path, "labelsTr/l0", label(1))
    put(tmp_path, "imagesUn/foo", image(3))
    (problem,) = read_layout(tmp_path).problems
    assert (problem.code, problem.where) == (Code.CASE_NAME, str(tmp_path / "imagesUn/foo.nii.gz"))
    assert problem.remedy == remedy


def test_a_misspelled_folder_of_label_maps(root: Path) -> None:
    for number in range(3):
        put(root, f"labelsTS/t{number}", label(1))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("error", "labelsTS", "3 files")
    assert finding.what == "the label maps in this folder are not used, because of its name"
    assert finding.remedy == "rename the folder to labelsTs"


def test_an_unknown_folder_of_label_maps(root: Path) -> None:
    for number in range(3):
        put(root, f"labelsOld/t{number}", label(1))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "labelsOld", "3 label maps")
    assert finding.remedy == "label maps belong in labelsTr or labelsTs"


def test_an_unknown_folder_of_scans(root: Path) -> None:
    (root / "imagesUn").rename(root / "unlabeled")
    (root / "notes").mkdir()
    (root / "notes/readme.txt").touch()
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "unlabeled", "3 scans")
    assert "imagesUn" in finding.remedy
    (root / "unlabeled/manifest.json").touch()
    assert check(read_layout(root), workers=1) == []


@pytest.mark.parametrize(
    ("name", "other"), [("imagesUn", "ImagesUn"), ("labelsTs", "LabelsTs"), ("labelsTs", "labels_ts")]
)
def test_a_folder_whose_name_is_written_differently(root: Path, name: str, other: str) -> None:
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(1, 2))
    (root / name).rename(root / other)
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", other)
    assert finding.remedy == f"rename the folder to {name}"


def test_training_folders_whose_names_are_written_differently(root: Path) -> None:
    (root / "labelsTr").rename(root / "LabelsTr")
    with user_error(Code.LAYOUT_UNKNOWN, root / "LabelsTr", "labelsTr"):
        read_layout(root)
    (root / "imagesTr").rename(root / "ImagesTr")
    with user_error(Code.LAYOUT_UNKNOWN, root, "rename the folder ImagesTr to imagesTr"):
        read_layout(root)


def test_the_right_folder_exists_too(root: Path) -> None:
    put(root, "ImagesUn/other", image(20))
    assert only(root).remedy == "move the scans into imagesUn"


def test_scans_in_a_subfolder(root: Path) -> None:
    (root / "imagesUn").rename(root / "sub")
    (root / "imagesUn").mkdir()
    (root / "sub").rename(root / "imagesUn/sub")
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "imagesUn/sub", "3 scans")
    assert finding.remedy == "move the scans up into imagesUn, and remove the subfolder"


def test_a_series_of_slices_is_not_a_subfolder_of_scans(root: Path) -> None:
    write_series(root / "imagesUn/case", image(9).astype(np.int16), (1.0, 1.0, 1.0))
    assert all("subfolder" not in finding.what for finding in check(read_layout(root), workers=1))


@pytest.mark.parametrize("folder", ["imagesTr", "labelsTr"])
def test_all_files_in_a_subfolder(root: Path, folder: str) -> None:
    (root / folder).rename(root / "sub")
    (root / folder).mkdir()
    (root / "sub").rename(root / folder / "sub")
    with user_error(Code.NOT_A_SCAN, folder, f"the scans are in the subfolder sub; move the scans up into {folder}"):
        read_layout(root)


def test_unreadable_images_come_before_similar_names(tmp_path: Path) -> None:
    for number in range(2):
        picture(tmp_path / f"imagesTr/labeled{number}.gif")
        picture(tmp_path / f"labelsTr/labeled{number}.png", 2)
        picture(tmp_path / f"imagesUn/unlabeled{number}.png")
    with user_error(Code.NOT_A_SCAN, "imagesTr", "contains 2 .gif files, which cannot be read"):
        read_layout(tmp_path)
    (tmp_path / "imagesTr/labeled0.gif").unlink()
    picture(tmp_path / "imagesTr/labeled0.png")
    (problem,) = read_layout(tmp_path).problems
    assert (problem.code, problem.finding) == (Code.LABEL_UNMATCHED, "its image labeled1.gif cannot be read")
    assert "convert to .png" in problem.remedy


def test_names_of_another_folder_are_not_suggested_if_nothing_is_labeled(tmp_path: Path) -> None:
    for name in ("imagesTr/other", "imagesUn/unlabeled000", "labelsTr/labeled000"):
        put(tmp_path, name, label(1))
    with user_error(Code.TOO_FEW_CASES) as caught:
        read_layout(tmp_path)
    assert "did you mean" not in caught.value.finding


def test_swapped_folders_with_channel_numbers(tmp_path: Path) -> None:
    put(tmp_path, "imagesTr/a", label(1))
    put(tmp_path, "imagesUn/b_0000", image(1))
    (tmp_path / "labelsTr").mkdir()
    (tmp_path / "imagesUn/b_0000.nii.gz").rename(tmp_path / "labelsTr/a_0000.nii.gz")
    put(tmp_path, "imagesUn/b_0000", image(2))
    with user_error(Code.TOO_FEW_CASES, keyword="exchange imagesTr and labelsTr if they are swapped"):
        read_layout(tmp_path)


def test_exchanged_rows_and_columns(tmp_path: Path) -> None:
    for number in range(2):
        picture(tmp_path / f"imagesTr/s{number}.png", 200 - number)
        picture(tmp_path / f"labelsTr/s{number}.png", 2)
    mask = Image.open(tmp_path / "labelsTr/s1.png")
    mask.transpose(Image.Transpose.TRANSPOSE).save(tmp_path / "labelsTr/s1.png")
    (error,) = (finding for finding in check(read_layout(tmp_path), workers=1) if finding.severity == "error")
    assert (error.what, error.where) == ("rows and columns of the label map look exchanged", "s1")


def test_exchanged_axes_of_a_volume(root: Path) -> None:
    put(root, "labelsTr/l1", np.moveaxis(label(1, 1, 2), 2, 0), geometry((4, 16, 16), origin=40.0))
    assert only(root).what == "the axes of the label map look exchanged"


def test_a_folder_with_only_test_scans(tmp_path: Path) -> None:
    put(tmp_path, "imagesTs/t0", image(0))
    put(tmp_path, "labelsTs/t0", label(1))
    with user_error(Code.LAYOUT_UNKNOWN, tmp_path, "imagesTr is missing"):
        read_layout(tmp_path)
