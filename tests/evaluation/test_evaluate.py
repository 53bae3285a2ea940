"""Label maps scored against references, one case or a whole folder."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graftseg.core.errors import Code
from graftseg.core.predictions import Manifest, PredictedCase
from graftseg.core.text_tables import format_table
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label
from graftseg.evaluation.evaluate import evaluate_pair
from graftseg.evaluation.metrics import Protocol, score
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import scores_table
from scoring import evaluate_folder
from user_errors import user_error

SHAPE = (6, 5, 4)
SPACING = (0.5, 1.0, 2.0)
CLASSES = {1: "left", 2: "right"}


def geometry_of(shape: tuple[int, ...] = SHAPE, origin: float = 0.0) -> Geometry:
    matrix = np.diag([*SPACING, 1.0])
    matrix[0, 3] = origin
    return Geometry(shape=shape, affine=tuple(tuple(row) for row in matrix.tolist()))


def labels_of(**boxes: int) -> npt.NDArray[np.uint8]:
    """Return labels: class 1 fills the first ``one`` layers of axis 0, class 2 the last ``two``."""
    labels = np.zeros(SHAPE, dtype=np.uint8)
    labels[: boxes.get("one", 0)] = 1
    labels[SHAPE[0] - boxes.get("two", 0) :] = 2
    return labels


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Write predictions and references of two cases."""
    predictions, references = tmp_path / "predictions", tmp_path / "references"
    write_label(predictions / "b.nii.gz", labels_of(one=2), geometry_of())
    write_label(predictions / "a.nii.gz", labels_of(one=2, two=1), geometry_of())
    write_label(references / "b.nii.gz", labels_of(one=2), geometry_of())
    write_label(references / "a.nii", labels_of(one=1, two=1), geometry_of())
    return predictions, references


def test_a_pair_is_scored_per_class_in_voxels_and_millimeters() -> None:
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
    assert (first.surface_dice, first.tolerance_mm) == (1.0, 1.0)
    assert first.volume_prediction_ml == pytest.approx(2 * 5 * 4 / 1000)
    assert first.volume_reference_ml == pytest.approx(1 * 5 * 4 / 1000)
    assert (second.label, second.name, second.dice, second.assd_mm) == (2, "right", 1.0, 0.0)


def test_the_tolerance_of_the_surface_dice_is_in_millimeters() -> None:
    maps = labels_of(one=2, two=1), labels_of(one=1, two=1)
    for tolerance, expected in ((0.4, 2 / 3), (0.5, 1.0)):
        first, second = evaluate_pair("a", *maps, geometry_of(), CLASSES, tolerance=tolerance)
        assert first.surface_dice == pytest.approx(expected) and second.surface_dice == 1.0
        assert (first.tolerance_mm, first.hd95) == (tolerance, 1.0)


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, math.inf])
def test_an_invalid_tolerance_is_an_error(folders: tuple[Path, Path], tolerance: float) -> None:
    with user_error(Code.OPTION_INVALID, "--tolerance"):
        evaluate_folder(*folders, tolerance=tolerance)


def test_volume_errors_are_signed() -> None:
    larger, smaller = evaluate_pair("a", labels_of(one=3, two=1), labels_of(one=2, two=2), geometry_of(), CLASSES)
    assert larger.volume_error_ml == pytest.approx(0.02)
    assert larger.volume_error_percent == pytest.approx(50)
    assert smaller.volume_error_ml == pytest.approx(-0.02)
    assert smaller.volume_error_percent == pytest.approx(-50)
    no_reference, _ = evaluate_pair("a", labels_of(one=1), labels_of(), geometry_of(), CLASSES)
    assert no_reference.volume_error_ml == pytest.approx(0.02)
    assert math.isnan(no_reference.volume_error_percent), "an empty reference has no percentage"


def test_other_output_files_are_not_scored(folders: tuple[Path, Path]) -> None:
    expected = evaluate_folder(*folders)
    write_label(folders[0] / "a_uncertainty.nii.gz", labels_of(), geometry_of())
    with user_error(Code.FILE_MISSING, "a_uncertainty.nii.gz", "prediction"):
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


def test_references_with_label_endings(folders: tuple[Path, Path]) -> None:
    expected = evaluate_folder(*folders, classes=CLASSES).rows
    (folders[1] / "a.nii").rename(folders[1] / "A_seg.nii")
    (folders[1] / "b.nii.gz").rename(folders[1] / "b-label.nii.gz")
    assert evaluate_folder(*folders, classes=CLASSES).rows == expected


