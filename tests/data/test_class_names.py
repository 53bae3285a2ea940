"""Class names with control characters, and names that look equal, are refused."""

import json
from pathlib import Path

import pytest
from check_fakes import make_scans

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.predictions import Manifest
from graftseg.data.dataset import name_problem
from graftseg.data.layouts import read_layout
from graftseg.data.sources import Sources
from graftseg.planning.facts import channel_names_in
from loops import for_each
from user_errors import user_error

ESCAPE = "\x1b[2J\x1b[31mred\nnew"


@for_each(
    ("name", "finding"),
    [
        (ESCAPE, r"'\x1b[2J\x1b[31mred\nnew'"),
        ("a\tb", r"'a\tb'"),
        ("a\x85b", r"'a\x85b'"),
        ("a\u2028b", r"'a\u2028b'"),
        ("\ud800", r"'\ud800'"),
        ("a\u200b", r"'a\u200b'"),
        ("\u202eLTR", r"'\u202eLTR'"),
        (" ", "a class has no name"),
        ("background", "2 classes have the name background"),
        ("caf\u0065\u0301", "2 classes have the name caf\u00e9"),
    ],
)
def test_names_that_are_refused(name: str, finding: str) -> None:
    assert finding in str(name_problem(["background", "caf\u00e9", name]))


def test_names_in_any_script() -> None:
    assert name_problem(["background", "linkes Ventrikel (LV) 'a'", "肝", "می\u200cروم", "a\u00a0b"]) is None
    assert name_problem([]) is None


@pytest.mark.parametrize(
    ("labels", "keyword"),
    [
        ({"0": "background", "1": ESCAPE, "2": "b"}, "control characters"),
        ({"0": "background", "1": "liver", "2": "liver"}, "2 classes have the name liver"),
        ({"1": "background", "2": "liver"}, "2 classes have the name background"),
    ],
)
def test_a_list_of_classes(tmp_path: Path, labels: dict[str, str], keyword: str) -> None:
    root = make_scans(tmp_path / "scans")
    (root / "dataset.json").write_text(json.dumps({"labels": labels}))
    for data in (root, Sources(root / "imagesTr", root / "labelsTr")):
        with user_error(Code.DATASET_INVALID, keyword=keyword) as caught:
            read_layout(data)
        assert str(caught.value).isprintable()


def test_class_names_of_predictions(tmp_path: Path) -> None:
    Manifest("run", "", {}, ("background", ESCAPE), "last", "cpu", {}).save(tmp_path)
    with user_error(Code.DAMAGED_FILE, "manifest.json", "control characters"):
        api.evaluate(tmp_path, tmp_path)


def test_channel_names_are_printed_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(json.dumps({"channel_names": {"0": ESCAPE}}))
    assert channel_names_in(tmp_path) == (r"\x1b[2J\x1b[31mred\nnew",)
