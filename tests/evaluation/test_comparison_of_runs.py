"""Runs beside one another: which can be compared, what is said of them, and what is written."""

import csv
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import write_json
from graftseg.evaluation.comparison import HEAD, compare_runs
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.reporting.differences import Scale

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
    """A record whose distances are ten times what its Dice lacks."""
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


def test_a_line_for_each_figure_and_the_cases_of_one_run_only(runs: tuple[Path, Path]) -> None:
    (beside,) = compare_runs(runs)
    assert list(beside.said()) == [
        f"first: {runs[0]} (checkpoint: last)",
        f"second: {runs[1]} (checkpoint: last)",
        "left out, since only the first run has them: gone",
        "left out, since only the second run has them: new",
    ]
    lines = [dict(zip(HEAD, line, strict=True)) for line in beside.lines()]
    assert [line["figure"] for line in lines] == ["Dice %", "Jaccard %", "95HD voxel", "ASD voxel"]
    dice, _, hd95, _ = lines
    assert (dice["class"], dice["cases"]) == ("atrium", "3")
    assert (dice["first"], dice["second"], dice["difference"]) == ("66.67", "70.00", "+3.33")
    assert (dice["p"], dice["better/worse/equal"]) == ("1", "1/1/1")
    assert dice["95 % interval"] == "-10.00 to +20.00"
    assert (hd95["difference"], hd95["better/worse/equal"]) == ("-0.33", "1/1/1")


def test_a_single_case_has_no_interval(tmp_path: Path) -> None:
    (beside,) = compare_runs([write_run(tmp_path / name, {"a": dice}) for name, dice in (("x", 0.5), ("y", 0.6))])
    assert beside.lines()[0][5:8] == ("+10.00", "-", "1")


def test_every_run_stands_beside_the_first(runs: tuple[Path, Path], tmp_path: Path) -> None:
    third = write_run(tmp_path / "third", {"a": 0.5, "b": 0.6, "c": 0.9, "gone": 0.1})
    found = api.compare(*runs, third)
    assert [(beside.first.name, beside.second.name) for beside in found] == [
        (str(runs[0]), str(runs[1])),
        (str(runs[0]), str(third)),
    ]
    assert found[1].lines()[0][5:] == ("+0.00", "+0.00 to +0.00", "1", "0/0/4")


def test_what_is_written(runs: tuple[Path, Path], tmp_path: Path) -> None:
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
    scale = Scale.over([20.0, -10.0])
    assert scale.ticks == (-10.0, 0.0, 10.0, 20.0)
    assert [float(dot.get("cx", 0)) for dot in dots[:3]] == pytest.approx(
        [scale.x(value) for value in (20, -10, 0)], abs=0.06
    )
    assert [scale.x(value) for value in (-10, 20)] == [230.0, 736.0]
    assert dots[0][0].text == "a: 20"
    kinds = [line.get("class") for line in tree.iter(f"{SVG}line")]
    assert (kinds.count("zero"), kinds.count("interval")) == (4, 4)


