import csv
import json
import math
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg.core.errors import UserError
from graftseg.core.files import write_json
from graftseg.core.predictions import Manifest, PredictedCase
from graftseg.core.text_tables import format_table
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label
from graftseg.evaluation.figures import scores_table
from graftseg.evaluation.metrics import Protocol, score
from graftseg.evaluation.scores import Evaluation, Row, description_of, evaluate_folder, evaluate_pair, read_csv

SHAPE = (6, 5, 4)
SPACING = (0.5, 1.0, 2.0)
CLASSES = {1: "left", 2: "right"}


def geometry_of(shape: tuple[int, ...] = SHAPE, origin: float = 0.0) -> Geometry:
    matrix = np.diag([*SPACING, 1.0])
    matrix[0, 3] = origin
    return Geometry(shape=shape, affine=tuple(tuple(row) for row in matrix.tolist()))


def labels_of(**boxes: int) -> npt.NDArray[np.uint8]:
    """Class 1 fills the first ``one`` layers of axis 0, class 2 the last ``two``."""
    labels = np.zeros(SHAPE, dtype=np.uint8)
    labels[: boxes.get("one", 0)] = 1
    labels[SHAPE[0] - boxes.get("two", 0) :] = 2
    return labels


def row_of(case: str = "a", label: int = 1, **changes: Any) -> Row:
    return replace(Row(case, label, CLASSES[label], *[0.5] * 12), **changes)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Predictions and references of two cases."""
    predictions, references = tmp_path / "predictions", tmp_path / "references"
    write_label(predictions / "b.nii.gz", labels_of(one=2), geometry_of())
    write_label(predictions / "a.nii.gz", labels_of(one=2, two=1), geometry_of())
    write_label(references / "b.nii.gz", labels_of(one=2), geometry_of())
    write_label(references / "a.nii", labels_of(one=1, two=1), geometry_of())
    return predictions, references


def test_a_pair_is_scored_class_by_class_in_voxels_and_millimetres() -> None:
    prediction, reference = labels_of(one=2, two=1), labels_of(one=1, two=1)
    first, second = evaluate_pair("a", prediction, reference, geometry_of(), {0: "background", **CLASSES})
    assert (first.case, first.label, first.name) == ("a", 1, "left")
    assert first.dice == pytest.approx(2 / 3)
    assert first.jaccard == pytest.approx(1 / 2)
    assert first.hd95 == 1.0
    assert first.asd == pytest.approx(0.5)
    assert first.assd == pytest.approx(1 / 3)
    assert first.hd95_mm == first.hd95_max_mm == 0.5
    assert first.asd_mm == pytest.approx(0.25)
    assert first.assd_mm == pytest.approx(1 / 6)
    assert first.volume_prediction_ml == pytest.approx(2 * 5 * 4 / 1000)
    assert first.volume_reference_ml == pytest.approx(1 * 5 * 4 / 1000)
    assert (second.label, second.name, second.dice, second.assd_mm) == (2, "right", 1.0, 0.0)


def test_errors_of_volume_have_a_sign() -> None:
    larger, smaller = evaluate_pair("a", labels_of(one=3, two=1), labels_of(one=2, two=2), geometry_of(), CLASSES)
    assert larger.volume_error_ml == pytest.approx(0.02)
    assert larger.volume_error_percent == pytest.approx(50)
    assert smaller.volume_error_ml == pytest.approx(-0.02)
    assert smaller.volume_error_percent == pytest.approx(-50)
    beside_nothing, _ = evaluate_pair("a", labels_of(one=1), labels_of(), geometry_of(), CLASSES)
    assert beside_nothing.volume_error_ml == pytest.approx(0.02)
    assert math.isnan(beside_nothing.volume_error_percent), "no share of an empty reference"


def test_the_description_holds_the_summary_of_each_class(tmp_path: Path) -> None:
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
    assert description_of(tmp_path / "metrics.csv") == tmp_path / "metrics.json", "it may be replaced by its successor"


def test_files_without_errors_of_volume_are_read_and_have_them(tmp_path: Path) -> None:
    row = row_of(volume_prediction_ml=3.0, volume_reference_ml=2.0)
    Evaluation((row,), "standard").write_csv(tmp_path / "metrics.csv")
    lines = [line.rsplit(",", 2) for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    assert [line[1:] for line in lines] == [["volume_error_ml", "volume_error_percent"], ["1.0", "50.0"]]
    (tmp_path / "metrics.csv").write_text("\n".join(line[0] for line in lines))
    assert read_csv(tmp_path / "metrics.csv").rows == (row,)
    assert read_csv(tmp_path / "metrics.csv").rows[0].volume_error_percent == 50


def test_files_beside_label_maps_are_not_scored(folders: tuple[Path, Path]) -> None:
    expected = evaluate_folder(*folders)
    write_label(folders[0] / "a_uncertainty.nii.gz", labels_of(), geometry_of())
    with pytest.raises(UserError, match=r"a_uncertainty\.nii\.gz: a prediction without a reference"):
        evaluate_folder(*folders)
    case = PredictedCase("a", ("a.nii",), "a.nii.gz", 1.0, uncertainty="a_uncertainty.nii.gz")
    Manifest("run", "weights", {}, ("background", "left"), "last", "cpu", {}, cases=(case,)).save(folders[0])
    assert evaluate_folder(*folders) == expected


def test_an_image_has_no_volume() -> None:
    labels = np.eye(4, dtype=np.uint8)
    (row,) = evaluate_pair("a", labels, labels, geometry_of((4, 4)), {1: "line"})
    assert row.dice == 1.0
    assert math.isnan(row.volume_prediction_ml)
    assert math.isnan(row.volume_reference_ml)


@pytest.mark.parametrize("protocol", ["standard", "paper"])
def test_the_protocol_reaches_the_scores(protocol: Protocol) -> None:
    prediction, reference = labels_of(), labels_of(one=1)
    row, _ = evaluate_pair("a", prediction, reference, geometry_of(), CLASSES, protocol)
    expected = score(prediction == 1, reference == 1, spacing=SPACING, protocol=protocol)
    assert row.hd95_mm == expected.hd95
    assert (row.hd95_mm == 0) == (protocol == "paper")


def test_a_folder_is_paired_by_name_and_its_classes_are_found(folders: tuple[Path, Path]) -> None:
    (folders[0] / "manifest.json").write_text("{}")
    evaluation = evaluate_folder(*folders)
    assert evaluation.protocol == "standard"
    assert [(row.case, row.label, row.name) for row in evaluation.rows] == [
        ("a", 1, "class 1"),
        ("a", 2, "class 2"),
        ("b", 1, "class 1"),
        ("b", 2, "class 2"),
    ]
    assert [row.dice for row in evaluation.rows] == pytest.approx([2 / 3, 1, 1, 1])


def test_hidden_files_are_no_label_maps(folders: tuple[Path, Path]) -> None:
    expected = evaluate_folder(*folders)
    for folder in folders:
        (folder / "._a.nii.gz").write_bytes(b"not a label map")
        (folder / ".partial-x-b.nii.gz").write_bytes(b"")
    assert evaluate_folder(*folders) == expected


def test_nothing_but_an_earlier_description_is_replaced(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    assert description_of(table) == tmp_path / "metrics.json"
    (tmp_path / "metrics.json").write_text('{"references": "labelsTs", "protocol": "paper"}')
    assert description_of(table) == tmp_path / "metrics.json"
    for content in ('{"labels": {}}', "[]"):
        (tmp_path / "metrics.json").write_text(content)
        with pytest.raises(UserError, match=r"metrics\.json beside it would be overwritten; remove that one or"):
            description_of(table)
    for name in ("x.json", "x", "x.csv.gz"):
        with pytest.raises(UserError, match=r"the table of metrics is a \.csv file; name a file that ends in"):
            description_of(tmp_path / name)


def test_rows_do_not_depend_on_the_number_of_workers(folders: tuple[Path, Path]) -> None:
    alone, together = (evaluate_folder(*folders, classes=CLASSES, workers=workers) for workers in (1, 3))
    assert alone == together
    assert {row.name for row in alone.rows} == {"left", "right"}


def test_a_file_without_its_partner_is_an_error(folders: tuple[Path, Path]) -> None:
    predictions, references = folders
    (predictions / "a.nii.gz").unlink()
    with pytest.raises(UserError, match=r"a\.nii: a reference without a prediction .*\(1 of 2 are\)"):
        evaluate_folder(predictions, references)
    write_label(predictions / "a.nii.gz", labels_of(), geometry_of())
    write_label(predictions / "c.nii.gz", labels_of(), geometry_of())
    write_label(predictions / "d.nii.gz", labels_of(), geometry_of())
    with pytest.raises(UserError, match=r"c\.nii\.gz: a prediction without a reference .*\(2 of 4 are\)"):
        evaluate_folder(predictions, references)


def test_missing_files_can_be_allowed(folders: tuple[Path, Path]) -> None:
    predictions, references = folders
    (predictions / "a.nii.gz").unlink()
    evaluation = evaluate_folder(predictions, references, allow_missing=True)
    assert [(row.case, row.label) for row in evaluation.rows] == [("b", 1)]
    (references / "b.nii.gz").unlink()
    with pytest.raises(UserError, match="none of its 1 label maps has a reference"):
        evaluate_folder(predictions, references, allow_missing=True)


def test_two_files_of_one_case_are_an_error(folders: tuple[Path, Path]) -> None:
    write_label(folders[1] / "b.nii", labels_of(), geometry_of())
    with pytest.raises(UserError, match=r"b\.nii\.gz: the same case as b\.nii;"):
        evaluate_folder(*folders)


def test_folders_that_hold_nothing_are_an_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent: not a folder"):
        evaluate_folder(tmp_path / "absent", folders[1])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: no label map in it"):
        evaluate_folder(folders[0], tmp_path / "empty")


def test_grids_must_agree(folders: tuple[Path, Path]) -> None:
    write_label(folders[0] / "b.nii.gz", labels_of(one=2), geometry_of(origin=2.5))
    with pytest.raises(UserError, match=r"predictions.b\.nii\.gz: not on the grid of .* b\.nii\.gz: .*2\.5"):
        evaluate_folder(*folders)


def test_a_predicted_value_that_no_class_names_is_an_error(folders: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=r"a\.nii\.gz: value 2 in 20 voxels is none of the classes \[1\]"):
        evaluate_folder(*folders, classes={0: "background", 1: "left"})
    with pytest.raises(UserError, match=r"^case 7: value 1 in 40 voxels"):
        evaluate_pair("case 7", labels_of(one=2), labels_of(), geometry_of(), {})
    with pytest.raises(UserError, match=r"^reference of case 7: value 1 in 40 voxels"):
        evaluate_pair("case 7", labels_of(), labels_of(one=2), geometry_of(), {})


def test_references_of_background_alone_are_an_error(tmp_path: Path) -> None:
    write_label(tmp_path / "a.nii.gz", labels_of(), geometry_of())
    with pytest.raises(UserError, match="no class but background"):
        evaluate_folder(tmp_path, tmp_path)


def test_a_class_that_no_reference_shows_is_told_and_not_scored(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Where neither of two label maps has it, they agree, and the mean would be better for it."""
    evaluate_folder(*folders, classes=CLASSES)
    assert not caplog.messages
    scored = evaluate_folder(*folders, classes=CLASSES | {3: "third"})
    assert caplog.messages == ["third is in none of the 2 references and is not scored"]
    assert all(math.isnan(row.dice) for row in scored.rows if row.label == 3)
    assert scored.summary().overall == evaluate_folder(*folders, classes=CLASSES).summary().overall


