from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layout_fakes import describe, msd, names, nnunet, touch

from dicom_fakes import write_slice
from graftseg.core.errors import Code, UserError
from graftseg.data.batches import BatchSettings, training_cases
from graftseg.data.dataset import Dataset
from graftseg.data.grouping import scans_in
from graftseg.data.layouts import read_layout
from graftseg.data.store import Store
from user_errors import user_error


def test_msd_splits_and_order(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/c.nii.gz", "imagesTr/a.nii", "imagesTr/b.nii.gz", "labelsTr/c.nii.gz")
    touch(tmp_path, "labelsTr/b.nii.gz", "imagesUn/z.nii.gz", "imagesUn/d.nii.gz", "imagesTs/t.nii.gz")
    touch(tmp_path, "imagesTs/s.nii.gz", "labelsTs/t.nii.gz")
    dataset = read_layout(tmp_path)
    assert dataset.layout == "msd"
    assert names(dataset) == [
        ("b", "labeled"),
        ("c", "labeled"),
        ("a", "unlabeled"),
        ("d", "unlabeled"),
        ("z", "unlabeled"),
        ("s", "test"),
        ("t", "test"),
    ]
    assert dataset.of("labeled")[0].label == tmp_path / "labelsTr/b.nii.gz"
    assert [case.label for case in dataset.of("test")] == [None, tmp_path / "labelsTs/t.nii.gz"]
    assert dataset.classes == {}
    assert dataset.problems == ()


@pytest.mark.parametrize(
    "labels",
    [{"background": 0, "liver": 1}, {"0": "background", "1": "liver"}, {"1": "liver"}, {"liver": "1"}],
)
def test_class_names_by_name_or_by_value(tmp_path: Path, labels: dict[str, Any]) -> None:
    dataset = read_layout(describe(msd(tmp_path), labels=labels))
    assert dataset.classes == {0: "background", 1: "liver"}


def test_hidden_files_are_skipped_and_other_files_reported(tmp_path: Path) -> None:
    touch(msd(tmp_path), "imagesTr/._a_01.nii.gz", "labelsTr/.DS_Store", "imagesTr/notes.txt")
    touch(tmp_path, "imagesTr/Thumbs.db", "labelsTr/desktop.ini")
    dataset = read_layout(tmp_path)
    assert names(dataset) == [("a_01", "labeled")]
    assert dataset.ignored == ("imagesTr/notes.txt",)


def test_the_voxel_file_of_a_header_is_not_reported(tmp_path: Path) -> None:
    touch(msd(tmp_path), "imagesUn/b.raw", "imagesUn/c.mhd", "imagesUn/d.raw")
    (tmp_path / "imagesUn/b.mhd").write_text("NDims = 3\nElementDataFile = b.raw\n")
    dataset = read_layout(tmp_path)
    assert names(dataset) == [("a_01", "labeled"), ("b", "unlabeled"), ("c", "unlabeled")]
    assert dataset.ignored == ("imagesUn/d.raw",)


def test_label_maps_are_not_zips_or_dicom_slices(tmp_path: Path) -> None:
    write_slice(tmp_path / "labelsTr" / "b.dcm", np.zeros((4, 4), np.int16), (0, 0, 0))
    dataset = read_layout(touch(msd(tmp_path), "labelsTr/c.zip", "imagesTr/c.zip"))
    assert names(dataset) == [("a_01", "labeled"), ("c", "unlabeled")]
    assert dataset.ignored == ("labelsTr/b.dcm", "labelsTr/c.zip")


def test_a_damaged_dicom_label_is_not_ignored(tmp_path: Path) -> None:
    dataset = read_layout(touch(msd(tmp_path), "labelsTr/b.dcm", "imagesTr/b.dcm"))
    assert names(dataset) == [("a_01", "labeled"), ("b", "labeled")] and dataset.ignored == ()


@pytest.mark.parametrize("name", ["b.dcm", "b", "b/1.dcm", "b_seg.dcm"])
def test_other_dicom_files_with_the_name_of_a_case_are_errors(tmp_path: Path, name: str) -> None:
    write_slice(tmp_path / "labelsTr" / name, np.zeros((4, 4), np.int16), (0, 0, 0))
    dataset = read_layout(touch(msd(tmp_path), "imagesTr/b.dcm", "imagesTr/c.dcm"))
    assert names(dataset) == [("a_01", "labeled"), ("b", "labeled"), ("c", "unlabeled")] and dataset.ignored == ()
    with user_error(Code.SCAN_UNSUPPORTED, tmp_path / "labelsTr" / name.split("/")[0]):
        dataset.reader.label(dataset.cases[1])


def test_labels_of_unlabeled_images_are_not_read(tmp_path: Path) -> None:
    touch(msd(tmp_path), "imagesUn/u.nii.gz", "labelsUn/u.nii.gz", "labelsUn/orphan.nii.gz")
    dataset = read_layout(tmp_path)
    assert dataset.of("unlabeled")[0].label is None
    assert dataset.problems == ()


def test_label_of_an_image_in_the_unlabeled_folder_makes_it_labeled(tmp_path: Path) -> None:
    touch(msd(tmp_path), "imagesUn/u.nii.gz", "imagesUn/V.nii.gz", "imagesUn/w.nii.gz")
    touch(tmp_path, "labelsTr/u.nii.gz", "labelsTr/v_seg.nii.gz")
    dataset = read_layout(tmp_path)
    assert names(dataset) == [("V", "labeled"), ("a_01", "labeled"), ("u", "labeled"), ("w", "unlabeled")]
    V, _, u = dataset.of("labeled")
    assert (V.images, V.label) == ((tmp_path / "imagesUn/V.nii.gz",), tmp_path / "labelsTr/v_seg.nii.gz")
    assert (u.images, u.label) == ((tmp_path / "imagesUn/u.nii.gz",), tmp_path / "labelsTr/u.nii.gz")
    assert dataset.problems == () and dataset.ignored == ()


def test_all_images_may_be_in_the_unlabeled_folder(tmp_path: Path) -> None:
    (tmp_path / "imagesTr").mkdir()
    touch(tmp_path, "imagesUn/u_0000.nii.gz", "imagesUn/v_0000.nii.gz", "labelsTr/u.nii.gz")
    dataset = read_layout(tmp_path)
    assert names(dataset) == [("u", "labeled"), ("v", "unlabeled")] and dataset.problems == ()


def test_label_belongs_to_the_image_in_the_labeled_folder_first(tmp_path: Path) -> None:
    dataset = read_layout(touch(msd(tmp_path), "imagesUn/a_01.nii.gz"))
    assert names(dataset) == [("a_01", "labeled"), ("a_01", "unlabeled")]
    assert [problem.code for problem in dataset.problems] == [Code.CASE_DUPLICATE]


def test_second_label_of_an_unlabeled_image_is_a_problem(tmp_path: Path) -> None:
    dataset = read_layout(touch(msd(tmp_path), "imagesUn/u.nii.gz", "labelsTr/u.nii.gz", "labelsTr/u_seg.nii.gz"))
    assert [(problem.code, Path(problem.where).name) for problem in dataset.problems] == [
        (Code.CASE_DUPLICATE, "u_seg.nii.gz")
    ]


@pytest.mark.parametrize(
    ("files", "where", "code", "keyword"),
    [
        (["labelsTr/x.nii.gz"], "x.nii.gz", Code.LABEL_UNMATCHED, "no image"),
        (["labelsTs/x.nii.gz"], "x.nii.gz", Code.LABEL_UNMATCHED, "no image"),
        (["imagesUn/a.nii"], "imagesUn/a.nii", Code.CASE_NAME, "no channel number"),
        (["imagesUn/u_0000.nii.gz"], "u_0000.nii.gz", Code.CHANNELS_MISMATCH, "0000 to 0001"),
        (["imagesTr/u_0001.nii.gz"], "u_0001.nii.gz", Code.CHANNELS_MISMATCH, "0000 to 0001"),
        (["imagesTr/a_0000.nii"], "a_0000.nii", Code.CASE_DUPLICATE, "a_0000.nii"),
        (["imagesUn/a_0000.nii.gz", "imagesUn/a_0001.nii.gz"], "a", Code.CASE_DUPLICATE, "in imagesTr and"),
    ],
)
def test_problems_are_recorded(tmp_path: Path, files: list[str], where: str, code: Code, keyword: str) -> None:
    (problem,) = read_layout(touch(nnunet(tmp_path), *files)).problems
    assert (problem.code, where in problem.where, keyword in problem.finding) == (code, True, True)


def test_missing_listed_files(tmp_path: Path) -> None:
    training = [
        {"image": "./imagesTr/a_01.nii.gz", "label": "./labelsTr/a_01.nii.gz"},
        {"image": "./imagesTr/b_02.nii.gz", "label": "./labelsTr/b_02.nii.gz"},
    ]
    problems = read_layout(describe(msd(tmp_path), training=training, test=["./imagesTs/x.nii.gz"])).problems
    assert {problem.finding.split("'")[1] for problem in problems} == {
        "./imagesTs/x.nii.gz",
        "./imagesTr/b_02.nii.gz",
        "./labelsTr/b_02.nii.gz",
    }


@pytest.mark.parametrize("entry", ["../other/imagesTr/a.nii.gz", "/etc/passwd", "imagesTr/../../a.nii.gz"])
def test_entries_outside_the_folder_are_refused(tmp_path: Path, entry: str) -> None:
    with user_error(Code.DATASET_INVALID, keyword="outside"):
        read_layout(describe(msd(tmp_path), dataset={"a": {"images": [entry]}}))


@pytest.mark.parametrize(
    ("content", "keyword"),
    [
        ({"labels": {"background": 0, "whole": [1, 2]}}, "'whole' is a region of several values"),
        ({"labels": {"background": 0, "ignore": 1}}, "a label to ignore is not supported"),
        ({"labels": {"background": 0, "liver": 1.5}}, "'liver': 1.5"),
        ({"labels": {"a": 1, "b": 1}}, "the label value 1 has two names, a and b"),
        ({"labels": ["background"]}, "labels is not an object"),
        ({"file_ending": ".gif"}, "file_ending '.gif'"),
    ],
)
def test_invalid_descriptions_are_refused(tmp_path: Path, content: dict[str, Any], keyword: str) -> None:
    with user_error(Code.DATASET_INVALID, "dataset.json", keyword):
        read_layout(describe(msd(tmp_path), **content))


def test_a_description_that_is_a_list(tmp_path: Path) -> None:
    (msd(tmp_path) / "dataset.json").write_text("[]")
    with user_error(Code.DATASET_INVALID, keyword="object of keys"):
        read_layout(tmp_path)


@pytest.mark.parametrize("name", ["imagesTr", "labelsTr", "imagesUn"])
def test_the_folder_above_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    msd(tmp_path / "data")
    (tmp_path / "data" / name).mkdir(exist_ok=True)
    above = f"the folder above it, {tmp_path / 'data'}"
    with user_error(Code.LAYOUT_UNKNOWN, name, above):
        read_layout(tmp_path / "data" / name)
    monkeypatch.chdir(tmp_path / "data" / name)
    with user_error(Code.LAYOUT_UNKNOWN, keyword=above):
        read_layout(Path())
    with user_error(Code.LAYOUT_UNKNOWN, keyword=f"imagesTr/, {tmp_path / 'data'}"):
        read_layout(tmp_path)


def test_folders_without_a_data_set(tmp_path: Path) -> None:
    with user_error(Code.FOLDER_MISSING, keyword="does not exist"):
        read_layout(tmp_path / "absent")
    with user_error(Code.LAYOUT_UNKNOWN, keyword="imagesTr/"):
        read_layout(tmp_path)
    with user_error(Code.LAYOUT_UNKNOWN, keyword="layout"):
        read_layout(touch(tmp_path, "scan.nii"))
    with user_error(Code.NOT_A_FOLDER, keyword="file, not a folder"):
        read_layout(tmp_path / "scan.nii")
    (tmp_path / "imagesTr").mkdir()
    with user_error(Code.NOT_A_SCAN, keyword="imagesTr/"):
        read_layout(tmp_path)


def test_no_labeled_case(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/a.nii.gz", "imagesTr/b.nii.gz")
    with user_error(Code.TOO_FEW_CASES, keyword="none of the 2 cases"):
        read_layout(tmp_path)
    with user_error(Code.TOO_FEW_CASES, keyword="z_liver.nii.gz"):
        read_layout(touch(tmp_path, "labelsTr/z_liver.nii.gz"))


def test_scans_of_a_folder_are_visible_files(tmp_path: Path) -> None:
    touch(tmp_path, "b.nii", "a.nii.gz", "._a.nii.gz", ".partial-x-b.nii", "notes.txt")
    assert [path.name for path in scans_in(tmp_path)] == ["a.nii.gz", "b.nii"]


@pytest.fixture
def six(tmp_path: Path) -> Dataset:
    """Return six labeled cases, two unlabeled cases and a test case."""
    for name in "abcdef":
        touch(tmp_path, f"imagesTr/{name}.nii", f"labelsTr/{name}.nii")
    return read_layout(touch(tmp_path, "imagesUn/u.nii", "imagesUn/v.nii", "imagesTs/t.nii", "labelsTs/t.nii"))


def test_hidden_labels_are_not_in_training_cases(six: Dataset) -> None:
    seen = six.for_training(2, 1)
    assert names(seen) == [*((name, "labeled") for name in "abf"), *((name, "unlabeled") for name in "cdeuv")]
    assert [case.name for case in seen.cases if case.label is not None] == ["a", "b", "f"]
    assert six.for_training(None, 0).cases == six.of("labeled") + six.of("unlabeled")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labeled=st.none() | st.integers(1, 7), validation=st.integers(0, 7))
def test_the_roles_are_those_that_batches_give(
    six: Dataset, store: Store, labeled: int | None, validation: int
) -> None:
    """Labels may be hidden before or after preparing, with the same training cases."""

    def stored(dataset: Dataset) -> Store:
        # the role of a case depends only on its name and split
        cases = (replace(store.cases[0], name=case.name, split=case.split) for case in dataset.cases)
        return replace(store, path=dataset.root, cases=tuple(cases))

    def roles(dataset: Dataset) -> list[list[str]]:
        limits = BatchSettings(patch=(8, 8), labeled_cases=labeled, validation_cases=validation)
        cases = training_cases(stored(dataset), limits)
        return [[case.name for case in role] for role in (cases.labeled, cases.unlabeled, cases.validation)]

    try:
        expected = roles(six)
    except UserError as error:
        with pytest.raises(UserError) as caught:
            six.for_training(labeled, validation)
        assert caught.value.to_json() == error.to_json()
        return
    assert roles(six.for_training(labeled, validation)) == expected


def test_labels_with_endings_and_other_letters(tmp_path: Path) -> None:
    touch(tmp_path, *(f"imagesTr/{name}.nii.gz" for name in ("a", "b", "C", "d", "eve_01", "f")))
    labels = ("a.seg.nrrd", "b_label.nii.gz", "c.nii.gz", "D_Seg.nii.gz", "Eve-1.nii.gz", "f.nii", "f_seg.nii")
    touch(tmp_path, *(f"labelsTr/{name}" for name in labels))
    listed = [{"image": "imagesTr/b.nii.gz", "label": "labelsTr/b_label.nii.gz"}]
    dataset = read_layout(describe(tmp_path, training=listed))
    found = {case.name: case.label.name for case in dataset.of("labeled") if case.label}
    assert found == {"a": labels[0], "b": labels[1], "C": labels[2], "d": labels[3], "f": labels[5]}
    assert {(problem.code, Path(problem.where).name) for problem in dataset.problems} == {
        (Code.LABEL_UNMATCHED, "Eve-1.nii.gz"),
        (Code.CASE_DUPLICATE, "f_seg.nii"),
    }
    assert any("did you mean eve_01?" in problem.finding for problem in dataset.problems)


def test_case_numbers_are_kept_if_some_names_have_none(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/a.nii.gz", "imagesTr/a_0007.nii.gz", "imagesTr/b_0000.nii.gz")
    touch(tmp_path, "labelsTr/a.nii.gz", "labelsTr/a_0007.nii.gz")
    dataset = read_layout(tmp_path)
    assert (dataset.layout, dataset.problems) == ("msd", ())
    assert names(dataset) == [("a", "labeled"), ("a_0007", "labeled"), ("b_0000", "unlabeled")]
    (tmp_path / "imagesTr/a.nii.gz").unlink()
    assert read_layout(tmp_path).problems[0].where == str(tmp_path / "labelsTr/a.nii.gz")


def test_a_line_break_in_a_name(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/a\nb_0000.nii.gz", "imagesTr/a\nb_0001.nii.gz", "labelsTr/a\nb.nii.gz")
    dataset = read_layout(tmp_path)
    assert (dataset.layout, dataset.problems, names(dataset)) == ("nnunet", (), [("a\nb", "labeled")])


def test_advice_for_other_arrangements(tmp_path: Path) -> None:
    root = touch(tmp_path / "pairs", "images/a.png", "masks/a.png")
    with user_error(Code.LAYOUT_UNKNOWN, root, f"--labeled-images {root / 'images'} --labels {root / 'masks'}"):
        read_layout(root)
    root = touch(tmp_path / "cases", "p1/T2.nii.gz", "p1/T2_seg.nii.gz", "p2/T2.nii.gz")
    with user_error(Code.LAYOUT_UNKNOWN, root, "labelsTr/p1.nii.gz"):
        read_layout(root)
    root = touch(tmp_path / "other", "train/a.png", "masks/a.png", "test/b.png")
    with user_error(Code.LAYOUT_UNKNOWN, root, "arrange"):
        read_layout(root)
