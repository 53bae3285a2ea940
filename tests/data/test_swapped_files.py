import shutil
from pathlib import Path

import numpy as np
import pytest
from check_fakes import Array, check, geometry, image, label, make_scans, put
from PIL import Image

from graftseg.core.errors import Code
from graftseg.core.types import Case
from graftseg.data.check import Finding
from graftseg.data.dataset import Dataset
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, read_scan, write_scan
from graftseg.data.swapped_files import looks_like_labels, read_label_of
from user_errors import user_error

WHAT = "the label map looks like an image, and its image looks like a label map"
REMEDY = "exchange these two files, or the names of the folders imagesTr and labelsTr if all pairs are swapped"
FOLDERS_REMEDY = "if the folders imagesTr and labelsTr are swapped, exchange their names"


def findings(root: Path) -> list[Finding]:
    return check(read_layout(root), workers=1)


def one_case(root: Path, voxels: Array, labels: Array) -> tuple[Dataset, Case, Scan]:
    for folder, array in (("imagesTr", voxels), ("labelsTr", labels)):
        (root / folder).mkdir()
        write_scan(root / folder / "a.nii.gz", array, geometry())
    dataset = read_layout(root)
    return dataset, dataset.cases[0], read_scan(dataset.cases[0].images[0])


def test_swapped_pictures_are_one_kind_of_error(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for folder, top in (("imagesTr", 3), ("labelsTr", 200)):
        (tmp_path / folder).mkdir()
        for number in range(6):
            picture = draw.integers(0, top, (20, 24)).astype(np.uint8)
            Image.fromarray(picture).save(tmp_path / folder / f"s{number}.png")
    (finding,) = findings(tmp_path)
    assert (finding.severity, finding.what, finding.size, finding.remedy) == ("error", WHAT, "6 files", REMEDY)
    assert finding.where == "labelsTr/s0.png and 5 more"


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_swapped_volumes(tmp_path: Path, scale: float) -> None:
    """Images with negative values, and with fractions."""
    make_scans(tmp_path)
    for number in range(3):
        write_scan(tmp_path / f"labelsTr/l{number}.nii.gz", (image(number) - 100).round() * scale, geometry())
        write_scan(tmp_path / f"imagesTr/l{number}.nii.gz", label(1, 1, 2), geometry())
    assert [finding.what for finding in findings(tmp_path) if finding.severity == "error"] == [WHAT] * 3


def test_one_swapped_pair_is_exchanged_before_the_folders(tmp_path: Path) -> None:
    make_scans(tmp_path)
    write_scan(tmp_path / "labelsTr/l1.nii.gz", image(1).round(), geometry())
    write_scan(tmp_path / "imagesTr/l1.nii.gz", label(1, 1, 2), geometry())
    assert errors(tmp_path) == [("labelsTr/l1.nii.gz", WHAT, REMEDY)]


@pytest.fixture
def tested(tmp_path: Path) -> Path:
    """Return a data set with three test scans. All images have channel numbers."""
    make_scans(tmp_path)
    for folder in ("imagesTr", "imagesUn"):
        for path in (tmp_path / folder).iterdir():
            path.rename(path.with_name(path.name.replace(".nii", "_0000.nii")))
    for number in range(3):
        put(tmp_path, f"imagesTs/t{number}_0000", image(20 + number))
        put(tmp_path, f"labelsTs/t{number}", label(1, 1, 2))
    return tmp_path


def without_numbers(root: Path) -> None:
    for path in root.glob("images*/*"):
        path.rename(path.with_name(path.name.replace("_0000", "")))


def swap_tests(root: Path) -> None:
    (root / "imagesTs").rename(root / "images")
    (root / "labelsTs").rename(root / "imagesTs")
    (root / "images").rename(root / "labelsTs")


def errors(root: Path) -> list[tuple[str, str, str]]:
    return [(one.where, one.what, one.remedy) for one in findings(root) if one.severity == "error"]


def test_swapped_test_folders(tested: Path) -> None:
    without_numbers(tested)
    swap_tests(tested)
    remedy = REMEDY.replace("Tr", "Ts")
    assert errors(tested) == [(f"labelsTs/t{number}.nii.gz", WHAT, remedy) for number in range(3)]


def test_swapped_test_folders_are_recognized_by_channel_numbers(tested: Path) -> None:
    """All names are wrong, but there is one error."""
    swap_tests(tested)
    ((where, what, remedy),) = errors(tested)
    assert (where, remedy) == ("labelsTs/t0_0000.nii.gz", FOLDERS_REMEDY.replace("Tr", "Ts"))
    assert what.startswith("the label maps have a channel number")


def test_two_exchanged_files_are_recognized_by_channel_numbers(tested: Path) -> None:
    (tested / "imagesTs/t0_0000.nii.gz").rename(tested / "labelsTs/t0_0000.nii.gz")
    (tested / "labelsTs/t0.nii.gz").rename(tested / "imagesTs/t0.nii.gz")
    ((where, what, _),) = errors(tested)
    assert (where, what.split(" have ")[0]) == ("labelsTs/t0_0000.nii.gz", "1 of 3 label maps")


@pytest.mark.parametrize("scale", [1.0, 0.01], ids=["integers", "fractions"])
def test_images_in_both_test_folders(tested: Path, scale: float) -> None:
    without_numbers(tested)
    for number in range(3):
        voxels = image(20 + number).round() * np.float32(scale)
        write_scan(tested / f"imagesTs/t{number}.nii.gz", voxels, geometry())
        write_scan(tested / f"labelsTs/t{number}.nii.gz", voxels, geometry())
    assert [what for _, what, _ in errors(tested)] == ["the label map has the voxels of its image"] * 3


def test_numbered_images_in_both_test_folders(tested: Path) -> None:
    shutil.copy(tested / "imagesTs/t0_0000.nii.gz", tested / "labelsTs")
    assert errors(tested) == [
        (
            "labelsTs/t0_0000.nii.gz",
            "the label map has the name of an image in imagesTs",
            "remove it, and put the label map t0 into labelsTs",
        )
    ]


def test_label_maps_between_test_images(tested: Path) -> None:
    without_numbers(tested)
    for number in range(3):
        (tested / f"labelsTs/t{number}.nii.gz").rename(tested / f"imagesTs/t{number}_seg.nii.gz")
    found = [one for one in findings(tested) if one.what == "the image looks like a label map"]
    assert [(one.severity, one.where) for one in found] == [("warning", f"t{number}_seg") for number in range(3)]


def test_images_with_few_values_are_no_finding(tested: Path) -> None:
    """All images of the data set have few values."""
    for path in tested.glob("images*/*"):
        write_scan(path, label(1, 2, 3, 4), geometry())
    assert "the image looks like a label map" not in [one.what for one in findings(tested)]


def test_reading_refuses_an_image_in_place_of_a_label_map(tmp_path: Path) -> None:
    dataset, case, scan = one_case(tmp_path, label(1, 2), image(0).round())
    with user_error(Code.LABEL_INVALID, case.label or "", f"{WHAT}; {REMEDY}"):
        read_label_of(dataset, case, scan)


@pytest.mark.parametrize(
    "voxels", [image(1), image(1).round() - 300, image(1).round()], ids=["float", "ct", "integers"]
)
def test_many_classes_are_valid(tmp_path: Path, voxels: Array) -> None:
    classes = np.arange(1024).reshape(16, 16, 4) % 105
    assert read_label_of(*one_case(tmp_path, voxels, classes.astype(np.uint8))).array.max() == 104


def test_rounding_errors_do_not_hide_a_label_map() -> None:
    labels = label(1, 2).astype(np.float32)
    assert looks_like_labels(Scan(labels[None] * np.float32(1.0000001), geometry()))
    assert not looks_like_labels(Scan(labels[None] * np.float32(1.01), geometry()))


def test_an_image_with_few_values_is_valid(tmp_path: Path) -> None:
    classes = np.arange(1024).reshape(16, 16, 4) % 33
    assert read_label_of(*one_case(tmp_path, label(1, 2), classes.astype(np.uint8))).array.max() == 32


def test_fractions_in_the_label_map_of_an_image_are_their_own_error(tmp_path: Path) -> None:
    with user_error(Code.LABEL_INVALID, "labelsTr", "not an integer"):
        read_label_of(*one_case(tmp_path, image(0), label(1, 2) / 2))
