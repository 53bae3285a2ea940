"""The table of planned recipes with nothing set by hand."""

import json
from pathlib import Path
from typing import Any

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
    change(folder, name, record)


def change(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Write a record, or change the one of this name."""
    file = folder / "strangers" / "cpu.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    records = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(records | {name: records.get(name, {}) | record}))


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


def criteria(folder: Path) -> dict[str, list[str]]:
    page = strangers_page(folder)
    rows = [line.strip("| ").split(" | ") for line in page[page.index("| criterion") :].splitlines()[2:8]]
    return {name: cells for name, *cells in rows}


def test_the_criteria_of_all_runs(tmp_path: Path) -> None:
    for number, gain in enumerate((3, 0, -0.5, -2)):
        write(tmp_path, str(number), 60, 60 + gain, ["ring"] if number == 3 else [])
    # in one case shipped is better, in the other worse
    change(tmp_path, "2", {"shipped": {"a": 63, "b": 58}})
    found = criteria(tmp_path)
    assert found["shipped is at least as good as supervised"][1] == "2 of 4 runs (50.0 %)"
    assert found["shipped is not worse within noise"][1] == "3 of 4 runs (75.0 %)"
    assert found["worst gain of a run"][1:] == ["-2.00", "thin (cpu)"]
    assert found["lost classes"][1].strip(" |") == "1"
    assert found["mean gain above 0"][1].strip(" |") == "1 of 1"


def test_large_gains_are_required_far_below_the_bound(tmp_path: Path) -> None:
    write(tmp_path, "one", 60, 61.5, [])
    name = "mean gain above 2 where supervised is more than 8 below all labels"
    assert criteria(tmp_path)[name][1:] == ["0 of 0", "thin (cpu), 6 labeled: not recorded"]
    write(tmp_path, "two", 68, 68, [], all_labeled=True)
    assert criteria(tmp_path)[name][1].strip(" |") == "0 of 0"
    write(tmp_path, "two", 69, 69, [], all_labeled=True)
    assert criteria(tmp_path)[name][1:] == ["0 of 1", "thin (cpu), 6 labeled: +1.50"]


def test_a_damaged_record(tmp_path: Path) -> None:
    write(tmp_path, "one", 60, 63, [])
    path = tmp_path / "strangers" / "cpu.json"
    path.write_text('{"one": {"data": "thin"}}')
    with user_error(Code.DAMAGED_FILE, path):
        strangers_page(tmp_path)
