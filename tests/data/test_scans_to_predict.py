from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from layout_fakes import touch

from dicom_fakes import write_series
from graftseg.core.errors import Code
from graftseg.core.names import original_name
from graftseg.core.types import Geometry
from graftseg.data.scans import write_scan
from graftseg.data.scans_to_predict import scan_cases
from user_errors import user_error


def cases_of(folder: Path, channels: int) -> tuple[dict[str, list[str]], list[str]]:
    """Return the files of each case to predict, and the names of failed cases."""
    cases, failures = scan_cases(folder, channels)
    return {case.name: [path.name for path in case.images] for case in cases}, list(failures)


def test_a_missing_channel_fails_only_its_case(tmp_path: Path) -> None:
    touch(tmp_path, "a_0000.nii", "a_0001.nii", "b_0000.nii", "c_0000.nii", "c_0001.nii", "d.nii", ".e.nii")
    whole = {"a": ["a_0000.nii", "a_0001.nii"], "c": ["c_0000.nii", "c_0001.nii"], "d": ["d.nii"]}
    assert cases_of(tmp_path, 2) == (whole, ["b"])
    error = scan_cases(tmp_path, 2)[1]["b"]
    assert error.where == str(tmp_path / "b_0000.nii")
    assert error.code is Code.CHANNELS_MISMATCH and "0000 to 0001" in error.finding


def test_a_second_copy_is_a_case_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    touch(tmp_path, "case_05_0000.nii.gz", "case_05_0000 (1).nii.gz", "p (b)_0000.nii.gz")
    assert list(cases_of(tmp_path, 1)[0]) == ["case_05", "case_05_0000 (1)", "p (b)"]
    (record,) = caplog.records
    assert "case_05_0000 (1).nii.gz" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "original"),
    [("a_0000 (1)", "a_0000"), ("a - Copy", "a"), ("a copy 2", "a"), ("a (b)", None), ("a_0000", None), ("copy", None)],
)
def test_names_of_second_copies(name: str, original: str | None) -> None:
    assert original_name(name) == original


def test_one_slice_of_a_series_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    volume = np.arange(60, dtype=np.int16).reshape(5, 4, 3)
    first, *_ = write_series(tmp_path / "series", volume, (1.0, 1.0, 2.0))
    assert len(scan_cases(first, 1)[0]) == 1
    (record,) = caplog.records
    assert "2 other slices" in record.getMessage()
    caplog.clear()
    first.rename(tmp_path / "alone.dcm")
    scan_cases(tmp_path / "alone.dcm", 1)
    scan_cases(tmp_path / "series", 1)
    assert not caplog.records


def test_one_numbered_file_may_contain_all_channels(tmp_path: Path) -> None:
    touch(tmp_path, "a_0000.nii", "b_0000.nii")
    assert cases_of(tmp_path, 3) == ({"a": ["a_0000.nii"], "b": ["b_0000.nii"]}, [])


@pytest.mark.parametrize(
    ("files", "cases", "failures"),
    [
        (["a_0000", "b_0000"], ["a", "b"], []),
        (["a", "b_1"], ["a", "b_1"], []),
        (["p_0007", "p_0008"], ["p_0007", "p_0008"], []),
        (["p_0007", "q_0007"], ["p_0007", "q_0007"], []),
        (["p_0000", "p_0001", "p_0002"], [], ["p"]),
        (["p020_0000", "p020_0001"], [], ["p020"]),
        (["a_0000", "a_0001", "b_0000"], ["b"], ["a"]),
        (["a_0000", "a_0001", "b_0000", "b_0001"], [], ["a", "b"]),
        (["a_0000", "z"], ["a", "z"], []),
    ],
)
def test_scans_for_a_network_of_one_channel(
    tmp_path: Path, files: list[str], cases: list[str], failures: list[str]
) -> None:
    found = cases_of(touch(tmp_path, *[f"{name}.nii.gz" for name in files]), 1)
    assert (list(found[0]), found[1]) == (cases, failures)


def test_two_channels_for_a_network_with_one_channel(tmp_path: Path) -> None:
    error = scan_cases(touch(tmp_path, "p020_0000.nii.gz", "p020_0001.nii.gz"), 1)[1]["p020"]
    assert error.code is Code.CHANNELS_MISMATCH and "2 channels (0000, 0001)" in error.finding
    assert "p020-0000" in error.remedy


@pytest.mark.parametrize(
    ("trained", "files", "cases"),
    [
        (["p_0003", "p_0004"], ["p_0000", "p_0001", "p_0002"], ["p_0000", "p_0001", "p_0002"]),
        (["site1_0003"], ["site22_0000", "site22_0001"], ["site22_0000", "site22_0001"]),
        (["p_0003"], ["p_0000"], ["p_0000"]),
        (["p_0003"], ["p_0003_0000", "p_0004_0000"], ["p_0003", "p_0004"]),
        # names with three digits, other letters or channel names do not match
        (["p_003"], ["p_0000", "p_0001"], []),
        (["q_0003"], ["p_0000", "p_0001"], []),
        (["p_0003"], ["p_0003_0000", "p_0003_0001"], []),
    ],
)
def test_numbers_have_the_same_meaning_as_in_training(
    tmp_path: Path, trained: list[str], files: list[str], cases: list[str]
) -> None:
    found, failures = scan_cases(touch(tmp_path, *[f"{name}.nii.gz" for name in files]), 1, trained)
    assert [case.name for case in found] == cases
    assert bool(failures) is not bool(cases)


