from pathlib import Path

import pytest
from check_fakes import check, image, label, put

from graftseg.data.check import Finding, examine
from graftseg.data.fix import write_fixed_copy
from graftseg.data.labels import MEANS_ONE
from graftseg.data.layouts import read_layout


def about_value_255(root: Path) -> Finding:
    (finding,) = [finding for finding in check(read_layout(root), workers=1) if finding.severity == "error"]
    assert finding.cases == ("l1",)
    return finding


@pytest.mark.parametrize("has_list", [True, False])
def test_one_label_map_with_255_instead_of_1(root: Path, has_list: bool) -> None:
    put(root, "labelsTr/l1", label(255, 2))
    if not has_list:
        (root / "dataset.json").unlink()
    assert about_value_255(root).remedy == MEANS_ONE


@pytest.mark.parametrize("has_list", [True, False])
def test_the_fixed_copy_gives_the_same_advice(root: Path, tmp_path: Path, has_list: bool) -> None:
    put(root, "labelsTr/l1", label(255, 2))
    if not has_list:
        (root / "dataset.json").unlink()
    dataset = read_layout(root)
    done = write_fixed_copy(dataset, examine(dataset, workers=1).fingerprint, tmp_path / "out")
    (reason,) = done.left
    assert (done.folder, done.values) == (None, {})
    assert "set 255 to 1" in reason and "to 0" not in reason


def test_255_that_means_1_is_no_class_to_test(root: Path) -> None:
    (root / "dataset.json").unlink()
    put(root, "labelsTr/l1", label(255, 2))
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(1, 2))
    assert [finding.remedy for finding in check(read_layout(root), workers=1)] == [MEANS_ONE]


@pytest.mark.parametrize("values", [(255, 1, 2), (255,)])
def test_255_may_be_another_class(root: Path, values: tuple[int, ...]) -> None:
    put(root, "labelsTr/l1", label(*values))
    if values == (255,):
        put(root, "labelsTr/l2", label(2))  # another label map without 1
    assert about_value_255(root).remedy == "name the value in dataset.json or correct the label map"


def test_an_empty_label_map_does_not_matter(root: Path) -> None:
    put(root, "labelsTr/l1", label(255, 2))
    put(root, "labelsTr/l2", label())
    put(root, "imagesTr/l3", image(3))
    put(root, "labelsTr/l3", label(1))
    assert about_value_255(root).remedy == MEANS_ONE
