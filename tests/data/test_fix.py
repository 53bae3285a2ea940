import json
import os
from pathlib import Path

import nibabel
import numpy as np
import pytest
from check_fakes import SHAPE, geometry, image, label, make_scans, put
from PIL import Image

from graftseg.core.errors import Code
from graftseg.data import fix
from graftseg.data.check import check, examine
from graftseg.data.fix import FixedCopy, write_fixed_copy
from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_geometry, read_label, read_scan, write_scan
from user_errors import user_error


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_scans(tmp_path / "data")


def fixed_copy(root: Path, out: Path) -> FixedCopy:
    dataset = read_layout(root)
    return write_fixed_copy(dataset, examine(dataset, workers=1).fingerprint, out)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_label_gets_the_geometry_of_its_image_and_keeps_its_voxels(root: Path, tmp_path: Path) -> None:
    voxels = label(1, 2, 2).astype(np.int16)
    write_scan(root / "labelsTr/l1.nii.gz", voxels, geometry(origin=0.05))
    before = tree(root)
    done = fixed_copy(root, tmp_path / "out")
    assert "differed by 0.050 voxels" in done.files["labelsTr/l1.nii.gz"] and len(done.files) == 1
    assert (done.values, done.left, done.unchanged) == ({}, (), 9)
    assert tree(root) == before
    after = read_scan(tmp_path / "out/labelsTr/l1.nii.gz")
    assert after.array.dtype == np.int16 and np.array_equal(after.array[0], voxels)
    assert after.geometry == read_geometry(root / "imagesTr/l1.nii.gz")
    assert np.array_equal(nibabel.load(tmp_path / "out/labelsTr/l1.nii.gz").affine, np.eye(4))
    assert check(read_layout(tmp_path / "out")) == []
    others = {name: content for name, content in tree(tmp_path / "out").items() if name in before}
    assert {name for name in before if others[name] != before[name]} == {"labelsTr/l1.nii.gz"}
    assert json.loads((tmp_path / "out/mended.json").read_text())["files"] == done.files


def test_a_channel_gets_the_geometry_of_the_first(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for number in range(2):
        put(root, f"imagesTr/l{number}_0000", image(number))
        put(root, f"imagesTr/l{number}_0001", image(50 + number), geometry(origin=0.05 * number))
        put(root, f"labelsTr/l{number}", label(1, 2))
    (found,) = check(read_layout(root))
    assert (found.severity, found.where) == ("error", "imagesTr/l1_0001.nii.gz")
    assert "--fix OUT" in found.remedy
    done = fixed_copy(root, tmp_path / "out")
    assert list(done.files) == ["imagesTr/l1_0001.nii.gz"]
    assert check(read_layout(tmp_path / "out")) == []
    after = read_scan(tmp_path / "out/imagesTr/l1_0001.nii.gz")
    assert np.array_equal(after.array, read_scan(root / "imagesTr/l1_0001.nii.gz").array)


def test_a_real_shift_is_not_fixed(root: Path, tmp_path: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.11))
    assert fixed_copy(root, tmp_path / "out").folder is None
    assert not (tmp_path / "out").exists()


def test_gaps_are_closed_in_labels_and_list(root: Path, tmp_path: Path) -> None:
    listed = {"name": "x", "labels": {"background": 0, "liver": 2, "tumour": 5}}
    (root / "dataset.json").write_text(json.dumps(listed))
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(2, 0, 5, 5) if number else label())
    done = fixed_copy(root, tmp_path / "out")
    assert done.values == {2: 1, 5: 2}
    assert done.classes == {0: "background", 1: "liver", 2: "tumour"}
    assert sorted(done.files) == ["labelsTr/l1.nii.gz", "labelsTr/l2.nii.gz"]
    assert done.files["labelsTr/l1.nii.gz"] == "new label values: 2 -> 1, 5 -> 2"
    written = json.loads((tmp_path / "out/dataset.json").read_text())
    assert written == listed | {"labels": {"background": 0, "liver": 1, "tumour": 2}}
    assert np.array_equal(read_label(tmp_path / "out/labelsTr/l1.nii.gz").array, label(1, 0, 2, 2))
    assert not [finding for finding in check(read_layout(tmp_path / "out")) if finding.severity == "error"]


def test_a_list_by_value_keeps_its_form(root: Path, tmp_path: Path) -> None:
    (root / "dataset.json").write_text('{"labels": {"0": "background", "1": "liver", "3": "tumour"}}')
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(1, 3))
    fixed_copy(root, tmp_path / "out")
    written = json.loads((tmp_path / "out/dataset.json").read_text())
    assert written == {"labels": {"0": "background", "1": "liver", "2": "tumour"}}


