import json
import os
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from check_fakes import SHAPE, Array, check, geometry, image, label, put
from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform
from PIL import Image

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data import fix
from graftseg.data.check import examine
from graftseg.data.fix import FixedCopy, find_broken, write_fixed_copy
from graftseg.data.grid import lossless_reorientation
from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_geometry, read_label, read_scan, write_scan
from user_errors import user_error


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


def test_a_header_and_its_voxels_become_one_file(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for number in range(2):
        put(root, f"imagesTr/l{number}", image(number))
        (root / "labelsTr").mkdir(exist_ok=True)
        voxels = 2 * label(1).astype(np.uint8)
        header = f"NDims = 3\nDimSize = {' '.join(map(str, SHAPE))}\nElementType = MET_UCHAR\n"
        (root / f"labelsTr/l{number}.mhd").write_text(f"{header}ElementDataFile = l{number}.raw\n")
        (root / f"labelsTr/l{number}.raw").write_bytes(voxels.tobytes("F"))
    done = fixed_copy(root, tmp_path / "out")
    assert (len(done.files), done.unchanged) == (2, 2)
    assert sorted(path.name for path in (tmp_path / "out/labelsTr").iterdir()) == ["l0.nii.gz", "l1.nii.gz"]
    np.testing.assert_array_equal(read_label(tmp_path / "out/labelsTr/l1.nii.gz").array, label(1))


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


def turned(array: Array, where: Geometry, codes: str) -> tuple[Array, Geometry]:
    """Return the same volume in another orientation, with nibabel as an independent implementation."""
    source = nibabel.Nifti1Image(np.asarray(array, np.uint8), where.matrix)
    target = source.as_reoriented(ornt_transform(io_orientation(source.affine), axcodes2ornt(codes)))
    affine = tuple(tuple(row) for row in target.affine.tolist())
    return np.asarray(target.dataobj), Geometry(target.shape, affine)


@pytest.mark.parametrize("codes", ["LAS", "LPS", "SAR", "PIL"])
def test_a_mirrored_or_turned_label_gets_the_orientation_of_its_image(root: Path, tmp_path: Path, codes: str) -> None:
    voxels = np.random.default_rng(4).integers(0, 3, SHAPE).astype(np.uint8)
    put(root, "labelsTr/l1", *turned(voxels, geometry(), codes))
    found = [one for one in check(read_layout(root)) if one.severity == "error"]
    assert [(one.where, one.fixed_by) for one in found] == [("l1", "--fix")]
    before = tree(root)
    done = fixed_copy(root, tmp_path / "out")
    assert done.files["labelsTr/l1.nii.gz"].startswith(f"axes turned from {codes} to RAS") and len(done.files) == 1
    after = read_label(tmp_path / "out/labelsTr/l1.nii.gz")
    assert np.array_equal(after.array, voxels)
    assert after.geometry == read_geometry(root / "imagesTr/l1.nii.gz")
    assert tree(root) == before
    assert not [one for one in check(read_layout(tmp_path / "out")) if one.severity == "error"]


@pytest.mark.parametrize(("codes", "has_two_fixes"), [("LAS", True), ("SAR", False)])
def test_a_turned_label_may_have_a_wrong_header(root: Path, tmp_path: Path, codes: str, has_two_fixes: bool) -> None:
    """The header of the image can be copied if the shapes are equal."""
    put(root, "labelsTr/l1", *turned(label(1, 2), geometry(), codes))
    (found,) = [one for one in check(read_layout(root)) if one.severity == "error"]
    change = fixed_copy(root, tmp_path / "out").files["labelsTr/l1.nii.gz"]
    for text in (found.remedy, change):
        assert "if the header of the label map is right" in text
        assert ("copy the header of the image" in text) is has_two_fixes


def test_a_mirrored_label_also_gets_new_values(root: Path, tmp_path: Path) -> None:
    (root / "dataset.json").unlink()
    for number in range(3):
        put(root, f"labelsTr/l{number}", *turned(label(0, 7), geometry(), "LPI"))
    fixed_copy(root, tmp_path / "out")
    assert np.array_equal(read_label(tmp_path / "out/labelsTr/l2.nii.gz").array, label(0, 1))


def test_an_uncertain_orientation_is_not_fixed(root: Path, tmp_path: Path) -> None:
    """The grid is at another place, or the file does not define its orientation."""
    voxels, where = turned(label(1, 2), geometry(), "LAS")
    put(root, "labelsTr/l0", voxels, Geometry(where.shape, geometry(origin=0.2).affine))
    put(root, "labelsTr/l1", voxels, replace(where, affine=((-1.0, 0.0, 0.0, 3.0), *where.affine[1:])))
    assert fixed_copy(root, tmp_path / "out").folder is None
    assert lossless_reorientation(where, geometry(), 0.1) is not None
    assert lossless_reorientation(replace(where, qform_code=0, sform_code=0), geometry(), 0.1) is None


def drop(root: Path, out: Path) -> FixedCopy:
    dataset = read_layout(root)
    seen = examine(dataset, workers=1)
    return write_fixed_copy(dataset, seen.fingerprint, out, find_broken(dataset, seen.findings))


def test_broken_cases_are_left_out(root: Path, tmp_path: Path) -> None:
    listed = [{"image": f"imagesTr/l{n}.nii.gz", "label": f"labelsTr/l{n}.nii.gz"} for n in range(4)]
    content = json.loads((root / "dataset.json").read_text()) | {"training": listed, "numTraining": 4}
    (root / "dataset.json").write_text(json.dumps(content))
    (root / "labelsTr/l0.nii.gz").write_bytes(b"")
    (root / "imagesUn/u1.nii.gz").write_bytes(b"garbage")
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.05))
    put(root, "labelsTr/orphan", label(1))
    (root / "imagesTr/notes.txt").touch()
    (root / "LICENSE").touch()
    before = tree(root)
    done = drop(root, tmp_path / "out")
    assert sorted(done.dropped) == ["dataset.json", "l0", "labelsTr/orphan.nii.gz", "u1"]
    assert "empty" in done.dropped["l0"]
    assert list(done.files) == ["labelsTr/l1.nii.gz"]
    kept = ["l1", "l2", "l1", "l2", "u0", "u2"]
    folders = ["imagesTr", "imagesTr", "labelsTr", "labelsTr", "imagesUn", "imagesUn"]
    scans = {f"{folder}/{name}.nii.gz" for folder, name in zip(folders, kept, strict=True)}
    assert set(tree(tmp_path / "out")) == scans | {"LICENSE", "dataset.json", "mended.json"}
    written = json.loads((tmp_path / "out/dataset.json").read_text())
    assert written == content | {"training": listed[1:3], "numTraining": 2}
    assert check(read_layout(tmp_path / "out")) == []
    assert tree(root) == before


