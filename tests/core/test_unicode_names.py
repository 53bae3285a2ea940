"""Names in two Unicode forms: cases get NFC names, so that images, labels and references match."""

import json
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny
import yaml
from command_line import CommandLine, entries
from hypothesis import given
from hypothesis import strategies as st

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.names import by_nfc, nfc, same_names
from graftseg.core.types import Geometry
from graftseg.data.grouping import label_maps_by_case
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.scans import read_label, write_label, write_scan
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.sources import Sources
from graftseg.evaluation.comparison import compare_runs
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.statistics import paired
from scoring import evaluate_folder
from user_errors import user_error

NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
FORMS = pytest.mark.parametrize(("own", "other"), [(NFC, NFD), (NFD, NFC)], ids=["NFC", "NFD"])
GRID = Geometry((16, 16), ((1.0, 0, 0, 0), (0, 1.0, 0, 0), (0, 0, 1.0, 0), (0, 0, 0, 1.0)))
SETTINGS = PrepareSettings(dimensions=2)


def image(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_scan(path, np.random.default_rng(seed).normal(size=(16, 16)).astype(np.float32), GRID)


def label(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.zeros((16, 16), np.uint8)
    array[4:8, 4:8] = 1
    write_label(path, array, GRID)


@given(st.text(max_size=8))
def test_a_name_is_the_same_in_every_form(name: str) -> None:
    forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    assert nfc(forms[0]) == nfc(forms[1]) == forms[0]
    assert same_names([forms[1]], [forms[0]]) == {forms[1]}
    assert by_nfc({forms[1]: 3})[forms[0]] == 3


def test_similar_names_are_different() -> None:
    assert NFC != NFD and nfc("ﬁ") != nfc("fi") and same_names(["a"], ["A"]) == set()


@FORMS
def test_msd(tmp_path: Path, own: str, other: str) -> None:
    image(tmp_path / "imagesTr" / f"{own}.nii.gz")
    label(tmp_path / "labelsTr" / f"{other}.nii.gz")
    listed = {"image": f"./imagesTr/{other}.nii.gz", "label": f"./labelsTr/{own}.nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps({"labels": {"0": "background", "1": "x"}, "training": [listed]}))
    dataset = read_layout(tmp_path)
    assert dataset.layout == "msd" and dataset.problems == ()
    assert [(case.name, case.split) for case in dataset.cases] == [(NFC, "labeled")]


@FORMS
def test_nnunet(tmp_path: Path, own: str, other: str) -> None:
    """Channels of a case also match in different forms."""
    image(tmp_path / "imagesTr" / f"{own}_0000.nii.gz")
    image(tmp_path / "imagesTr" / f"{other}_0001.nii.gz")
    label(tmp_path / "labelsTr" / f"{other}.nii.gz")
    listed = [{"image": f"imagesTr/{other}_0000.nii.gz"}]
    (tmp_path / "dataset.json").write_text(json.dumps({"channel_names": {"0": "a", "1": "b"}, "training": listed}))
    dataset = read_layout(tmp_path)
    assert dataset.problems == ()
    assert [(case.name, case.split, len(case.images)) for case in dataset.cases] == [(NFC, "labeled", 2)]
    (case,), failures = scan_cases(tmp_path / "imagesTr", 2)
    assert (case.name, len(case.images), failures) == (NFC, 2, {})
    assert [*scan_cases(tmp_path / "imagesTr", 3)[1]] == [NFC]
    (case,), failures = scan_cases(tmp_path / "imagesTr" / f"{own}_0000.nii.gz", 2)
    assert (case.name, len(case.images), failures) == (NFC, 2, {})


@FORMS
def test_numbered_cases_stay_cases(tmp_path: Path, own: str, other: str) -> None:
    image(tmp_path / "imagesTr" / f"{own}_0007.nii.gz")
    label(tmp_path / "labelsTr" / f"{other}_0007.nii.gz")
    dataset = read_layout(tmp_path)
    assert (dataset.layout, [case.name for case in dataset.of("labeled")]) == ("msd", [f"{NFC}_0007"])


@FORMS
def test_separate_folders(tmp_path: Path, own: str, other: str) -> None:
    image(tmp_path / "a" / f"{own}.nii.gz")
    label(tmp_path / "b" / f"{other}.nii.gz")
    image(tmp_path / "c" / f"{own}{own}.nii.gz", 1)
    dataset = read_layout(Sources(tmp_path / "a", tmp_path / "b", unlabeled=tmp_path / "c"))
    found = [(case.name, case.split) for case in dataset.cases]
    assert (found, dataset.problems) == ([(NFC, "labeled"), (NFC + NFC, "unlabeled")], ())


@FORMS
def test_two_forms_in_a_folder_are_a_duplicate(tmp_path: Path, own: str, other: str) -> None:
    for name in (own, other):
        image(tmp_path / "imagesTr" / f"{name}.nii.gz")
    label(tmp_path / "labelsTr" / f"{own}.nii.gz")
    (problem,) = read_layout(tmp_path).problems
    assert problem.code == Code.CASE_DUPLICATE and "Unicode" in problem.finding
    with user_error(Code.CASE_DUPLICATE):
        prepare(read_layout(tmp_path), tmp_path / "store", SETTINGS)
    assert not (tmp_path / "store").exists()
    with user_error(Code.CASE_DUPLICATE):
        scan_cases(tmp_path / "imagesTr", 1)
    label(tmp_path / "labelsTr" / f"{other}.nii.gz")
    with user_error(Code.CASE_DUPLICATE, keyword="Unicode"):
        evaluate_folder(tmp_path / "labelsTr", tmp_path / "labelsTr")
    with user_error(Code.CASE_DUPLICATE):
        label_maps_by_case(tmp_path / "labelsTr")


def test_two_forms_in_two_folders_are_a_duplicate(tmp_path: Path) -> None:
    image(tmp_path / "imagesTr" / f"{NFC}.nii.gz")
    image(tmp_path / "imagesUn" / f"{NFD}.nii.gz")
    label(tmp_path / "labelsTr" / f"{NFC}.nii.gz")
    (problem,) = read_layout(tmp_path).problems
    assert problem.code == Code.CASE_DUPLICATE


@FORMS
def test_evaluation(tmp_path: Path, own: str, other: str) -> None:
    label(tmp_path / "maps" / f"{own}.nii.gz")
    label(tmp_path / "references" / f"{other}.nii.gz")
    (row,) = evaluate_folder(tmp_path / "maps", tmp_path / "references", only=[other]).rows
    assert (row.case, row.dice) == (NFC, 1.0)
    assert label_maps_by_case(tmp_path / "references")[NFC].name == f"{other}.nii.gz"


@FORMS
def test_comparison_of_two_runs(tmp_path: Path, own: str, other: str) -> None:
    """Pairs have the names of the first run."""
    first, second = (
        Evaluation(tuple(Row(case, 1, "x", *[dice, *[1.0] * 11]) for case in cases), "standard")
        for cases, dice in (((own, "b"), 0.5), ((other, "b", f"c{other}"), 0.75))
    )
    assert [(pairs.cases, pairs.differences.tolist()) for pairs in paired(first, second)[:1]] == [
        (("b", own), [25.0, 25.0])
    ]
    for name, evaluation in (("first", first), ("second", second)):
        evaluation.save(tmp_path / name / "metrics.csv", {"references": "the same"})
    (comparison,) = compare_runs([tmp_path / "first", tmp_path / "second"])
    assert (comparison.only_first, comparison.only_second) == ((), (f"c{other}",))
    assert {effect.count for _, effect in comparison.effects} == {2}


@FORMS
def test_held_out_cases(tmp_path: Path, own: str, other: str) -> None:
    for name in (own, "b", "c"):
        image(tmp_path / "imagesTr" / f"{name}.nii.gz")
        label(tmp_path / "labelsTr" / f"{name}.nii.gz")
    dataset = read_layout(tmp_path).for_training(1, 0, [other])
    found = [(case.name, case.split) for case in dataset.cases]
    assert found == [(NFC, "labeled"), ("b", "labeled"), ("c", "unlabeled")]


def test_a_disk_that_changes_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store works on a disk that returns names in another form."""
    image(tmp_path / "imagesTr" / f"{NFC}.nii.gz")
    label(tmp_path / "labelsTr" / f"{NFC}.nii.gz")
    dataset, listed = read_layout(tmp_path), Path.iterdir
    (tmp_path / "store" / "cases").mkdir(parents=True)
    (tmp_path / "store" / ".store-lock").touch()
    (tmp_path / "store" / "cases" / f"{NFD}{NFD}.json").write_text("{}")

    def decomposed(folder: Path) -> Iterator[Path]:
        return (path.with_name(unicodedata.normalize("NFD", path.name)) for path in listed(folder))

    monkeypatch.setattr(Path, "iterdir", decomposed)
    assert [case.name for case in prepare(dataset, tmp_path / "store", SETTINGS).cases] == [NFC]
    monkeypatch.undo()
    assert {path.name for path in (tmp_path / "store" / "cases").iterdir()} == {
        f"{NFC}.json",
        f"{NFC}.image.npy",
        f"{NFC}.label.npy",
    }


@pytest.mark.slow
def test_resumed_folds(tmp_path: Path) -> None:
    """Folds resume if a disk returns names in another form than at the start."""
    data, out = tiny.write_scans(tmp_path / "data", labeled=2, unlabeled=2, test=0), tmp_path / "run"
    for path in data.glob("*/*.nii.gz"):
        path.rename(path.with_name(NFC + path.name))
    api.train_folds(tiny.tiny_recipe(), data, out, folds=2, device="cpu")
    before = (out / "metrics.csv").read_bytes()
    for path in data.glob("*/*.nii.gz"):
        path.rename(path.with_name(path.name.replace(NFC, NFD)))
    shutil.rmtree(out / "fold-1" / "predictions")
    result = api.train_folds(tiny.tiny_recipe(), data, out, folds=2, device="cpu", resume=True)
    assert (out / "metrics.csv").read_bytes() == before
    assert {row.case for row in result.evaluation.rows} == {f"{NFC}labeled_000", f"{NFC}labeled_001"}


def test_all_commands(cli: CommandLine, scans: Path, tmp_path: Path) -> None:
    """Scans in one form, labels and references in the other, from the check to the report."""
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    for path in data.glob("*/*.nii.gz"):
        accent = NFD if path.parent.name.startswith("labels") else NFC
        path.rename(path.with_name(accent + path.name))
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    assert "4 labeled, 5 unlabeled, 2 test scans; 0 findings" in cli.works("check", data)
    cli.works("train", recipe, "--data", data, "--out", tmp_path / "run")
    cli.works("test", tmp_path / "run")
    maps = tmp_path / "run" / "predictions"
    assert {f"{NFC}test_000.nii.gz", f"{NFC}test_001.nii.gz", "metrics.csv"} <= entries(maps)
    assert not [name for name in entries(maps) if NFD in name]
    assert f"standard,{NFC}test_000,1," in (maps / "metrics.csv").read_text()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No picture" not in page and f"{NFC}test_000" in page
    api.predict(tmp_path / "run", data / "imagesUn", tmp_path / "more")
    words = ("export", "nnunet", tmp_path / "run", "--data", data, "--predictions", tmp_path / "more")
    cli.works(*words, "--out", tmp_path / "Dataset501_X")
    exported = {name for name in entries(tmp_path / "Dataset501_X") if name.startswith("labelsTr/")}
    assert len(exported) == 9 and not [name for name in exported if NFD in name]
    assert read_label(tmp_path / "Dataset501_X" / "labelsTr" / f"{NFC}labeled_000.nii.gz").array.any()
