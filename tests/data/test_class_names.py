"""Names of classes that would move the cursor or that nobody could tell apart are refused where they are read."""

import json
from pathlib import Path

import pytest
from check_fakes import make_scans

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.data.dataset import name_problem
from graftseg.data.layouts import read_layout
from graftseg.data.sources import Sources
from graftseg.planning.facts import channel_names_in

ESCAPE = "\x1b[2J\x1b[31mred\nnew"


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        (ESCAPE, r"the class '\x1b[2J\x1b[31mred\nnew' has control characters in its name"),
        ("a\tb", r"the class 'a\tb' has control characters in its name"),
        ("a\x85b", r"the class 'a\x85b' has control characters in its name"),
        ("a\u2028b", r"the class 'a\u2028b' has control characters in its name"),
        ("\ud800", r"the class '\ud800' has control characters in its name"),
        ("a\u200b", r"the class 'a\u200b' has control characters in its name"),
        ("\u202eLTR", r"the class '\u202eLTR' has control characters in its name"),
        (" ", "a class has no name"),
        ("background", "2 classes are called background"),
        ("caf\u0065\u0301", "2 classes are called caf\u00e9"),
    ],
)
def test_names_that_are_refused(name: str, finding: str) -> None:
    assert name_problem(["background", "caf\u00e9", name]) == finding


def test_names_in_any_script() -> None:
    assert name_problem(["background", "linkes Ventrikel (LV) 'a'", "肝", "می\u200cروم", "a\u00a0b"]) is None
    assert name_problem([]) is None


@pytest.mark.parametrize(
    ("labels", "finding"),
    [
        (
            {"0": "background", "1": ESCAPE, "2": "b"},
            r"dataset\.json: the class '.x1b\[2J.x1b\[31mred.nnew' has control",
        ),
        ({"0": "background", "1": "liver", "2": "liver"}, r"dataset\.json: 2 classes are called liver; give every"),
        ({"1": "background", "2": "liver"}, r"dataset\.json: 2 classes are called background"),
    ],
)
def test_a_list_of_classes(tmp_path: Path, labels: dict[str, str], finding: str) -> None:
    root = make_scans(tmp_path / "scans")
    (root / "dataset.json").write_text(json.dumps({"labels": labels}))
    for data in (root, Sources(root / "imagesTr", root / "labelsTr")):
        with pytest.raises(UserError, match=finding) as refused:
            read_layout(data)
        assert str(refused.value).isprintable()


def test_names_beside_label_maps(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"classes": ["background", ESCAPE]}))
    with pytest.raises(UserError, match=r"manifest\.json: the class .* has control characters"):
        api.evaluate(tmp_path, tmp_path)


def test_channels_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(json.dumps({"channel_names": {"0": ESCAPE}}))
    assert channel_names_in(tmp_path) == (r"\x1b[2J\x1b[31mred\nnew",)