def test_nothing_is_written_without_a_folder(runs: tuple[Path, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    api.compare(*runs)
    assert sorted(tmp_path.rglob("*")) == before


def refused(*folders: Path) -> str:
    with pytest.raises(UserError) as caught:
        compare_runs(folders)
    return str(caught.value)


def test_runs_that_cannot_be_compared(runs: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = runs
    assert refused(first) == "compare: 1 run given; name two runs or more."
    assert f"{first}: given twice" in refused(first, second, first)
    other = write_run(tmp_path / "paper", {"a": 0.5}, protocol="paper")
    assert f"{other}: scored under the protocol paper, and {first} under standard; evaluate both" in refused(
        first, other
    )
    other = write_run(tmp_path / "acdc", {"a": 0.5}, names=("myocardium", "ventricle"))
    assert f"its classes are myocardium, ventricle, and not atrium as those of {first}" in refused(first, other)
    table = write_run(tmp_path / "renumbered", {"a": 0.5}, names=("x", "y")) / "metrics.csv"
    table.write_text(table.read_text().replace("standard,a,2,y", "standard,a,3,y"))
    other = write_run(tmp_path / "numbers", {"a": 0.5}, names=("x", "y"))
    assert f"its classes are x (1), y (2), and not x (1), y (3) as those of {table.parent}" in refused(
        table.parent, other
    )
    other = write_run(tmp_path / "elsewhere", {"z": 0.5})
    assert "nothing tells that it was scored against the same references" in refused(first, other)
    other = write_run(tmp_path / "larger", {"a": 0.5}, volume=2.0)
    assert f"the reference of a is of 2 ml, and of 1 ml for {first}; compare runs on the same data" in refused(
        first, other
    )


def test_damaged_scores_are_told_with_what_makes_them_anew(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (runs[1] / "metrics.csv").write_text("")
    assert "metrics.csv: no line of metrics in it; make it anew with graftseg evaluate" in refused(*runs)
    write_json(runs[1] / "run.json", {})
    assert "metrics.csv: no line of metrics in it; record the run again" in refused(*runs)


def test_a_score_that_is_gone_is_not_passed_over(runs: tuple[Path, Path]) -> None:
    path = runs[1] / "metrics.csv"
    path.write_text(path.read_text().replace("0.7", "nan", 1))
    assert refused(*runs) == f"{path}: dice of class 1 of a is empty; make it anew with graftseg evaluate."


def test_images_without_volumes_need_another_witness(tmp_path: Path) -> None:
    """In 2-D the names of cases could be those of other images."""
    nothing = float("nan")
    plain = [write_run(tmp_path / name, {"a": 0.5}, volume=nothing) for name in "xy"]
    assert "nothing tells that it was scored against the same references" in refused(*plain)
    here = {"references": "/data/labelsTs"}
    assert compare_runs([write_run(tmp_path / name, {"a": 0.5}, volume=nothing, about=here) for name in "pq"])
    store = {"store": {"identity": "f00"}}
    known = [write_run(tmp_path / name, {"a": 0.5}, volume=nothing, facts=store) for name in "rs"]
    assert compare_runs(known)
    other = write_run(tmp_path / "t", {"z": 0.5}, volume=nothing, facts=store)
    assert f"no case in common with {known[0]}" in refused(known[0], other)


def test_scores_against_references_in_different_places_are_not_paired(tmp_path: Path) -> None:
    """Images have no volume that could tell their references apart, and a run and its baseline share their store."""
    for name, place in (("one", "labels"), ("two", "other-labels")):
        write_run(tmp_path / name / "predictions", {"a": 0.5}, volume=math.nan, about={"references": f"/data/{place}"})
        write_json(tmp_path / name / "run.json", {"store": {"identity": "f00"}})
    assert "nothing tells that it was scored against the same references" in refused(tmp_path / "one", tmp_path / "two")
    write_run(tmp_path / "three" / "predictions", {"a": 0.5}, volume=math.nan, about={})
    write_json(tmp_path / "three" / "run.json", {"store": {"identity": "f00"}})
    assert len(compare_runs([tmp_path / "one", tmp_path / "three"])) == 1


def test_a_run_beside_its_own_record_is_said_to_be_one_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run" / "predictions", {"a": 0.5}).parent
    write_json(run / "run.json", {"weights": "f00"})
    record = write_run(tmp_path / "record", {"a": 0.5}, about={"weights": "f00"})
    other = write_run(tmp_path / "other", {"a": 0.5}, about={"weights": "f01"})
    words = "both are of the same network: one run, or two that ended alike"
    assert [words in beside.said() for beside in compare_runs([run, record, other])] == [True, False]
    plain = [write_run(tmp_path / name, {"a": 0.5}) for name in "xy"]
    assert words not in compare_runs(plain)[0].said()


def test_folders_of_every_kind(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """A run's folder has its scores, its manifest and its facts in different places."""
    write_run(tmp_path / "run" / "predictions", {"a": 0.5}, about={"checkpoint": "best on test, step 4"})
    write_json(tmp_path / "run" / "run.json", {"store": {"identity": "f00"}})
    (beside,) = compare_runs([tmp_path / "run", runs[0]])
    assert (beside.first.checkpoint, beside.first.identity) == ("best on test, step 4", "f00")
    (beside,) = compare_runs([tmp_path / "run" / "predictions", runs[0]])
    assert beside.first.identity == "f00"
    (tmp_path / "untested").mkdir()
    for name in ("run.json", "recipe.yaml"):
        (tmp_path / "untested" / name).write_text("{}")
    assert "the run has not been tested; test it with graftseg test RUN" in refused(runs[0], tmp_path / "untested")
    (tmp_path / "several" / "seed-0").mkdir(parents=True)
    assert "holds several runs; name one of them, such as" in refused(runs[0], tmp_path / "several")
    assert "neither a tested run nor a record" in refused(runs[0], tmp_path / "absent")


def test_the_real_records_can_be_compared() -> None:
    root = Path(__file__).parents[2] / "results" / "demo-2d"
    (beside,) = api.compare(root / "supervised", root / "bcp")
    assert {len(pairs.cases) for pairs, _ in beside.effects} == {40}
    assert [line[1] for line in beside.lines()[:4]] == ["crescent", "ring", "core", "mean"]


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.json", "run.json", "log.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_damaged_record_has_one_remedy(runs: tuple[Path, Path], name: str, content: bytes) -> None:
    write_json(runs[1] / "run.json", {"variant": "", "steps": 2})
    (runs[1] / "log.jsonl").write_text('{"global_step": 2, "total": 1.0}\n')
    assert compare_runs(runs)
    (runs[1] / name).write_bytes(content)
    assert (told := refused(*runs)).startswith(f"{runs[1] / name}: ") and told.endswith("; record the run again.")


def test_a_record_without_its_scores(runs: tuple[Path, Path]) -> None:
    write_json(runs[1] / "run.json", {"variant": "", "steps": 2})
    (runs[1] / "recipe.yaml").write_text("{}")
    sentence = f"{runs[1]}: there is no metrics.csv in the record; record the run again."
    for name in ("metrics.csv", "metrics.json"):
        (runs[1] / name).unlink()
        assert refused(*runs) == sentence
