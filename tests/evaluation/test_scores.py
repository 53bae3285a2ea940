"""Rows of scores, their summary, and the CSV table that stores them."""

import csv
import json
import math
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg.core.errors import Code
from graftseg.core.files import write_json
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import LATER_COLUMNS, Evaluation, Row, check_table_path, read_csv
from user_errors import user_error

CLASSES = {1: "left", 2: "right"}


def row_of(case: str = "a", label: int = 1, **changes: Any) -> Row:
    return replace(Row(case, label, CLASSES[label], *[0.5] * 12), **changes)


def test_the_description_contains_the_summary_of_each_class(tmp_path: Path) -> None:
    rows = (
        row_of("a", 1, dice=0.2, volume_prediction_ml=3.0, volume_reference_ml=2.0),
        row_of("b", 1, dice=0.6, volume_prediction_ml=1.0, volume_reference_ml=2.0, asd=math.nan),
        row_of("a", 2, volume_prediction_ml=math.nan, volume_reference_ml=math.nan),
    )
    write_json(tmp_path / "metrics.json", Evaluation(rows, "standard").description())
    said = json.loads((tmp_path / "metrics.json").read_text())
    assert (said["protocol"], said["rows"], [one["name"] for one in said["classes"]]) == (
        "standard",
        3,
        ["left", "right"],
    )
    left, right = said["classes"]
    assert left["dice"] == {"mean": 0.4, "std": pytest.approx(0.08**0.5), "count": 2}
    assert left["asd"] == {"mean": 0.5, "std": None, "count": 1}
    assert left["volume_error_ml"] == {"mean": 0.0, "std": pytest.approx(2**0.5), "count": 2}
    assert left["volume_error_percent"] == {"mean": 0.0, "std": pytest.approx(50 * 2**0.5), "count": 2}
    assert right["volume_error_ml"] == {"mean": None, "std": None, "count": 0}
    assert said["overall"]["dice"] == pytest.approx(0.45)
    check_table_path(tmp_path / "metrics.csv")


def test_volume_errors_are_computed_if_their_columns_are_missing(tmp_path: Path) -> None:
    row, table = row_of(volume_prediction_ml=3.0, volume_reference_ml=2.0), tmp_path / "metrics.csv"
    Evaluation((row,), "standard").write_csv(table)
    (line,) = csv.DictReader(table.read_text().splitlines())
    assert (line.pop("volume_error_ml"), line.pop("volume_error_percent")) == ("1.0", "50.0")
    columns = [name for name in line if name not in LATER_COLUMNS]
    table.write_text(f"{','.join(columns)}\n{','.join(line[name] for name in columns)}\n")
    assert read_csv(table).rows == (row,)
    assert read_csv(table).rows[0].volume_error_percent == 50


def test_only_an_earlier_description_is_replaced(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    check_table_path(table)
    (tmp_path / "metrics.json").write_text('{"references": "labelsTs", "protocol": "paper"}')
    check_table_path(table)
    for content in ('{"labels": {}}', "[]"):
        (tmp_path / "metrics.json").write_text(content)
        with user_error(Code.UNSAFE_TARGET, table, "metrics.json"):
            check_table_path(table)
    for name in ("x.json", "x", "x.csv.gz"):
        with user_error(Code.OPTION_INVALID, name, ".csv"):
            check_table_path(tmp_path / name)


def test_the_summary_is_a_mean_over_classes_of_means_over_cases() -> None:
    rows = (
        row_of("a", 1, dice=0.2, asd=2.0),
        row_of("b", 1, dice=0.6, asd=math.nan),
        row_of("a", 2, dice=1.0, asd=math.nan),
    )
    summary = Evaluation(rows, "paper").summary()
    left, right = summary.classes
    assert (left.label, left.name, right.label, right.name) == (1, "left", 2, "right")
    assert astuple(left.metrics["dice"]) == pytest.approx((0.4, 0.08**0.5, 2))
    assert astuple(left.metrics["asd"]) == pytest.approx((2.0, math.nan, 1), nan_ok=True)
    assert astuple(right.metrics["dice"]) == pytest.approx((1.0, math.nan, 1), nan_ok=True)
    assert astuple(right.metrics["asd"]) == pytest.approx((math.nan, math.nan, 0), nan_ok=True)
    assert summary.overall["dice"] == pytest.approx(0.7)
    assert summary.overall["asd"] == 2.0
    assert summary.overall["assd_mm"] == 0.5


def test_the_csv_file_names_its_units_and_leaves_nan_empty(tmp_path: Path) -> None:
    Evaluation((row_of(hd95=math.nan, dice=1 / 3),), "paper").write_csv(tmp_path / "metrics.csv")
    with (tmp_path / "metrics.csv").open(newline="") as stream:
        (line,) = csv.DictReader(stream)
    assert list(line) == [
        *("protocol", "case", "label", "name", "dice", "jaccard"),
        *("hd95_voxel", "hd95_max_voxel", "asd_voxel", "assd_voxel"),
        *("hd95_mm", "hd95_max_mm", "asd_mm", "assd_mm", "volume_prediction_ml", "volume_reference_ml"),
        *("volume_error_ml", "volume_error_percent", "surface_dice", "tolerance_mm"),
    ]
    assert line["protocol"] == "paper"
    assert line["hd95_voxel"] == ""
    assert line["dice"] == "0.3333333333333333"


WORDS = st.text(st.characters(codec="utf-8"))
NUMBERS = st.floats(0, allow_infinity=False, allow_nan=False)


def tables_of(label: int, name: str) -> st.SearchStrategy[list[Row]]:
    """Draw rows of one class in one to three cases."""
    one = st.builds(Row, WORDS, st.just(label), st.just(name), *[st.floats(0, 1)] * 2, *[NUMBERS] * 10)
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda row: row.case)


