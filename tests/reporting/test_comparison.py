from pathlib import Path
from typing import Any

import pytest
from report_fakes import Page, write_facts, write_manifest, write_predictions

from graftseg.core.predictions import PredictedCase
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.scores import read_csv
from graftseg.reporting.comparison import EvaluatedRun, comparison_section, verdict_of
from graftseg.reporting.missing import TEST_COMMAND, Commands
from graftseg.reporting.results import Results, read_results

FACTS = {"recipe": "mine"}
COMMANDS = Commands(TEST_COMMAND, TEST_COMMAND)


@pytest.fixture
def baseline(tmp_path: Path) -> RunFolder:
    other = tmp_path / "other"
    write_facts(other, recipe="theirs")
    write_predictions(other, tmp_path / "labels", {"a": 6.0, "b": 6.0, "c": 6.0})
    return RunFolder(other)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    results = read_results(
        write_predictions(tmp_path / "run", tmp_path / "other_labels", {"a": 8.0, "b": 6.0, "d": 1.0})
    )
    assert results is not None
    return results


def test_shared_cases_side_by_side(results: Results, baseline: RunFolder) -> None:
    page = Page(comparison_section(EvaluatedRun(FACTS, results), EvaluatedRun.load(baseline), COMMANDS))
    dice = {(row.case, row.label): row.dice for row in read_csv(baseline.predictions / "metrics.csv").rows}
    before = 100 * (dice["a", 1] + dice["b", 1]) / 2
    after = 100 * (1.0 + dice["b", 1]) / 2
    cells = [text for element, text in page.texts if element in ("td", "b")]
    assert cells[:4] == [f"{before:.2f}", f"{after:.2f}", f"+{after - before:.2f}", "1 / 0 / 1"]
    assert len(cells) == 3 * 4
    heads = [text for element, text in page.texts if element == "th"]
    assert heads[1:3] == ["theirs, Dice %", "mine, Dice %"]
    assert "Mean over the 2 cases evaluated in both runs" in page.text
    assert "2 cases were evaluated in only one of the runs and are left out." in page.text
    assert "rules for empty masks differ" not in page.text


def test_losses_are_shown_as_losses(results: Results, baseline: RunFolder) -> None:
    theirs = read_results(baseline.predictions)
    assert theirs is not None
    write_facts(results.folder.parent)
    page = Page(
        comparison_section(EvaluatedRun(FACTS, theirs), EvaluatedRun.load(RunFolder(results.folder.parent)), COMMANDS)
    )
    cells = [text for element, text in page.texts if element in ("td", "b")]
    assert cells[2].startswith("−")
    assert cells[3] == "0 / 1 / 1"


def test_different_protocols_are_reported(results: Results, baseline: RunFolder) -> None:
    metrics = baseline.predictions / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("standard", "paper"))
    text = Page(comparison_section(EvaluatedRun(FACTS, results), EvaluatedRun.load(baseline), COMMANDS)).text
    assert "The rules for empty masks differ: standard protocol for this run, paper protocol for the baseline." in text


def test_different_precision_is_reported(results: Results, baseline: RunFolder) -> None:
    different = "The label maps were predicted in different precision: bf16 for this run, float32 for the baseline."
    assert different not in comparison_section(EvaluatedRun(FACTS, results), EvaluatedRun.load(baseline), COMMANDS)
    # case d was not evaluated in the baseline, so its precision does not count
    predicted = [PredictedCase(case, (), f"{case}.nii.gz", 0.1, precision="bf16") for case in "ab"]
    write_manifest(results.folder, *predicted, PredictedCase("d", (), "d.nii.gz", 0.1))
    assert different in comparison_section(EvaluatedRun(FACTS, results), EvaluatedRun.load(baseline), COMMANDS)


def test_baseline_without_predictions(results: Results, baseline: RunFolder) -> None:
    (baseline.predictions / "metrics.csv").unlink()
    other = EvaluatedRun.load(baseline)
    untested = comparison_section(EvaluatedRun(FACTS, results), other, COMMANDS)
    assert "The baseline has not been evaluated." in untested
    assert "This run has not been evaluated." in comparison_section(EvaluatedRun(FACTS, None), other, COMMANDS)


def test_no_shared_case(tmp_path: Path, baseline: RunFolder) -> None:
    alone = read_results(write_predictions(tmp_path / "alone", tmp_path / "z_labels", {"z": 8.0}))
    section = comparison_section(EvaluatedRun(FACTS, alone), EvaluatedRun.load(baseline), COMMANDS)
    assert "The two runs share no evaluated case." in section


@pytest.mark.parametrize(
    ("changes", "has_verdict"),
    [
        ({"method": "supervised"}, True),
        ({"method": "mean-teacher"}, False),
        ({"method": "supervised", "store": {"labeled": ["l0", "l1", "u0"]}}, False),
    ],
)
def test_verdict_only_if_runs_differ_in_unlabeled_scans(
    tmp_path: Path, results: Results, baseline: RunFolder, changes: dict[str, Any], has_verdict: bool
) -> None:
    write_facts(baseline.path, **changes)
    write_facts(tmp_path / "run")
    verdict = verdict_of(EvaluatedRun.load(RunFolder(tmp_path / "run")), EvaluatedRun.load(baseline))
    assert (verdict is not None) == has_verdict
    assert verdict is None or verdict.startswith("Mean Dice ")


def test_no_verdict_without_a_shared_case_or_under_different_protocols(
    tmp_path: Path, results: Results, baseline: RunFolder
) -> None:
    write_facts(baseline.path, method="supervised")
    facts = RunFolder(baseline.path).manifest() | {"method": "bcp"}
    alone = read_results(write_predictions(tmp_path / "alone", tmp_path / "z_labels", {"z": 8.0}))
    assert verdict_of(EvaluatedRun(facts, results), EvaluatedRun.load(baseline)) is not None
    assert verdict_of(EvaluatedRun(facts, alone), EvaluatedRun.load(baseline)) is None
    assert verdict_of(EvaluatedRun(facts, None), EvaluatedRun.load(baseline)) is None
    assert verdict_of(EvaluatedRun(facts, results), None) is None
    metrics = baseline.predictions / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("standard", "paper"))
    assert verdict_of(EvaluatedRun(facts, results), EvaluatedRun.load(baseline)) is None
