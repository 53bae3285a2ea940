"""Scans of an archive: lists of paths, and folders with DICOM series in subfolders."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dicom_fakes import write_series
from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.scans import write_scan
from graftseg.data.scans_to_predict import scan_cases, scans_below
from user_errors import user_error

IDENTITY = tuple(map(tuple, np.eye(4).tolist()))


def scan(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_scan(path, np.zeros((4, 4, 4), np.float32), Geometry((4, 4, 4), IDENTITY))
    return path


def series(folder: Path, uid: str, slices: int = 6, **tags: str) -> Path:
    write_series(folder, np.zeros((4, 4, slices), np.int16), (1.0, 1.0, 1.0), SeriesInstanceUID=uid, **tags)
    return folder


def names(path: Path) -> list[str]:
    return sorted(case.name for case in scan_cases(path, 1)[0])


def test_a_list_names_scans_and_folders(tmp_path: Path) -> None:
    scan(tmp_path / "far" / "a.nii.gz")
    scan(tmp_path / "folder" / "b.nii.gz")
    series(tmp_path / "c", "1.2")
    listed = tmp_path / "scans.txt"
    listed.write_text(f"# a comment\n\nfar/a.nii.gz\n{tmp_path / 'folder'}\nc\nfar/a.nii.gz\ngone.nii.gz\nscans.txt\n")
    cases, failures = scan_cases(listed, 1)
    assert [case.name for case in cases] == ["a", "b", "c"]
    assert {name: error.finding for name, error in failures.items()} == {
        "gone.nii.gz": "no such file",
        "scans.txt": "not a scan",
    }


def test_scans_with_the_same_name_are_named_after_their_folders(tmp_path: Path) -> None:
    for place in ("p1/day1/image", "p1/day2/image", "p2/day1/image", "p2/day1/other"):
        scan(tmp_path / f"{place}.nii.gz")
    listed = tmp_path / "scans.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted(tmp_path.rglob("*.nii.gz"))))
    assert names(listed) == ["other", "p1-day1-image", "p1-day2-image", "p2-day1-image"]


def test_channels_of_a_list_are_grouped(tmp_path: Path) -> None:
    for patient in ("p1", "p2"):
        for channel in range(2):
            scan(tmp_path / patient / f"scan_{channel:04d}.nii.gz")
    listed = tmp_path / "scans.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted(tmp_path.rglob("*.nii.gz"))))
    cases, failures = scan_cases(listed, 2)
    assert [(case.name, len(case.images)) for case in cases] == [("p1-scan", 2), ("p2-scan", 2)] and not failures


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "a.nii.gz\n".encode("utf-16-le")])
def test_a_list_that_is_not_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "scans.txt").write_bytes(content)
    with user_error(Code.READ_FAILED, tmp_path / "scans.txt", "UTF-8"):
        scans_below(tmp_path / "scans.txt")


def test_each_series_of_a_tree_is_a_scan(tmp_path: Path) -> None:
    series(tmp_path / "p1" / "study" / "0001", "1.1")
    series(tmp_path / "p1" / "study" / "0002", "1.2")
    series(tmp_path / "p2" / "study" / "0001", "2.1")
    assert names(tmp_path) == ["p1-study-0001", "p1-study-0002", "p2"]
    shutil.rmtree(tmp_path / "p1" / "study" / "0002")
    assert names(tmp_path) == ["p1", "p2"], "a subfolder with one series is one scan, as before"


@pytest.mark.parametrize(
    ("slices", "uid", "tags"),
    [(1, "1.9", {}), (6, "1.1", {}), (6, "1.9", {"Modality": "SEG"})],
    ids=["localizer", "same series", "no image"],
)
def test_folders_that_belong_to_one_scan(tmp_path: Path, slices: int, uid: str, tags: dict[str, str]) -> None:
    series(tmp_path / "p1" / "a", "1.1")
    series(tmp_path / "p1" / "b", uid, slices, **tags)
    assert names(tmp_path) == ["p1"]
