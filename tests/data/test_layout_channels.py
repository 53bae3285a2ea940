"""Channels: separate files with numbers, or one file."""

from pathlib import Path

import pytest
from layout_fakes import describe, msd, names, nnunet, touch

from graftseg.core.errors import Code
from graftseg.data.dataset import ScanFiles
from graftseg.data.layouts import read_layout
from user_errors import user_error


def test_nnunet_channels(tmp_path: Path) -> None:
    dataset = read_layout(touch(nnunet(tmp_path), "imagesUn/u_0001.nii.gz", "imagesUn/u_0000.nii.gz"))
    assert dataset.layout == "nnunet"
    assert names(dataset) == [("a", "labeled"), ("u", "unlabeled")]
    assert [path.name for path in dataset.cases[1].images] == ["u_0000.nii.gz", "u_0001.nii.gz"]


@pytest.mark.parametrize(
    ("first", "second", "wrong"), [("uvw", "", ["a_0000.nii.gz"]), ("uvw", "uw", ["v_0000.nii.gz"])]
)
def test_a_case_has_the_most_frequent_number_of_channels(
    tmp_path: Path, first: str, second: str, wrong: list[str]
) -> None:
    scans = [f"imagesUn/{name}_000{number}.nii.gz" for number, group in enumerate((first, second)) for name in group]
    problems = read_layout(touch(nnunet(tmp_path), *scans)).problems
    assert [Path(problem.where).name for problem in problems] == wrong
    assert {problem.code for problem in problems} == {Code.CHANNELS_MISMATCH}


@pytest.mark.parametrize(("names", "listed"), [("v", False), ("vw", True)])
def test_several_problems_are_listed_by_check(tmp_path: Path, names: str, listed: bool) -> None:
    scans = [f"imagesUn/{name}_0000.nii.gz" for name in names]
    dataset = read_layout(touch(nnunet(tmp_path), *scans, "imagesUn/u_0000.nii.gz", "imagesUn/u_0001.nii.gz"))
    with user_error(Code.CHANNELS_MISMATCH, "v_0000.nii.gz") as caught:
        dataset.refuse_problems()
    assert ("graftseg check" in caught.value.remedy) == listed


def test_four_digits_that_are_case_numbers(tmp_path: Path) -> None:
    dataset = read_layout(touch(tmp_path, "imagesTr/p_0007.nii.gz", "labelsTr/p_0007.nii.gz"))
    assert dataset.layout == "msd"
    assert names(dataset) == [("p_0007", "labeled")]


def test_label_of_several_channels_in_the_unlabeled_folder(tmp_path: Path) -> None:
    touch(nnunet(tmp_path), "imagesUn/u_0000.nii.gz", "imagesUn/u_0001.nii.gz", "labelsTr/u.nii.gz")
    dataset = read_layout(tmp_path)
    assert names(dataset) == [("a", "labeled"), ("u", "labeled")] and dataset.problems == ()
    assert [path.name for path in dataset.cases[1].images] == ["u_0000.nii.gz", "u_0001.nii.gz"]


def test_channel_names_give_the_number_of_channels(tmp_path: Path) -> None:
    describe(nnunet(tmp_path), channel_names={"0": "T1", "1": "T2", "2": "FLAIR"}, file_ending=".nii.gz")
    (problem,) = read_layout(tmp_path).problems
    assert problem.code is Code.CHANNELS_MISMATCH and "0000 to 0002" in problem.finding


def test_one_named_channel_needs_no_number(tmp_path: Path) -> None:
    dataset = read_layout(describe(msd(tmp_path), channel_names={"0": "MRI"}))
    assert dataset.layout == "msd" and names(dataset) == [("a_01", "labeled")]


def test_several_named_channels_need_numbers(tmp_path: Path) -> None:
    describe(msd(tmp_path), channel_names={"0": "T1", "1": "T2"})
    with user_error(Code.CASE_NAME, "a_01.nii.gz", "has no channel number"):
        read_layout(tmp_path)


