from pathlib import Path

import numpy as np
import pytest
from check_fakes import Array, geometry, image, label, make_scans
from PIL import Image

from graftseg.core.errors import Code
from graftseg.core.types import Case
from graftseg.data.check import Finding, check
from graftseg.data.dataset import Dataset
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, read_scan, write_scan
from graftseg.data.swapped import read_label_of
from user_errors import user_error

WHAT = "the label map looks like an image, and its image looks like a label map"
REMEDY = "if the folders imagesTr and labelsTr are swapped, exchange their names"


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


def test_an_image_with_few_values_is_valid(tmp_path: Path) -> None:
    classes = np.arange(1024).reshape(16, 16, 4) % 33
    assert read_label_of(*one_case(tmp_path, label(1, 2), classes.astype(np.uint8))).array.max() == 32


def test_fractions_in_the_label_map_of_an_image_are_their_own_error(tmp_path: Path) -> None:
    with user_error(Code.LABEL_INVALID, "labelsTr", "not an integer"):
        read_label_of(*one_case(tmp_path, image(0), label(1, 2) / 2))