def test_cases_can_be_chosen(folders: tuple[Path, Path]) -> None:
    (folders[1] / "b.nii.gz").unlink()
    assert {row.case for row in evaluate_folder(*folders, only={"a"}).rows} == {"a"}


def test_an_unknown_protocol_is_an_error(folders: tuple[Path, Path]) -> None:
    name: Any = "kind"
    with pytest.raises(UserError, match="'kind' is unknown; use standard or paper"):
        evaluate_folder(*folders, protocol=name)


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
        *("volume_error_ml", "volume_error_percent"),
    ]
    assert line["protocol"] == "paper"
    assert line["hd95_voxel"] == ""
    assert line["dice"] == "0.3333333333333333"


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r"))  # a line break to every csv reader
NUMBERS = st.floats(0, allow_infinity=False, allow_nan=False)


def tables_of(label: int, name: str) -> st.SearchStrategy[list[Row]]:
    """One class of some cases."""
    one = st.builds(Row, WORDS, st.just(label), st.just(name), *[st.floats(0, 1)] * 2, *[NUMBERS] * 10)
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda row: row.case)


ROWS = st.tuples(st.integers(1, 65535), WORDS).flatmap(lambda of: tables_of(*of))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.sampled_from(["standard", "paper"]))
def test_a_csv_file_reads_back_as_it_was(tmp_path: Path, rows: list[Row], protocol: Protocol) -> None:
    evaluation = Evaluation(tuple(rows), protocol)
    evaluation.write_csv(tmp_path / "metrics.csv")
    assert read_csv(tmp_path / "metrics.csv") == evaluation