def test_masks_become_0_and_1_with_the_geometry_of_the_image(root: Path, tmp_path: Path) -> None:
    (root / "dataset.json").unlink()
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(0, 255), geometry(origin=0.05))
    done = fixed_copy(root, tmp_path / "out")
    assert (done.values, done.classes) == ({255: 1}, {})
    assert not (tmp_path / "out/dataset.json").exists()
    assert np.array_equal(read_label(tmp_path / "out/labelsTr/l0.nii.gz").array, label(0, 1))
    assert check(read_layout(tmp_path / "out")) == []


@pytest.mark.parametrize(("ending", "now"), [("png", ""), ("tif", "; written as a.nii.gz")])
def test_png_masks_stay_png_and_tiff_masks_become_nifti(tmp_path: Path, ending: str, now: str) -> None:
    """Rows and columns are unchanged, and the copy is a valid data set."""
    pixels = np.zeros((20, 30), np.uint8)
    pixels[2:5, 20:28] = 255
    for folder, content in (("imagesTr", image(1, (20, 30)).astype(np.uint8)), ("labelsTr", pixels)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        Image.fromarray(content).save(tmp_path / "data" / folder / f"a.{ending if folder == 'labelsTr' else 'png'}")
    done = fixed_copy(tmp_path / "data", tmp_path / "out")
    assert done.files == {f"labelsTr/a.{ending}": f"new label values: 255 -> 1{now}"}
    (written,) = (tmp_path / "out/labelsTr").iterdir()
    assert written.name == ("a.nii.gz" if now else "a.png")
    np.testing.assert_array_equal(read_label(written).array, (pixels == 255).T)
    if not now:
        np.testing.assert_array_equal(np.array(Image.open(written)), pixels == 255)
    assert [finding for finding in check(read_layout(tmp_path / "out")) if finding.severity == "error"] == []


def test_values_are_not_renumbered_if_a_label_map_is_unreadable(root: Path, tmp_path: Path) -> None:
    (root / "dataset.json").unlink()
    put(root, "labelsTr/l0", label(0, 7))
    (root / "labelsTr/l1.nii.gz").write_bytes(b"garbage")
    put(root, "labelsTr/l2", label(0, 7), geometry(origin=0.05))
    done = fixed_copy(root, tmp_path / "out")
    assert done.left == ("label values are not renumbered because the label map of l1 cannot be read",)
    assert list(done.files) == ["labelsTr/l2.nii.gz"]
    assert read_label(tmp_path / "out/labelsTr/l2.nii.gz").array.max() == 7
    assert (tmp_path / "out/labelsTr/l1.nii.gz").read_bytes() == b"garbage"


def test_unchanged_files_are_links_or_copies(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.05))
    fixed_copy(root, tmp_path / "linked")
    assert (tmp_path / "linked/imagesUn/u0.nii.gz").samefile(root / "imagesUn/u0.nii.gz")

    def refuse(*_: object) -> None:
        raise OSError(18, "another disk")

    monkeypatch.setattr(os, "link", refuse)
    fixed_copy(root, tmp_path / "copied")
    assert tree(tmp_path / "copied") == tree(tmp_path / "linked")
    assert not (tmp_path / "copied/imagesUn/u0.nii.gz").samefile(root / "imagesUn/u0.nii.gz")


def test_a_folder_that_is_a_link_is_followed(root: Path, tmp_path: Path) -> None:
    (root / "imagesUn").rename(tmp_path / "elsewhere")
    (root / "imagesUn").symlink_to(tmp_path / "elsewhere")
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.05))
    fixed_copy(root, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out/imagesUn").iterdir()) == [f"u{n}.nii.gz" for n in range(3)]


def test_an_interrupted_copy_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.05))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fix, "_write", fail)
    with pytest.raises(KeyboardInterrupt):
        fixed_copy(root, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


@pytest.mark.parametrize(("name", "code"), [("data/out", Code.UNSAFE_TARGET), ("full", Code.TARGET_EXISTS)])
def test_refused_targets(root: Path, tmp_path: Path, name: str, code: Code) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").touch()
    before = tree(tmp_path)
    with user_error(code, tmp_path / name):
        fixed_copy(root, tmp_path / name)
    assert tree(tmp_path) == before


def test_an_empty_folder_is_a_valid_target(root: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.05))
    assert fixed_copy(root, tmp_path / "out").folder == tmp_path / "out"
    assert read_label(tmp_path / "out/labelsTr/l1.nii.gz").array.shape == SHAPE
