"""A run and its baseline on test scans: the same figures as step by step, a verdict, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine
from tiny import tiny_recipe, write_scans

from graftseg import api, examination
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation


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


def test_run_and_baseline_are_scored_as_step_by_step(run: Path, scans: Path, tmp_path: Path) -> None:
    examined = examination.test(run, device="cpu")
    assert list(examined.scores) == [run, run / "baseline"]
    for path in examined.scores:
        by_hand = tmp_path / "by-hand" / path.name
        api.predict(path, scans / "imagesTs", by_hand, device="cpu")
        api.evaluate(by_hand, scans / "labelsTs")
        assert (by_hand / "metrics.csv").read_bytes() == (path / "predictions" / "metrics.csv").read_bytes()
    assert examined.beside is not None
    assert examined.beside.first.name == str(run / "baseline")
    assert examined.report == run / "report.html"
    assert "Beside the baseline" in examined.report.read_text()
    *_, said = examined.verdict()
    assert said.startswith("mean Dice ") and said.endswith("neither network is good enough for that to mean anything")


def test_a_run_without_a_baseline_is_scored_alone(run: Path, scans: Path) -> None:
    shutil.rmtree(run / "baseline")
    examined = examination.test(run, scans, device="cpu")
    assert list(examined.scores) == [run] and examined.beside is None
    assert not [sentence for sentence in examined.verdict() if "unlabeled" in sentence]


def test_it_can_be_repeated_and_named_in_three_ways(
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
    assert len({row.case for row in examination.test(run, store.path, device="cpu").scores[run].rows}) == 3


def test_folds_are_tested_together(scans: Path, tmp_path: Path) -> None:
    run = tmp_path / "folds"
    api.train_folds(tiny_recipe(baseline=True), scans, run, folds=3, device="cpu")
    examined = examination.test(run, device="cpu")
    assert list(examined.scores) == [run, run / "baseline"]
    assert len({row.case for row in examined.scores[run].rows}) == 3
    assert examined.report.is_file()


def test_label_maps_of_other_scans_in_the_folder_are_no_test_cases(run: Path, scans: Path, tmp_path: Path) -> None:
    everything = tmp_path / "labels"
    shutil.copytree(scans / "labelsTr", everything)
    shutil.copytree(scans / "labelsTs", everything, dirs_exist_ok=True)
    api.predict(run, scans / "imagesTr", device="cpu")
    examined = examination.test(run, images=scans / "imagesTs", labels=everything, device="cpu", allow_missing=True)
    assert {row.case for row in examined.scores[run].rows} == {"test_000", "test_001", "test_002"}


def test_another_set_can_be_tested_after_the_first(run: Path, scans: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for kind in ("images", "labels"):
        (other / f"{kind}Ts").mkdir(parents=True)
        for path in (scans / f"{kind}Ts").iterdir():
            shutil.copy(path, other / f"{kind}Ts" / path.name.replace("test_", "more_"))
    examination.test(run, scans, device="cpu")
    examined = examination.test(run, other, device="cpu")
    assert {row.case for row in examined.scores[run].rows} == {"more_000", "more_001", "more_002"}
    assert {row.case for row in examined.scores[run / "baseline"].rows} == {"more_000", "more_001", "more_002"}


def test_label_maps_made_with_other_settings_are_not_lost(run: Path, scans: Path) -> None:
    api.predict(run, scans / "imagesTr", overrides=["inference.overlap=0.75"], device="cpu")
    with pytest.raises(UserError, match=r"other inference settings; move .*predictions away and test again"):
        examination.test(run, scans, device="cpu")


def test_a_baseline_that_has_not_ended_does_not_stop_the_test_of_the_run(run: Path) -> None:
    facts = json.loads((run / "baseline" / "run.json").read_text())
    (run / "baseline" / "run.json").write_text(json.dumps(facts | {"status": "running"}))
    examined = examination.test(run, device="cpu")
    assert list(examined.scores) == [run] and examined.beside is None
    assert examined.warnings == (
        f"{run / 'baseline'} has not been trained to its end, so that nothing stands beside the run",
    )


def test_a_baseline_of_another_kind_is_refused(run: Path) -> None:
    tree = yaml.safe_load((run / "baseline" / "recipe.yaml").read_text())
    (run / "baseline" / "recipe.yaml").write_text(yaml.safe_dump(tree | {"seed": 7}))
    with pytest.raises(UserError, match=r"not what the labeled scans alone give .* \(differ: seed"):
        examination.test(run, device="cpu")
    assert not (run / "predictions").exists()


def test_scans_of_the_training_are_told(run: Path, scans: Path) -> None:
    examined = examination.test(run, images=scans / "imagesTr", labels=scans / "labelsTr", device="cpu")
    (told,) = examined.warnings
    assert told.startswith("3 of 3 test cases have the names of scans in the training (labeled_000)")


def test_classes_that_are_never_found_are_told(run: Path) -> None:
    examined = examination.test(run, device="cpu")
    rows = [replace(row, dice=0.0) if row.label == 1 else replace(row, dice=0.5) for row in examined.scores[run].rows]
    (told,) = examination._never_found(run, Evaluation(tuple(rows), "standard"))
    assert told.startswith(f"{run} finds crescent right in none of 3 cases")


@pytest.mark.parametrize("lost", ["imagesTs", "labelsTs"])
def test_scans_and_labels_without_a_partner_are_refused_at_once(
    run: Path, scans: Path, tmp_path: Path, lost: str
) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    next(path for path in (data / lost).iterdir() if "001" in path.name).unlink()
    with pytest.raises(UserError, match=r"test_001 is a (scan|label map) without a (scan|label map) of the same name"):
        examination.test(run, data, device="cpu")
    assert not (run / "predictions").exists()
    examined = examination.test(run, data, device="cpu", allow_missing=True)
    assert {row.case for row in examined.scores[run].rows} == {"test_000", "test_002"}


def test_what_is_refused(
    run: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graftseg = CommandLine(capsys, monkeypatch)
    assert "there is no such folder" in graftseg.fails("test", run, tmp_path / "nowhere")
    assert "there is no such folder" in graftseg.fails(
        "test", run, "--test-images", scans / "imagesTs", "--test-labels", tmp_path / "nowhere"
    )
    assert "not named in one way" in graftseg.fails("test", run, scans, "--test-labels", scans / "labelsTs")
    assert "not named in one way" in graftseg.fails("test", run, "--test-images", scans / "imagesTs")
    (tmp_path / "empty").mkdir()
    assert "holds no test scans with labels in imagesTs/ and labelsTs/" in graftseg.fails(
        "test", run, tmp_path / "empty"
    )
    graftseg.fails("test", tmp_path / "empty", scans)
    assert not (run / "predictions").exists()


def test_a_scan_that_cannot_be_read_is_no_score_of_the_others(run: Path, scans: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    broken = sorted((data / "imagesTs").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(UserError, match=broken.name):
        examination.test(run, data, device="cpu")
    assert not (run / "predictions" / "metrics.csv").exists()


def test_scans_that_have_gone(run: Path, scans: Path, tmp_path: Path) -> None:
    """The store that was trained on holds no test cases, so they must be named."""
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    moved = tmp_path / "moved"
    api.train(tiny_recipe(), data, moved, device="cpu")
    shutil.rmtree(data)
    with pytest.raises(
        UserError, match="no test scans with labels are known of this run; name a folder with imagesTs/"
    ):
        examination.test(moved, device="cpu")
