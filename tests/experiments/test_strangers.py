"""The table of planned recipes with nothing set by hand."""

import json
from pathlib import Path

from graftseg import api
from graftseg.core.errors import Code
from graftseg.experiments.strangers import strangers_page
from user_errors import user_error


def write(
    folder: Path, name: str, supervised: float, shipped: float, lost: list[str], *, all_labeled: bool = False
) -> None:
    scores = {"supervised": {"a": supervised, "b": supervised + 2}, "unlabeled": {"a": 50, "b": 52}}
    kind = {"data": "thin", "device": "cpu", "labeled": 6, "all_labeled": all_labeled}
    record = {**kind, **scores, "shipped": {"a": shipped, "b": shipped + 2}, "lost": lost}
    (folder / "strangers").mkdir(parents=True, exist_ok=True)
    (folder / "strangers" / f"{name}.json").write_text(json.dumps(record))


def test_runs_of_the_same_data_are_averaged(tmp_path: Path) -> None:
    write(tmp_path, "one", 60, 63, [])
    write(tmp_path, "two", 70, 69, ["ring"])
    (row,) = (line for line in api.table("strangers", tmp_path).splitlines() if line.startswith("| thin"))
    assert row == "| thin | cpu | 6 | 2 | 66.00 | 51.00 | 67.00 | +1.00 | -1.00 | - | 1 |"


def test_the_run_with_all_labels_is_a_column(tmp_path: Path) -> None:
    write(tmp_path, "one", 60, 63, [])
    write(tmp_path, "two", 80, 80, [], all_labeled=True)
    (row,) = (line for line in strangers_page(tmp_path).splitlines() if line.startswith("| thin"))
    assert row == "| thin | cpu | 6 | 1 | 61.00 | 51.00 | 64.00 | +3.00 | +3.00 | 81.00 | 0 |"


def test_a_damaged_record(tmp_path: Path) -> None:
    write(tmp_path, "one", 60, 63, [])
    path = tmp_path / "strangers" / "one.json"
    path.write_text('{"data": "thin"}')
    with user_error(Code.DAMAGED_FILE, path):
        strangers_page(tmp_path)
