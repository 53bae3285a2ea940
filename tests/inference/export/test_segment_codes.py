"""SNOMED CT codes of classes: the file, its validation, and the codes in a DICOM segmentation."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.inference.export.segment_codes import CATEGORY, GENERIC, SnomedCode, read_codes
from user_errors import user_error

CLASSES = ("background", "liver", "tumor")
LIVER = {"value": "10200004", "meaning": "Liver"}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_the_file_of_the_run_is_the_default(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert read_codes(None, run, CLASSES) == {}
    write(tmp_path / "codes.json", {"liver": {"type": LIVER}})
    found = read_codes(None, run, CLASSES)
    assert found.keys() == {"liver"} and found["liver"].type.value == "10200004"
    assert (found["liver"].category, found["liver"].region) == (CATEGORY, None)
    other = write(tmp_path / "other.json", {"tumor": {"type": LIVER, "region": LIVER}})
    assert read_codes(other, run, CLASSES).keys() == {"tumor"}


@pytest.mark.parametrize(
    ("content", "code", "keyword"),
    [
        ({"spleen": {"type": LIVER}}, Code.UNKNOWN_NAME, "spleen"),
        ({"background": {"type": LIVER}}, Code.UNKNOWN_NAME, "background"),
        ([], Code.SETTING_INVALID, "the file"),
        ({"liver": {}}, Code.SETTING_INVALID, "liver.type"),
        ({"liver": {"type": "10200004"}}, Code.SETTING_INVALID, "liver.type"),
        ({"liver": {"type": LIVER, "color": "red"}}, Code.SETTING_INVALID, "liver.color"),
        ({"liver": {"type": LIVER | {"value": 10200004}}}, Code.SETTING_INVALID, "liver.type.value"),
        ({"liver": {"type": LIVER | {"value": "10200005"}}}, Code.SETTING_INVALID, "check digit"),
        ({"liver": {"type": LIVER | {"value": "T-62000"}}}, Code.SETTING_INVALID, "liver.type.value"),
        ({"liver": {"type": LIVER | {"meaning": ""}}}, Code.SETTING_INVALID, "liver.type.meaning"),
        ({"liver": {"type": LIVER | {"meaning": 65 * "x"}}}, Code.SETTING_INVALID, "liver.type.meaning"),
        ({"liver": {"type": LIVER | {"meaning": "a\\b"}}}, Code.SETTING_INVALID, "liver.type.meaning"),
        ({"liver": {"type": LIVER | {"meaning": "a\nb"}}}, Code.SETTING_INVALID, "liver.type.meaning"),
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, content: Any, code: Code, keyword: str) -> None:
    path = write(tmp_path / "codes.json", content)
    with user_error(code, path, keyword):
        read_codes(path, RunFolder(tmp_path), CLASSES)


def test_a_missing_or_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    with user_error(Code.FILE_MISSING, path):
        read_codes(path, RunFolder(tmp_path), CLASSES)
    path.write_text("{")
    with user_error(Code.DAMAGED_FILE, path):
        read_codes(path, RunFolder(tmp_path), CLASSES)


@given(st.sampled_from(["10200004", "49755003", "108369006", "64033007"]), st.integers(0, 7), st.integers(1, 9))
def test_every_wrong_digit_is_found(value: str, place: int, step: int) -> None:
    wrong = f"{value[:place]}{(int(value[place]) + step) % 10}{value[place + 1 :]}"
    assert SnomedCode(value=value, meaning="x").value == value
    with pytest.raises(ValidationError):
        SnomedCode(value=wrong, meaning="x")


def test_the_codes_are_those_of_pydicom() -> None:
    codes = pytest.importorskip("pydicom.sr.codedict").codes.SCT
    for ours, theirs in ((CATEGORY, codes.AnatomicalStructure), (GENERIC.type, codes.Tissue)):
        assert (ours.value, ours.meaning) == (theirs.value, theirs.meaning)
    for known in (codes.Liver, codes.Neoplasm, codes.Kidney, codes.Heart, codes.Pancreas, codes.LeftAtrium):
        assert SnomedCode(value=known.value, meaning=known.meaning).value == known.value