def test_values_are_renumbered_once_unreadable_label_maps_are_left_out(root: Path, tmp_path: Path) -> None:
    (root / "dataset.json").unlink()
    for number in range(2):
        put(root, f"labelsTr/l{number}", label(0, 7))
    (root / "labelsTr/l2.nii.gz").write_bytes(b"garbage")
    done = drop(root, tmp_path / "out")
    assert (done.values, done.left, sorted(done.dropped)) == ({7: 1}, (), ["l2"])


def test_copies_and_a_valid_data_set_are_not_left_out(root: Path, tmp_path: Path) -> None:
    assert drop(root, tmp_path / "none").folder is None
    put(root, "imagesTs/t0", image(0))
    assert drop(root, tmp_path / "out").folder is None


def test_not_all_labeled_cases_are_left_out(root: Path, tmp_path: Path) -> None:
    for number in range(3):
        (root / f"labelsTr/l{number}.nii.gz").write_bytes(b"garbage")
    with user_error(Code.TOO_FEW_CASES, root, "--drop"):
        drop(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_both_files_of_a_case_with_two_files_are_left_out(root: Path, tmp_path: Path) -> None:
    write_scan(root / "imagesUn/u0.nii", image(77), geometry())
    done = drop(root, tmp_path / "out")
    assert list(done.dropped) == ["u0"]
    assert sorted(path.name for path in (tmp_path / "out/imagesUn").iterdir()) == ["u1.nii.gz", "u2.nii.gz"]
