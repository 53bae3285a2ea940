import math
from dataclasses import replace
from pathlib import Path

import pytest
from report_fakes import CASES, CLASSES, Page, write_predictions

from graftseg.core.errors import Code
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.reporting.results import (
    Results,
    case_dice,
    mean,
    read_results,
    results_section,
    used_checkpoint,
)
from user_errors import user_error


def row(case: str, label: int, dice: float, hd95: float = 2.0) -> Row:
    distances = (hd95, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    return Row(case, label, f"class {label}", dice, dice / 2, *distances, 0.5, 1.0)


OPTIMISTIC = "This checkpoint was selected on the test cases, so the scores are optimistic."
DISTANCES = ["95HD voxel", "95HD mm", "ASD voxel", "ASD mm"]
ROWS = (row("good", 1, 0.9), row("good", 2, 0.8), row("bad", 1, 0.5), row("bad", 2, 0.2, math.nan))
RESULTS = Results(Path("x"), Evaluation(ROWS, "paper"), None)


def cells(html: str) -> list[list[str]]:
    """Return the text of each cell of all tables of a page."""
    rows: list[list[str]] = []
    for part in str(html).split("<tr>")[1:]:
        inner = part.split("</tr>")[0]
        pieces = inner.replace("</td>", "</th>").split("</th>")[:-1]
        rows.append(["".join(text for _, text in Page(piece[piece.index(">") + 1 :]).texts) for piece in pieces])
    return rows


def test_cases_are_ranked_worst_first() -> None:
    assert case_dice(RESULTS.evaluation) == {"good": pytest.approx(0.85), "bad": pytest.approx(0.35)}
    assert RESULTS.ranking == ["bad", "good"]


def test_tables_contain_the_figures() -> None:
    table = cells(results_section(RESULTS, {"checkpoint": "last"}))
    assert table[0][:3] == ["Class", "Dice %", "Jaccard %"]
    assert table[1] == [
        "class 1",
        "70.00 ± 28.28",
        "35.00 ± 14.14",
        "2.00 ± 0.00",
        "6.00 ± 0.00",
        "4.00 ± 0.00",
        "8.00 ± 0.00",
        "−0.50 ± 0.00",
        "−50.00 ± 0.00",
    ]
    assert table[0][3:7] == ["95HD voxel", "95HD mm", "ASD voxel", "ASD mm"]
    assert table[0][7:] == ["volume error ml", "volume error %"]
    assert table[3] == ["mean", "60.00", "30.00", "2.00", "6.00", "4.00", "8.00", "–", "–"]
    assert table[4] == ["Case", "Dice %", "class 1", "class 2", "Jaccard %", *DISTANCES]
    assert table[5:] == [
        ["bad", "35.00", "50.00", "20.00", "17.50", "2.00", "6.00", "4.00", "8.00"],
        ["good", "85.00", "90.00", "80.00", "42.50", "2.00", "6.00", "4.00", "8.00"],
    ]


def test_cases_have_the_dice_of_the_baseline() -> None:
    table = cells(results_section(RESULTS, {}, baseline={"bad": 0.25, "other": 0.5}))
    assert table[4][:4] == ["Case", "Dice %", "Baseline Dice %", "class 1"]
    assert [line[:3] for line in table[5:]] == [["bad", "35.00", "25.00"], ["good", "85.00", "–"]]


def test_many_classes_have_their_own_table() -> None:
    results = Results(Path("x"), Evaluation(tuple(row("a", label, label / 10) for label in range(1, 6)), "paper"), None)
    head, line = cells(results_section(results, {}))[-2:]
    assert head == ["Case", *(f"class {label}" for label in range(1, 6))]
    assert line == ["a", "10.00", "20.00", "30.00", "40.00", "50.00"]
    assert cells(results_section(results, {}))[-3] == ["a", "30.00", "15.00", "2.00", "6.00", "4.00", "8.00"]


def test_equal_distances_are_shown_once() -> None:
    equal = [replace(line, hd95_mm=line.hd95, hd95_max_mm=3.0, asd_mm=4.0, assd_mm=5.0) for line in ROWS]
    table = cells(results_section(Results(Path("x"), Evaluation(tuple(equal), "paper"), None), {}))
    assert table[4][-2:] == ["95HD voxel", "ASD voxel"] and table[5][-2:] == ["2.00", "4.00"]


def test_pictures_have_pixels_and_no_volume() -> None:
    flat = tuple(replace(line, volume_prediction_ml=math.nan, volume_reference_ml=math.nan) for line in ROWS)
    text = results_section(Results(Path("x"), Evaluation(flat, "paper"), None), {})
    assert cells(text)[0][3:] == ["95HD pixel", "95HD mm", "ASD pixel", "ASD mm"]
    assert cells(text)[4][-4:] == ["95HD pixel", "95HD mm", "ASD pixel", "ASD mm"]
    assert "voxel" not in text and text.count("<small> pixel</small>") == 2


def test_where_the_test_scans_come_from() -> None:
    text = results_section(RESULTS, {}, scans="liver & co/imagesTs")
    assert "Test scans: liver &amp; co/imagesTs." in text
    assert "Test scans" not in results_section(RESULTS, {})


def test_headline() -> None:
    page = Page(results_section(RESULTS, {"checkpoint": "best on test, step 9"}))
    figures = [text for element, text in page.texts if element == "dd"]
    assert figures == ["60.00", "30.00", "2.00", "6.00 mm", "4.00", "8.00 mm"]
    sentence = (
        "Mean over 2 cases and then over 2 classes, paper protocol for empty masks, checkpoint: best on test, step 9."
    )
    assert sentence in page.text and OPTIMISTIC in page.text
    assert OPTIMISTIC not in Page(results_section(RESULTS, {"checkpoint": "best on validation, step 9"})).text


def test_a_single_class_has_no_mean_over_classes() -> None:
    single = Evaluation((row("a", 1, 0.5),), "standard")
    section = results_section(Results(Path("x"), single, None), {})
    assert "Mean over 1 case, standard protocol for empty masks, last checkpoint." in section
    table = cells(section)
    assert [line[0] for line in table] == ["Class", "class 1", "Case", "a"]
    assert len(table[2]) == len(table[3]) == 7


def test_reads_what_evaluation_wrote(tmp_path: Path) -> None:
    radii = dict(zip(CASES, (7.9, 7.0, 6.0, 5.0), strict=True))
    folder = write_predictions(tmp_path / "run", tmp_path / "labels", radii)
    results = read_results(folder)
    assert results is not None
    assert results.references == tmp_path / "labels"
    assert results.ranking == list(reversed(CASES))
    assert {line.name for line in results.evaluation.rows} == set(CLASSES.values())
    (folder / "metrics.json").unlink()
    again = read_results(folder)
    assert again is not None
    assert again.references is None
    assert read_results(tmp_path) is None


def test_mean_skips_nan() -> None:
    assert mean([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(mean([math.nan]))


@pytest.mark.parametrize("name", ["metrics.json", "manifest.json"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    folder = write_predictions(tmp_path / "run", tmp_path / "labels", {"a": 5.0})
    (folder / name).write_text("[]")
    with user_error(Code.DAMAGED_FILE, folder / name):
        used_checkpoint(read_results(folder), {})