def test_nan_reads_back(tmp_path: Path) -> None:
    flat = row_of(volume_prediction_ml=math.nan, volume_reference_ml=math.nan)
    Evaluation((flat,), "standard").write_csv(tmp_path / "metrics.csv")
    (row,) = read_csv(tmp_path / "metrics.csv").rows
    assert math.isnan(row.volume_prediction_ml)
    assert replace(row, volume_prediction_ml=0.5, volume_reference_ml=0.5) == row_of()


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda text: "", "no line of metrics"),
        (lambda text: text.split("\n")[0], "no line of metrics"),
        (lambda text: text.replace("jaccard", "overlap"), "column jaccard is missing"),
        (lambda text: text[:-20], "more or fewer cells"),
        (lambda text: text + "standard,1\n", "more or fewer cells"),
        (lambda text: text.replace("0.25", "a quarter"), "a quarter"),
        (lambda text: text.replace("standard", "kind"), "'kind' is unknown"),
        (lambda text: text.replace("standard", "paper", 1), r"different protocols \(paper, standard\)"),
        (lambda text: text + '"', "not a csv file"),
    ],
)
def test_a_damaged_csv_file_is_told_in_a_sentence(tmp_path: Path, change: Any, finding: str) -> None:
    path = tmp_path / "metrics.csv"
    Evaluation((row_of("a", dice=0.25), row_of("b")), "standard").write_csv(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=finding):
        read_csv(path)