def test_hidden_files_are_no_label_maps(folders: tuple[Path, Path]) -> None:
    expected = evaluate_folder(*folders)
    for folder in folders:
        (folder / "._a.nii.gz").write_bytes(b"not a label map")
        (folder / ".partial-x-b.nii.gz").write_bytes(b"")
    assert evaluate_folder(*folders) == expected


def test_rows_do_not_depend_on_the_number_of_workers(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    together = evaluate_folder(*folders, classes=CLASSES)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    alone = evaluate_folder(*folders, classes=CLASSES)
    assert alone == together
    assert {row.name for row in alone.rows} == {"left", "right"}


def test_a_file_without_its_partner_is_an_error(folders: tuple[Path, Path]) -> None:
    predictions, references = folders
    (predictions / "a.nii.gz").unlink()
    with user_error(Code.FILE_MISSING, "a.nii", "1 of 2"):
        evaluate_folder(predictions, references)
    write_label(predictions / "a.nii.gz", labels_of(), geometry_of())
    write_label(predictions / "c.nii.gz", labels_of(), geometry_of())
    write_label(predictions / "d.nii.gz", labels_of(), geometry_of())
    with user_error(Code.FILE_MISSING, "c.nii.gz", "2 of 4"):
        evaluate_folder(predictions, references)


def test_missing_files_can_be_allowed(folders: tuple[Path, Path]) -> None:
    predictions, references = folders
    (predictions / "a.nii.gz").unlink()
    evaluation = evaluate_folder(predictions, references, allow_missing=True)
    assert [(row.case, row.label) for row in evaluation.rows] == [("b", 1)]
    (references / "b.nii.gz").unlink()
    with user_error(Code.NOT_COMPARABLE, predictions):
        evaluate_folder(predictions, references, allow_missing=True)


def test_two_files_of_one_case_are_an_error(folders: tuple[Path, Path]) -> None:
    write_label(folders[1] / "b.nii", labels_of(), geometry_of())
    with user_error(Code.CASE_DUPLICATE, "b.nii.gz", "b.nii"):
        evaluate_folder(*folders)


def test_missing_and_empty_folders_are_an_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with user_error(Code.NOT_A_FOLDER, "absent"):
        evaluate_folder(tmp_path / "absent", folders[1])
    (tmp_path / "empty").mkdir()
    with user_error(Code.FILE_MISSING, "empty"):
        evaluate_folder(folders[0], tmp_path / "empty")


def test_grids_must_agree(folders: tuple[Path, Path]) -> None:
    write_label(folders[0] / "b.nii.gz", labels_of(one=2), geometry_of(origin=2.5))
    with user_error(Code.GEOMETRY_MISMATCH, "b.nii.gz", "2.5"):
        evaluate_folder(*folders)


def test_a_label_value_outside_the_classes_is_an_error(folders: tuple[Path, Path]) -> None:
    with user_error(Code.LABEL_INVALID, "a.nii.gz", "value 2 in 20 voxels"):
        evaluate_folder(*folders, classes={0: "background", 1: "left"})
    with user_error(Code.LABEL_INVALID, "case 7", "value 1 in 40 voxels"):
        evaluate_pair("case 7", labels_of(one=2), labels_of(), geometry_of(), {})
    with user_error(Code.LABEL_INVALID, "reference of case 7", "value 1 in 40 voxels"):
        evaluate_pair("case 7", labels_of(), labels_of(one=2), geometry_of(), {})


def test_references_with_only_background_are_an_error(tmp_path: Path) -> None:
    write_label(tmp_path / "a.nii.gz", labels_of(), geometry_of())
    with user_error(Code.LABELS_EMPTY):
        evaluate_folder(tmp_path, tmp_path)


def test_a_class_absent_from_all_references_is_not_scored(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Two label maps without the class would agree, which would raise the mean."""
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
    with user_error(Code.OPTION_INVALID, "protocol", "'kind'"):
        evaluate_folder(*folders, protocol=name)


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
    """Return the table as ``graftseg test`` prints it on a wide terminal."""
    laid = format_table(*scores_table(evaluation), 200)
    return laid.head, laid.body
