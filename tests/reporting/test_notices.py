import json
from pathlib import Path
from typing import Any

from report_fakes import Page, write_facts, write_run

from graftseg.core.errors import Code
from graftseg.core.files import write_checked
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.reporting.notices import Notice, notices_of
from graftseg.reporting.run_page import render_report
from user_errors import user_error

CHECK: dict[str, Any] = {"stage": 1, "scans": 5, "rejected": {"u1": "no foreground"}, "decision": "continue"}
SKIP = CHECK | {"decision": "skip"}
CHECKED = "The predictions of 1 of 5 unlabeled scans are implausible (1 with no foreground); "


def write_checks(run: Path, *checks: dict[str, Any]) -> None:
    (run / "teacher.json").write_text(json.dumps({"checks": checks}))


def test_a_run_without_notices(tmp_path: Path) -> None:
    assert notices_of(RunFolder(write_run(tmp_path))) == []


def test_network_checks_and_warnings_in_order(tmp_path: Path) -> None:
    run = RunFolder(write_run(tmp_path))
    write_facts(run.path, warnings=["class <core> (0.0 %) not learned"])
    run.ship(Shipped("baseline", "it is better"))
    write_checks(run.path, CHECK, SKIP)
    assert notices_of(run) == [
        Notice("Network for prediction", "The supervised baseline (it is better)."),
        Notice("Check of unlabeled scans", f"{CHECKED}self-training uses the other 4."),
        Notice("Check of unlabeled scans", f"{CHECKED}training continues without the unlabeled scans.", True),
        Notice("Warning", "Class <core> (0.0 %) not learned.", True),
    ]


def test_notices_are_above_the_results_and_escaped(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    write_facts(run, warnings=["class <core> not learned"])
    text = render_report(run).read_text()
    assert text.index("Class &lt;core&gt; not learned.") < text.index('<section id="results"')
    assert [name for name in Page(text).attributes("class") if name.startswith("state")] == ["state"]


def test_folds_are_named(tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_text(json.dumps({"folds": [{"held_out": ["a"]}, {"held_out": ["b"]}]}))
    run = RunFolder(tmp_path)
    run.ship(Shipped("run", "why"))
    write_facts(run.fold(0).path)
    write_facts(run.fold(1).path, warnings=["x"])
    write_checks(run.fold(0).path, CHECK)
    titles = [notice.title for notice in notices_of(run)]
    assert titles == ["Network for prediction", "Check of unlabeled scans, fold 0", "Warning, fold 1"]


def test_a_damaged_check_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    write_checked(run / "teacher.json", {"checks": [CHECK]})
    content = json.loads((run / "teacher.json").read_text())
    (run / "teacher.json").write_text(json.dumps(content | {"checks": []}))
    with user_error(Code.DAMAGED_FILE, run / "teacher.json"):
        notices_of(RunFolder(run))
