"""Paired comparison of runs: which runs can be compared, the table, and the written files."""

import csv
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.files import write_json
from graftseg.core.predictions import Manifest, PredictedCase
from graftseg.evaluation.comparison import HEAD, compare_runs
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.reporting.differences import difference_axis
from user_errors import user_error

SVG = "{http://www.w3.org/2000/svg}"
Scores = dict[str, float]


def write_run(
    folder: Path,
    scores: Scores,
    *,
    volume: float = 1.0,
    protocol: Protocol = "standard",
    names: tuple[str, ...] = ("atrium",),
    about: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write a record whose distances are ten times (1 - Dice)."""
    rows = [
        Row(case, label, name, *[dice, dice / 2, *[10 * (1 - dice)] * 8, volume, volume])
        for case, dice in scores.items()
        for label, name in enumerate(names, start=1)
    ]
    Evaluation(tuple(rows), protocol).write_csv(folder / "metrics.csv")
    write_json(folder / "metrics.json", {"protocol": protocol, "checkpoint": "last"} | (about or {}))
    if facts is not None:
        write_json(folder / "run.json", facts)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    first = write_run(tmp_path / "supervised", {"a": 0.5, "b": 0.6, "c": 0.9, "gone": 0.1})
    second = write_run(tmp_path / "bcp", {"a": 0.7, "b": 0.5, "c": 0.9, "new": 0.2})
    return first, second


def test_a_line_for_each_metric_and_the_cases_of_one_run_only(runs: tuple[Path, Path]) -> None:
    (comparison,) = compare_runs(runs)
    assert list(comparison.notes()) == [
        f"first: {runs[0]} (checkpoint: last)",
        f"second: {runs[1]} (checkpoint: last)",
        "cases left out, since only the first run has them: gone",
        "cases left out, since only the second run has them: new",
    ]
    lines = [dict(zip(HEAD, line, strict=True)) for line in comparison.table_rows()]
    assert [line["metric"] for line in lines] == ["Dice %", "Jaccard %", "95HD voxel", "ASD voxel"]
    dice, _, hd95, _ = lines
    assert (dice["class"], dice["cases"]) == ("atrium", "3")
    assert (dice["first"], dice["second"], dice["difference"]) == ("66.67", "70.00", "+3.33")
    assert (dice["p"], dice["better/worse/equal"]) == ("1", "1/1/1")
    assert dice["95 % interval"] == "-10.00 to +20.00"
    assert (hd95["difference"], hd95["better/worse/equal"]) == ("-0.33", "1/1/1")


def test_different_precision_of_the_same_cases_is_named(runs: tuple[Path, Path]) -> None:
    for run, shared in zip(runs, ("bf16", "float32"), strict=True):
        cases = [PredictedCase(case, (), f"{case}.nii.gz", 0.1, precision=shared) for case in "abc"]
        other = [PredictedCase(case, (), f"{case}.nii.gz", 0.1) for case in ("gone", "new")]
        Manifest("run", "", {}, (), "last", "cpu", {}, (*cases, *other)).save(run)
    (comparison,), (same,) = compare_runs(runs), compare_runs([runs[1], write_run(runs[0].parent / "x", {"a": 0.5})])
    assert comparison.precisions == ["bf16", "float32"] and same.precisions is None
    assert "the label maps were predicted in different precision: bf16 (first) and float32 (second)" in [
        *comparison.notes()
    ]


def test_a_single_case_has_no_interval(tmp_path: Path) -> None:
    (comparison,) = compare_runs([write_run(tmp_path / name, {"a": dice}) for name, dice in (("x", 0.5), ("y", 0.6))])
    assert comparison.table_rows()[0][5:8] == ("+10.00", "-", "1")


def test_every_run_is_compared_with_the_first(runs: tuple[Path, Path], tmp_path: Path) -> None:
    third = write_run(tmp_path / "third", {"a": 0.5, "b": 0.6, "c": 0.9, "gone": 0.1})
    found = api.compare(*runs, third)
    assert [(comparison.first.path, comparison.second.path) for comparison in found] == [
        (str(runs[0]), str(runs[1])),
        (str(runs[0]), str(third)),
    ]
    assert found[1].table_rows()[0][5:] == ("+0.00", "+0.00 to +0.00", "1", "0/0/4")


def test_written_files(runs: tuple[Path, Path], tmp_path: Path) -> None:
    third = write_run(tmp_path / "third <&>", {"a": 0.5, "b": 0.6, "c": 0.9})
    out = tmp_path / "out"
    api.compare(*runs, third, out=out)
    assert sorted(path.name for path in out.iterdir()) == ["comparison.csv", "comparison.json", "comparison.svg"]
    lines = list(csv.DictReader((out / "comparison.csv").open()))
    assert [(line["second_run"], line["figure"]) for line in lines[3:5]] == [
        (str(runs[1]), "asd"),
        (str(third), "dice"),
    ]
    assert float(lines[0]["difference"]) == pytest.approx(10 / 3)
    assert (lines[0]["unit"], lines[2]["unit"], lines[0]["label"], lines[0]["equal"]) == ("percent", "voxel", "1", "1")
    one, _ = json.loads((out / "comparison.json").read_text())
    assert (one["only_first"], one["only_second"], one["protocol"]) == (["gone"], ["new"], "standard")
    assert one["figures"][0]["differences"] == {"a": 20.0, "b": -10.0, "c": 0.0}
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    api.compare(*runs, third, out=out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_picture_has_a_dot_for_each_pair_and_needs_no_other_file(runs: tuple[Path, Path], tmp_path: Path) -> None:
    api.compare(*runs, out=tmp_path / "out")
    text = (tmp_path / "out" / "comparison.svg").read_text()
    tree = ElementTree.fromstring(text)
    assert tree.tag == f"{SVG}svg" and "href" not in text and "url(" not in text
    dots = [dot for dot in tree.iter(f"{SVG}circle") if dot.get("class") == "case"]
    assert len(dots) == 4 * 3
    axis = difference_axis([20.0, -10.0])
    assert axis.ticks == (-10.0, 0.0, 10.0, 20.0)
    assert [float(dot.get("cx", 0)) for dot in dots[:3]] == pytest.approx(
        [axis.at(value) for value in (20, -10, 0)], abs=0.06
    )
    assert [axis.at(value) for value in (-10, 20)] == [230.0, 736.0]
    assert dots[0][0].text == "a: 20"
    kinds = [line.get("class") for line in tree.iter(f"{SVG}line")]
    assert (kinds.count("zero"), kinds.count("interval")) == (4, 4)


def test_nothing_is_written_without_a_folder(runs: tuple[Path, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    api.compare(*runs)
    assert sorted(tmp_path.rglob("*")) == before


def test_runs_that_cannot_be_compared(runs: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = runs
    with user_error(Code.OPTION_INVALID, "compare"):
        compare_runs([first])
    with user_error(Code.OPTION_INVALID, first, "twice"):
        compare_runs([first, second, first])
    renumbered = write_run(tmp_path / "renumbered", {"a": 0.5})
    table = renumbered / "metrics.csv"
    table.write_text(table.read_text().replace("standard,a,1,", "standard,a,3,"))
    cases = {
        "protocol paper": write_run(tmp_path / "paper", {"a": 0.5}, protocol="paper"),
        "myocardium (1), ventricle (2)": write_run(tmp_path / "acdc", {"a": 0.5}, names=("myocardium", "ventricle")),
        "atrium (3)": renumbered,
        "same references": write_run(tmp_path / "elsewhere", {"z": 0.5}),
        "2 ml": write_run(tmp_path / "larger", {"a": 0.5}, volume=2.0),
    }
    for keyword, other in cases.items():
        with user_error(Code.NOT_COMPARABLE, other, keyword):
            compare_runs([first, other])


def test_damaged_scores_are_an_error(runs: tuple[Path, Path]) -> None:
    (runs[1] / "metrics.csv").write_text("")
    with user_error(Code.DAMAGED_FILE, runs[1] / "metrics.csv", "graftseg evaluate"):
        compare_runs(runs)


def test_images_without_volumes_need_known_references(tmp_path: Path) -> None:
    """2-D images have no volume; equal case names do not prove equal references."""
    nothing = float("nan")
    plain = [write_run(tmp_path / name, {"a": 0.5}, volume=nothing) for name in "xy"]
    with user_error(Code.NOT_COMPARABLE, plain[1], "same references"):
        compare_runs(plain)
    here = {"references": "/data/labelsTs"}
    assert compare_runs([write_run(tmp_path / name, {"a": 0.5}, volume=nothing, about=here) for name in "pq"])
    store = {"store": {"identity": "f00"}}
    known = [write_run(tmp_path / name, {"a": 0.5}, volume=nothing, facts=store) for name in "rs"]
    assert compare_runs(known)
    other = write_run(tmp_path / "t", {"z": 0.5}, volume=nothing, facts=store)
    with user_error(Code.NOT_COMPARABLE, other, "no case in common"):
        compare_runs([known[0], other])


def test_a_store_whose_test_cases_changed_has_other_references(tmp_path: Path) -> None:
    """The path of the store and the identity of its training cases are still the same."""
    facts = {"store": {"identity": "f00"}}
    runs = [
        write_run(
            tmp_path / name, {"a": 0.5}, volume=math.nan, about={"references": "/s", "tested_on": on}, facts=facts
        )
        for name, on in (("x", "e0"), ("y", "e0"), ("z", "e1"))
    ]
    assert compare_runs(runs[:2])
    with user_error(Code.NOT_COMPARABLE, runs[2], "same references"):
        compare_runs([runs[0], runs[2]])


def test_scores_against_references_in_different_places_are_not_paired(tmp_path: Path) -> None:
    """2-D images have no volume, so only the paths of the references can differ."""
    for name, place in (("one", "labels"), ("two", "other-labels")):
        write_run(tmp_path / name / "predictions", {"a": 0.5}, volume=math.nan, about={"references": f"/data/{place}"})
        write_json(tmp_path / name / "run.json", {"store": {"identity": "f00"}})
    with user_error(Code.NOT_COMPARABLE, tmp_path / "two", "same references"):
        compare_runs([tmp_path / "one", tmp_path / "two"])
    write_run(tmp_path / "three" / "predictions", {"a": 0.5}, volume=math.nan, about={})
    write_json(tmp_path / "three" / "run.json", {"store": {"identity": "f00"}})
    assert len(compare_runs([tmp_path / "one", tmp_path / "three"])) == 1


def test_equal_weights_are_noted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run" / "predictions", {"a": 0.5}).parent
    write_json(run / "run.json", {"weights": "f00"})
    record = write_run(tmp_path / "record", {"a": 0.5}, about={"weights": "f00"})
    other = write_run(tmp_path / "other", {"a": 0.5}, about={"weights": "f01"})
    words = "both runs have the same weights"
    assert [words in comparison.notes() for comparison in compare_runs([run, record, other])] == [True, False]
    plain = [write_run(tmp_path / name, {"a": 0.5}) for name in "xy"]
    assert words not in compare_runs(plain)[0].notes()


def test_runs_records_and_folders_of_label_maps_are_compared(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """A run folder has its scores in predictions/ and its facts in run.json."""
    write_run(tmp_path / "run" / "predictions", {"a": 0.5}, about={"checkpoint": "best on test, step 4"})
    write_json(tmp_path / "run" / "run.json", {"store": {"identity": "f00"}})
    (comparison,) = compare_runs([tmp_path / "run", runs[0]])
    assert (comparison.first.checkpoint, comparison.first.trained_on) == ("best on test, step 4", "f00")
    (comparison,) = compare_runs([tmp_path / "run" / "predictions", runs[0]])
    assert comparison.first.trained_on == "f00"
    (tmp_path / "untested").mkdir()
    for name in ("run.json", "recipe.yaml"):
        (tmp_path / "untested" / name).write_text("{}")
    (tmp_path / "several" / "seed-0").mkdir(parents=True)
    for name, keyword in (("untested", "graftseg test RUN"), ("several", "seed-0"), ("absent", "metrics.csv")):
        with user_error(Code.NOT_TESTED, tmp_path / name, keyword):
            compare_runs([runs[0], tmp_path / name])


def test_the_real_records_can_be_compared() -> None:
    root = Path(__file__).parents[2] / "results" / "demo-2d"
    (comparison,) = api.compare(root / "supervised", root / "bcp")
    assert {len(pairs.cases) for pairs, _ in comparison.effects} == {40}
    assert [line[1] for line in comparison.table_rows()[:4]] == ["crescent", "ring", "core", "mean"]