def test_a_csv_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.csv: it cannot be read \(No such file"):
        read_csv(tmp_path / "absent.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bytes\.csv: not a csv file"):
        read_csv(tmp_path / "bytes.csv")


def test_an_evaluation_is_printed_as_a_table(folders: tuple[Path, Path]) -> None:
    evaluation = evaluate_folder(*folders, classes=CLASSES)
    title, head, left, right, mean = str(evaluation).splitlines()
    assert title == "2 cases, 2 classes, standard protocol"
    assert head.split()[:5] == ["class", "Dice", "%", "Jaccard", "%"] and head.endswith("volume error %")
    assert left.split()[:3] == ["left", "83.33", "75.00"] and right.split()[:2] == ["right", "100.00"]
    assert mean.split()[0] == "mean" and mean.split()[-2:] == ["-", "-"]
    assert [head, left, right, mean] == [line for part in _laid(evaluation) for line in part]
    assert repr([evaluation]) == "[<Evaluation of 2 cases, 2 classes, standard protocol>]"
    assert "np.float64" not in f"{evaluation} {evaluation!r}"


def _laid(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """The table as ``graftseg test`` prints it on a wide terminal."""
    laid = format_table(*scores_table(evaluation), 200)
    return laid.head, laid.body


def test_a_single_case_and_class_in_words() -> None:
    assert repr(Evaluation((row_of(),), "paper")) == "<Evaluation of 1 case, 1 class, paper protocol>"


def test_scores_are_kept_under_a_name(tmp_path: Path) -> None:
    evaluation = Evaluation((row_of(),), "standard")
    evaluation.write_csv(str(tmp_path / "scores.csv"))
    assert read_csv(tmp_path / "scores.csv") == evaluation