@pytest.mark.parametrize(("ending", "is_numbered"), [("", False), ("_0000", True)])
def test_a_color_picture_contains_three_named_channels(tmp_path: Path, ending: str, is_numbered: bool) -> None:
    touch(tmp_path, f"imagesTr/a{ending}.png", "labelsTr/a.png", f"imagesUn/b{ending}.tif")
    dataset = read_layout(describe(tmp_path, channel_names={"0": "R", "1": "G", "2": "B"}))
    assert names(dataset) == [("a", "labeled"), ("b", "unlabeled")]
    assert (dataset.layout == "nnunet") is is_numbered
    assert dataset.problems == ()
    assert dataset.reader == ScanFiles(3)


def test_three_pictures_may_be_three_named_channels(tmp_path: Path) -> None:
    touch(tmp_path, *(f"imagesTr/a_000{channel}.png" for channel in range(3)), "labelsTr/a.png")
    dataset = read_layout(describe(tmp_path, channel_names={"0": "T1", "1": "T2", "2": "FLAIR"}))
    assert [len(case.images) for case in dataset.cases] == [3] and dataset.problems == ()


def test_lists_may_contain_cases_or_channels(tmp_path: Path) -> None:
    training = [{"image": "./imagesTr/a.nii.gz", "label": "./labelsTr/a.nii.gz"}]
    entries = {"a": {"images": ["imagesTr/a_0000.nii.gz", "imagesTr/a_0001.nii.gz"], "label": "labelsTr/a.nii.gz"}}
    assert read_layout(describe(nnunet(tmp_path), training=training, dataset=entries)).problems == ()


def test_channels_with_names_instead_of_numbers(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/p1_T1.nii.gz", "imagesTr/p1_T2.nii.gz", "imagesTr/p10_T1.nii.gz", "labelsTr/p1.nii.gz")
    with user_error(Code.TOO_FEW_CASES, keyword="(p1_T1, p1_T2)") as caught:
        read_layout(tmp_path)
    assert "p1_0000, p1_0001" in caught.value.remedy
    (problem,) = read_layout(touch(tmp_path, "imagesTr/x.nii.gz", "labelsTr/x.nii.gz")).problems
    assert problem.code is Code.LABEL_UNMATCHED and "(p1_T1, p1_T2)" in problem.finding
    (tmp_path / "imagesTr/p1_T2.nii.gz").unlink()
    assert read_layout(tmp_path).problems[0].remedy == "if the label belongs to p1_T1, give it that name"


def test_an_image_without_a_channel_number(tmp_path: Path) -> None:
    """The problem is reported for the image, not for its label or other labels."""
    touch(tmp_path, "imagesTr/a.nii.gz", "imagesTr/b_0000.nii.gz", "imagesTr/c_0000.nii.gz")
    touch(tmp_path, "labelsTr/a.nii.gz", "labelsTr/b.nii.gz", "labelsTr/c.nii.gz")
    dataset = read_layout(tmp_path)
    (problem,) = dataset.problems
    assert (problem.where, problem.finding) == (str(tmp_path / "imagesTr/a.nii.gz"), "the name has no channel number")
    assert names(dataset) == [("b", "labeled"), ("c", "labeled")]


def test_one_channel_number_among_other_names_is_blamed(tmp_path: Path) -> None:
    for number in range(9):
        touch(tmp_path, f"imagesTr/p{number}.nii.gz", f"labelsTr/p{number}.nii.gz")
    touch(tmp_path, "imagesTr/q_0000.nii.gz", "labelsTr/q.nii.gz")
    dataset = read_layout(tmp_path)
    (problem,) = dataset.problems
    assert (problem.code, problem.where) == (Code.CASE_NAME, str(tmp_path / "imagesTr/q_0000.nii.gz"))
    assert "name the image q" in problem.remedy
    assert (dataset.layout, len(dataset.of("labeled"))) == ("msd", 9)


def test_label_endings_after_case_numbers_and_channels(tmp_path: Path) -> None:
    touch(tmp_path / "one", "imagesTr/p_0007.nii.gz", "labelsTr/p_0007_seg.nii.gz")
    touch(tmp_path / "two", "imagesTr/p_0000.nii.gz", "labelsTr/p_seg.nii.gz")
    for folder, layout, name in (("one", "msd", "p_0007"), ("two", "nnunet", "p")):
        dataset = read_layout(tmp_path / folder)
        assert (dataset.layout, names(dataset), dataset.problems) == (layout, [(name, "labeled")], ())
