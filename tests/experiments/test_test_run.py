"""The verb test: the same scores as predict and evaluate, a verdict, and rejected input that changes nothing."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import CommandLine, contents, entries
from tiny import tiny_recipe, write_scans

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_checked
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.core.teacher_checks import Decision, TeacherCheck
from graftseg.core.types import Geometry
from graftseg.data.scans import read_label, read_scan, write_label, write_scan
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.evaluation.verdicts import missed_classes
from graftseg.experiments import test_run
from graftseg.inference import label_maps as outputs
from graftseg.inference import predict as prediction
from user_errors import user_error


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scans(tmp_path_factory.mktemp("scans"), labeled=3, unlabeled=2, test=3)


@pytest.fixture(scope="module")
def trained(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny_recipe(baseline=True), scans, out, device="cpu")
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_scores_are_those_of_predict_and_evaluate(run: Path, scans: Path, tmp_path: Path) -> None:
    tested = api.test(run, device="cpu")
    assert list(tested.scores) == [run, run / "baseline"]
    for path in tested.scores:
        by_hand = tmp_path / "by-hand" / path.name
        api.predict(path, scans / "imagesTs", by_hand, device="cpu")
        api.evaluate(by_hand, scans / "labelsTs")
        assert (by_hand / "metrics.csv").read_bytes() == (path / "predictions" / "metrics.csv").read_bytes()
    assert tested.comparison is not None
    assert tested.comparison.first.path == str(run / "baseline")
    assert tested.report == run / "report.html"
    assert "Comparison with the baseline" in tested.report.read_text()
    *_, said = tested.verdict()
    assert said.startswith("leaving out ring, which neither network finds: mean Dice ")
    assert said.endswith("neither network is good enough for a meaningful comparison")


def check(decision: Decision) -> dict[str, Any]:
    return TeacherCheck(1, 4, {"a": "no foreground", "b": "no foreground"}, decision).to_json()


def test_a_skipped_run_draws_no_conclusion_and_names_the_network_that_predicts(run: Path) -> None:
    folder = RunFolder(run)
    write_checked(folder.teacher_file, {"checks": [check("extend"), check("skip")]})
    folder.ship(Shipped("baseline", "a reason", both_supervised=True))
    tested = api.test(run, device="cpu")
    own, other = (mean_metrics(scores)["dice"] for scores in tested.scores.values())
    *_, network, said = tested.verdict()
    assert network == f"predict uses the supervised baseline (a reason), with a mean Dice of {other:.2f} % in this test"
    assert " % of the run and " in said and "meaningful" not in said and "with the unlabeled scans" not in said
    assert said.endswith(
        "; both networks are supervised, because the unlabeled scans were not used: the predictions of 2 of 4 "
        "unlabeled scans are implausible (2 with no foreground)"
    )
    page = tested.report.read_text()
    assert (
        f"but predict uses the supervised baseline, which has a mean Dice of {other:.2f} % on the same cases." in page
    )
    assert "because the unlabeled scans were not used" in page
    assert "with unlabeled scans, Dice %" not in page and "this run, Dice %" in page
    folder.ship(Shipped("run", "a reason"))
    assert f"with a mean Dice of {own:.2f} % in this test" in "\n".join(tested.verdict())
    assert "These are the scores of the network that predict uses." in api.report(run).read_text()


def test_a_run_without_a_baseline_is_scored_alone(run: Path, scans: Path) -> None:
    shutil.rmtree(run / "baseline")
    tested = api.test(run, scans, device="cpu")
    assert list(tested.scores) == [run] and tested.comparison is None
    assert not [sentence for sentence in tested.verdict() if "with the unlabeled scans" in sentence]


@pytest.mark.slow
def test_a_test_can_be_repeated_and_its_data_named_in_three_ways(
    run: Path, scans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graftseg = CommandLine(capsys, monkeypatch)
    folders = ("--test-images", scans / "imagesTs", "--test-labels", scans / "labelsTs")
    printed = [
        graftseg.works("test", run, *words, "--device", "cpu").replace(str(run), "RUN")
        for words in ((), (scans,), folders)
    ]
    assert printed[0] == printed[1] == printed[2]
    assert "RUN: 3 test cases" in printed[0] and "RUN/baseline: 3 test cases" in printed[0]
    assert printed[0].endswith("report: RUN/report.html\n")


def test_the_test_cases_of_a_store(run: Path, scans: Path, tmp_path: Path) -> None:
    store = api.prepare(scans, tmp_path / "store", recipe=run / "recipe.yaml")
    assert len({row.case for row in api.test(run, store.path, device="cpu").scores[run].rows}) == 3


@pytest.mark.slow
def test_folds_are_tested_together(scans: Path, tmp_path: Path) -> None:
    run = tmp_path / "folds"
    api.train_folds(tiny_recipe(baseline=True), scans, run, folds=3, device="cpu")
    tested = api.test(run, device="cpu")
    assert list(tested.scores) == [run, run / "baseline"]
    assert len({row.case for row in tested.scores[run].rows}) == 3
    assert tested.report.is_file()


def test_label_maps_of_other_scans_are_not_scored(run: Path, scans: Path, tmp_path: Path) -> None:
    everything = tmp_path / "labels"
    shutil.copytree(scans / "labelsTr", everything)
    shutil.copytree(scans / "labelsTs", everything, dirs_exist_ok=True)
    api.predict(run, scans / "imagesTr", device="cpu")
    tested = api.test(run, images=scans / "imagesTs", labels=everything, device="cpu", allow_missing=True)
    assert {row.case for row in tested.scores[run].rows} == {"test_000", "test_001", "test_002"}


def test_another_set_can_be_tested_after_the_first(run: Path, scans: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for kind in ("images", "labels"):
        (other / f"{kind}Ts").mkdir(parents=True)
        for path in (scans / f"{kind}Ts").iterdir():
            shutil.copy(path, other / f"{kind}Ts" / path.name.replace("test_", "more_"))
    api.test(run, scans, device="cpu")
    tested = api.test(run, other, device="cpu")
    assert {row.case for row in tested.scores[run].rows} == {"more_000", "more_001", "more_002"}
    assert {row.case for row in tested.scores[run / "baseline"].rows} == {"more_000", "more_001", "more_002"}


def test_label_maps_made_with_other_settings_are_not_lost(run: Path, scans: Path) -> None:
    api.predict(run, scans / "imagesTr", overrides=["inference.overlap=0.75"], device="cpu")
    with user_error(Code.PREDICTIONS_MISMATCH, run / "predictions", f"move {run / 'predictions'}"):
        api.test(run, scans, device="cpu")


def test_an_unfinished_baseline_is_skipped(run: Path) -> None:
    facts = read_json(run / "baseline" / "run.json")
    (run / "baseline" / "run.json").write_text(json.dumps(facts | {"status": "running"}))
    tested = api.test(run, device="cpu")
    assert list(tested.scores) == [run] and tested.comparison is None
    (warning,) = tested.warnings
    assert warning.startswith(f"{run / 'baseline'} is not finished")


def test_missing_weights_are_reported_before_missing_scans(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_run, "find_test_scans", None)
    facts = read_json(run / "run.json")
    (run / "model.safetensors").unlink()
    with user_error(Code.WEIGHTS_MISSING, run / "model.safetensors", "train"):
        api.test(run, tmp_path / "nowhere", device="cpu")
    del facts["weights"]
    (run / "run.json").write_text(json.dumps(facts | {"status": "stopped"}))
    with user_error(Code.RUN_UNFINISHED, run, "--resume"):
        api.test(run, tmp_path / "nowhere", device="cpu")


def test_a_baseline_of_another_kind_is_refused(run: Path) -> None:
    tree = yaml.safe_load((run / "baseline" / "recipe.yaml").read_text())
    (run / "baseline" / "recipe.yaml").write_text(yaml.safe_dump(tree | {"seed": 7}))
    with user_error(Code.RUN_MISMATCH, run / "baseline", "seed"):
        api.test(run, device="cpu")
    assert not (run / "predictions").exists()


def test_training_scans_give_a_warning(run: Path, scans: Path) -> None:
    tested = api.test(run, images=scans / "imagesTr", labels=scans / "labelsTr", device="cpu")
    (warning,) = tested.warnings
    assert warning.startswith("3 of 3 test cases have the names of training scans (labeled_000)")


def test_renamed_copies_of_training_scans_give_a_warning(run: Path, scans: Path, tmp_path: Path) -> None:
    assert api.test(run, device="cpu").warnings == ()
    shutil.copytree(scans / "imagesTs", tmp_path / "imagesTs")
    shutil.copytree(scans / "labelsTs", tmp_path / "labelsTs")
    (scan,) = (scans / "imagesTr").glob("labeled_001*")
    (label,) = (scans / "labelsTr").glob("labeled_001*")
    shutil.copy(scan, tmp_path / "imagesTs" / scan.name.replace("labeled_001", "new"))
    shutil.copy(label, tmp_path / "labelsTs" / label.name.replace("labeled_001", "new"))
    (warning,) = api.test(run, tmp_path, device="cpu").warnings
    assert warning.startswith("1 of 4 test scans is a copy of a training scan (new = labeled_001)")


def test_classes_that_are_never_found_are_reported(run: Path) -> None:
    tested = api.test(run, device="cpu")
    rows = [replace(row, dice=0.0) if row.label == 1 else replace(row, dice=0.5) for row in tested.scores[run].rows]
    (told,) = missed_classes(str(run), Evaluation(tuple(rows), "standard"))
    assert told.startswith(f"{run} has a Dice of 0 for crescent in all 3 cases")


@pytest.mark.parametrize("lost", ["imagesTs", "labelsTs"])
def test_scans_and_labels_without_a_partner_are_rejected(run: Path, scans: Path, tmp_path: Path, lost: str) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    next(path for path in (data / lost).iterdir() if "001" in path.name).unlink()
    with user_error(Code.FILE_MISSING, "", "test_001"):
        api.test(run, data, device="cpu")
    assert not (run / "predictions").exists()
    tested = api.test(run, data, device="cpu", allow_missing=True)
    assert {row.case for row in tested.scores[run].rows} == {"test_000", "test_002"}


def test_rejected_arguments(
    run: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graftseg = CommandLine(capsys, monkeypatch)
    images, labels = ("--test-images", scans / "imagesTs"), ("--test-labels", scans / "labelsTs")
    (tmp_path / "empty").mkdir()
    for words, code in (
        ((tmp_path / "nowhere",), Code.FOLDER_MISSING),
        ((*images, "--test-labels", tmp_path / "nowhere"), Code.FOLDER_MISSING),
        ((scans, *labels), Code.OPTION_CONFLICT),
        (images, Code.OPTION_CONFLICT),
        ((tmp_path / "empty",), Code.NO_TEST_CASES),
    ):
        graftseg.fails("test", run, *words, code=code)
    graftseg.fails("test", tmp_path / "empty", scans)
    assert not (run / "predictions").exists()


@pytest.mark.parametrize("is_numbered", [True, False])
def test_swapped_folders_are_an_error_before_anything_is_predicted(
    run: Path, scans: Path, tmp_path: Path, is_numbered: bool
) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    for path in () if is_numbered else data.glob("images*/*"):
        path.rename(path.with_name(path.name.replace("_0000", "")))
    (data / "imagesTs").rename(data / "images")
    (data / "labelsTs").rename(data / "imagesTs")
    (data / "images").rename(data / "labelsTs")
    with user_error(Code.NO_TEST_CASES if is_numbered else Code.LABEL_INVALID, "labelsTs", "swapped"):
        api.test(run, data, device="cpu")
    assert not (run / "predictions").exists()


def test_an_unreadable_scan_leaves_no_scores(run: Path, scans: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    broken = sorted((data / "imagesTs").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(UserError, match=broken.name):
        api.test(run, data, device="cpu")
    assert not (run / "predictions" / "metrics.csv").exists()


def test_missing_training_data_needs_an_argument(run: Path, scans: Path, tmp_path: Path) -> None:
    """The training store contains no test cases, so the test must name them."""
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    moved = tmp_path / "moved"
    api.train(tiny_recipe(), data, moved, device="cpu")
    shutil.rmtree(data)
    with user_error(Code.NO_TEST_CASES, "", "imagesTs"):
        api.test(moved, device="cpu")


def _cut_label(data: Path) -> None:
    path = data / "labelsTs" / "test_001.nii.gz"
    label = read_label(path)
    write_label(path, label.array[:-1], Geometry((15, 16), label.geometry.affine))


def _other_class(data: Path) -> None:
    path = data / "labelsTs" / "test_001.nii.gz"
    label = read_label(path)
    write_label(path, np.full_like(label.array, 9), label.geometry)


def _broken_label(data: Path) -> None:
    (data / "labelsTs" / "test_001.nii.gz").write_bytes(b"nothing")


def _lost_label(data: Path) -> None:
    (data / "labelsTs" / "test_001.nii.gz").unlink()


def _broken_scan(data: Path) -> None:
    path = next((data / "imagesTs").glob("test_001*"))
    path.write_bytes(path.read_bytes()[:100])


def _two_channels(data: Path) -> None:
    for path in sorted((data / "imagesTs").iterdir()):
        scan = read_scan(path)
        geometry = replace(scan.geometry, shape=(*scan.geometry.shape, 1))
        write_scan(path, np.concatenate([scan.array, scan.array])[..., None], geometry)
    for path in sorted((data / "labelsTs").iterdir()):
        label = read_label(path)
        write_label(path, label.array[..., None], replace(label.geometry, shape=(*label.geometry.shape, 1)))


def _second_channel(data: Path) -> None:
    path = next((data / "imagesTs").glob("test_001*"))
    shutil.copy(path, path.parent / "test_001_0001.nii.gz")


def test_rejected_scans_leave_previous_scores_unchanged(run: Path, scans: Path, tmp_path: Path) -> None:
    api.test(run, scans, device="cpu")
    before = contents(run)
    spoiled = (_cut_label, _other_class, _broken_label, _lost_label, _broken_scan, _two_channels, _second_channel)
    for spoil in spoiled:
        data = Path(shutil.copytree(scans, tmp_path / spoil.__name__))
        spoil(data)
        with pytest.raises(UserError, match="channels" if spoil is _two_channels else "test_001"):
            api.test(run, data, device="cpu")
        assert contents(run) == before, spoil


def test_a_rejected_store_leaves_previous_scores_unchanged(run: Path, scans: Path, tmp_path: Path) -> None:
    api.test(run, scans, device="cpu")
    before = contents(run)
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    facts = json.loads((data / "dataset.json").read_text())
    names = {name: value for name, value in facts["labels"].items() if value != 3}
    (data / "dataset.json").write_text(json.dumps(facts | {"labels": names | {"kernel": 3}}))
    store = api.prepare(data, tmp_path / "store", recipe=run / "recipe.yaml")
    with user_error(Code.STORE_MISMATCH, store.path, "kernel"):
        api.test(run, store.path, device="cpu")
    (data / "labelsTs" / "test_001.nii.gz").unlink()
    shutil.copy(scans / "dataset.json", data)
    partly = api.prepare(data, tmp_path / "partly", recipe=run / "recipe.yaml")
    with user_error(Code.FILE_MISSING, "", "test_001"):
        api.test(run, partly.path, device="cpu")
    assert contents(run) == before


def test_rejected_baseline_predictions_leave_the_run_unchanged(run: Path, scans: Path) -> None:
    api.test(run, scans, device="cpu")
    shutil.rmtree(run / "baseline" / "predictions")
    api.predict(run / "baseline", scans / "imagesTr", overrides=["inference.overlap=0.75"], device="cpu")
    before = contents(run)
    with user_error(Code.PREDICTIONS_MISMATCH, run / "baseline" / "predictions", "move"):
        api.test(run, scans, device="cpu")
    assert contents(run) == before


def test_other_files_are_not_overwritten_by_scores(run: Path, scans: Path) -> None:
    api.test(run, scans, device="cpu")
    (run / "baseline" / "predictions" / "metrics.json").write_text("[]")
    before = contents(run)
    with user_error(Code.UNSAFE_TARGET, "metrics", "metrics.json"):
        api.test(run, scans, device="cpu")
    assert contents(run) == before


OTHER_SIGNALS = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGINT, *OTHER_SIGNALS])
def test_an_interrupted_test_leaves_no_partial_scores(
    cli: CommandLine, run: Path, scans: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    cli.works("test", run, scans, "--device", "cpu")
    before, write = contents(run), outputs.write_maps

    def stopping(folder: Path, *arguments: Any) -> None:
        write(folder, *arguments)
        if folder.parent.name == "baseline":
            signal.raise_signal(number)

    with monkeypatch.context() as patched:
        patched.setattr(prediction, "write_maps", stopping)
        code, out, error = cli("test", run, scans, "--device", "cpu")
    assert (code, out) == (128 + number, "") and "[interrupted]" in error
    left = entries(run)
    assert not [name for name in left if name.endswith(("metrics.csv", "metrics.json"))]
    assert json.loads((run / "baseline" / "predictions" / "manifest.json").read_text())["unfinished"]
    cli.works("test", run, scans, "--device", "cpu")
    scores = {name: text for name, text in before.items() if "metrics" in name}
    assert len(scores) == 4 and scores.items() <= contents(run).items()


def test_an_unwritable_baseline_leaves_scores_unchanged(
    run: Path, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.test(run, scans, device="cpu")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    closed = run / "baseline" / "predictions"
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed)
    with user_error(Code.PERMISSION_DENIED, closed):
        api.test(run, scans, device="cpu")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