def test_numbered_color_pictures(tmp_path: Path) -> None:
    """Each picture contains all channels."""
    touch(tmp_path, *(f"polyp_{number:04d}.png" for number in range(1, 4)))
    names = ["polyp_0001", "polyp_0002", "polyp_0003"]
    assert cases_of(tmp_path, 3) == ({name: [f"{name}.png"] for name in names}, [])
    touch(tmp_path, "polyp_0000.png")
    assert "polyp-0000" in scan_cases(tmp_path, 3)[1]["polyp"].remedy
    assert cases_of(tmp_path / "polyp_0000.png", 3) == ({"polyp": ["polyp_0000.png"]}, [])
    found, failures = scan_cases(tmp_path, 3, ["polyp_0007"])
    assert [case.name for case in found] == ["polyp_0000", *names] and not failures


def test_one_scan_and_scans_that_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a_0000.nii", "a_0001.nii", "empty/notes.txt")
    assert cases_of(tmp_path / "a_0000.nii", 1) == ({"a": ["a_0000.nii"]}, [])
    assert cases_of(tmp_path / "a_0000.nii", 2) == ({"a": ["a_0000.nii", "a_0001.nii"]}, [])
    assert cases_of(tmp_path / "a_0000.nii", 3) == ({"a": ["a_0000.nii"]}, [])
    with user_error(Code.FILE_MISSING):
        scan_cases(tmp_path / "absent", 1)
    with user_error(Code.NOT_A_SCAN, keyword="no scan"):
        scan_cases(tmp_path / "empty", 1)
    with user_error(Code.CASE_DUPLICATE, "a_0000.nii", "the same"):
        scan_cases(touch(tmp_path, "a.nii"), 2)


def write_channels(folder: Path, count: int, *names: str) -> None:
    """Write volumes with ``count`` channels."""
    geometry = Geometry((3, 3, 3), ((1.0, 0, 0, 0), (0, 1.0, 0, 0), (0, 0, 1.0, 0), (0, 0, 0, 1.0)))
    for name in names:
        write_scan(folder / name, np.zeros((count, 3, 3, 3), np.uint8), geometry)


def test_a_single_file_with_all_channels_needs_no_other_file(tmp_path: Path) -> None:
    write_channels(tmp_path, 2, "a_0000.nii", "a_0001.nii")
    assert cases_of(tmp_path / "a_0000.nii", 2) == ({"a": ["a_0000.nii"]}, [])
    write_channels(tmp_path, 1, "a_0000.nii")
    assert cases_of(tmp_path / "a_0000.nii", 2) == ({"a": ["a_0000.nii", "a_0001.nii"]}, [])


@pytest.mark.parametrize("files", [["a_0001.nii", "b_0001.nii"], ["a_0001.nii", "a_0002.nii"]])
def test_a_folder_without_the_first_channel(tmp_path: Path, files: list[str]) -> None:
    write_channels(tmp_path, 1, *files)
    found, failures = scan_cases(tmp_path, 3)
    assert not found and [*failures] == sorted({name[0] for name in files})
    assert failures["a"].code is Code.CHANNELS_MISMATCH and "expected 0000 to 0002" in failures["a"].finding
    names = [Path(name).stem for name in files]
    assert list(cases_of(tmp_path, 1)[0]) == names
    assert [case.name for case in scan_cases(tmp_path, 3, ["a_0003", "b_0003"])[0]] == names
    write_channels(tmp_path, 3, *files)
    assert list(cases_of(tmp_path, 3)[0]) == names


def test_a_line_break_in_a_name(tmp_path: Path) -> None:
    touch(tmp_path, "a\nb_0000.nii.gz", "a\nb_0001.nii.gz")
    assert cases_of(tmp_path, 2) == ({"a\nb": ["a\nb_0000.nii.gz", "a\nb_0001.nii.gz"]}, [])


def test_a_folder_of_many_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path is compared with few others, not with all of them."""
    for number in range(300):
        (tmp_path / f"case{number:03d}_0000.nii.gz").touch()
    counts = Counter[str]()

    def equal(one: Path, other: object) -> bool:
        counts["comparisons"] += 1
        return str(one) == str(other)

    monkeypatch.setattr(type(tmp_path), "__eq__", equal)
    cases, failures = scan_cases(tmp_path, 1, [])
    assert (len(cases), failures) == (300, {}) and counts["comparisons"] < 3000