ROWS = st.tuples(st.integers(1, 65535), WORDS).flatmap(lambda of: tables_of(*of))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.sampled_from(["standard", "paper"]))
def test_a_csv_file_is_read_as_it_was_written(tmp_path: Path, rows: list[Row], protocol: Protocol) -> None:
    evaluation = Evaluation(tuple(rows), protocol)
    evaluation.write_csv(tmp_path / "metrics.csv")
    assert read_csv(tmp_path / "metrics.csv") == evaluation


def test_tables_of_older_versions_have_no_surface_dice(tmp_path: Path) -> None:
    path, row = tmp_path / "metrics.csv", row_of(surface_dice=0.25, tolerance_mm=2.0)
    Evaluation((row,), "standard").write_csv(path)
    evaluation = read_csv(path)
    assert (evaluation.rows, evaluation.tolerance) == ((row,), 2.0)
    assert evaluation.summary().overall["surface_dice"] == 0.25
    path.write_text("".join(line.rsplit(",", 2)[0] + "\n" for line in path.read_text().splitlines()))
    older = read_csv(path)
    assert (older.rows, older.tolerance) == ((row_of(),), None)
    assert "surface" not in str(older) and "surface Dice %" in str(evaluation)


def test_nan_reads_back(tmp_path: Path) -> None:
    flat = row_of(volume_prediction_ml=math.nan, volume_reference_ml=math.nan)
    Evaluation((flat,), "standard").write_csv(tmp_path / "metrics.csv")
    (row,) = read_csv(tmp_path / "metrics.csv").rows
    assert math.isnan(row.volume_prediction_ml)
    assert replace(row, volume_prediction_ml=0.5, volume_reference_ml=0.5) == row_of()


@pytest.mark.parametrize(
    ("change", "code", "keyword"),
    [
        (lambda text: "", Code.DAMAGED_FILE, "0 rows"),
        (lambda text: text.split("\n")[0], Code.DAMAGED_FILE, "0 rows"),
        (lambda text: text.replace("jaccard", "overlap"), Code.DAMAGED_FILE, "jaccard"),
        (lambda text: text[:-20], Code.DAMAGED_FILE, "cells"),
        (lambda text: text + "standard,1\n", Code.DAMAGED_FILE, "cells"),
        (lambda text: text.replace("0.25", "a quarter"), Code.DAMAGED_FILE, "a quarter"),
        (lambda text: text.replace("standard", "kind"), Code.OPTION_INVALID, "'kind'"),
        (lambda text: text.replace("standard", "paper", 1), Code.DAMAGED_FILE, "2 protocols"),
        (lambda text: text + '"', Code.DAMAGED_FILE, "end of data"),
        (lambda text: text.replace("0.25", "1e309"), Code.DAMAGED_FILE, "out of range"),
    ],
)
def test_a_damaged_csv_file_is_an_error(tmp_path: Path, change: Any, code: Code, keyword: str) -> None:
    path = tmp_path / "metrics.csv"
    Evaluation((row_of("a", dice=0.25), row_of("b")), "standard").write_csv(path)
    path.write_text(change(path.read_text()))
    with user_error(code, path, keyword):
        read_csv(path)


def test_an_unreadable_csv_file_is_an_error(tmp_path: Path) -> None:
    with user_error(Code.READ_FAILED, "absent.csv"):
        read_csv(tmp_path / "absent.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with user_error(Code.DAMAGED_FILE, "bytes.csv"):
        read_csv(tmp_path / "bytes.csv")


def test_repr_of_a_single_case_and_class() -> None:
    assert repr(Evaluation((row_of(),), "paper")) == "<Evaluation of 1 case, 1 class, paper protocol>"


def test_write_csv_takes_a_string_path(tmp_path: Path) -> None:
    evaluation = Evaluation((row_of(),), "standard")
    evaluation.write_csv(str(tmp_path / "scores.csv"))
    assert read_csv(tmp_path / "scores.csv") == evaluation
