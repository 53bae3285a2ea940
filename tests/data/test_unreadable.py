from pathlib import Path

import pytest
from check_fakes import check, make_scans
from layout_fakes import touch

from graftseg.core.errors import Code
from graftseg.data.layouts import read_layout
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.sources import Sources
from graftseg.data.unsupported_files import unsupported_ending, unsupported_images_in
from user_errors import user_error


def test_unsupported_pictures_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "imagesTr/a.gif", "imagesTr/b.GIF", "imagesTr/notes.txt", "labelsTr/a.png")
    with user_error(Code.NOT_A_SCAN, keyword="2 .gif files"):
        read_layout(tmp_path)
    with user_error(Code.NOT_A_SCAN, keyword="2 .gif files"):
        read_layout(Sources(tmp_path / "imagesTr", tmp_path / "labelsTr"))
    with user_error(Code.NOT_A_SCAN, keyword="2 .gif files"):
        scan_cases(tmp_path / "imagesTr", 1)


def test_other_files_are_ignored(tmp_path: Path) -> None:
    assert unsupported_images_in(touch(tmp_path, "notes.txt", "list.csv", ".x.gif")) is None
    assert unsupported_images_in(touch(tmp_path, "a.npy")) == (
        "1 .npy file, which cannot be read",
        "save as .nii.gz, with the voxel spacing",
    )


def test_unsupported_files_of_a_data_set_are_reported(tmp_path: Path) -> None:
    root = touch(make_scans(tmp_path), "imagesTr/notes.txt", "imagesUn/x.webp")
    (finding,) = check(read_layout(root), workers=1)
    assert (finding.where, finding.size) == ("imagesUn/x.webp", "2 files")
    assert finding.remedy.startswith("convert to .png")


@pytest.mark.parametrize(
    ("name", "ending"), [("a.GIF", ".gif"), ("a.jpg", None), ("a.nii.gz", None), ("a.png", None), ("a", None)]
)
def test_unsupported_endings(name: str, ending: str | None) -> None:
    assert unsupported_ending(name) == ending
