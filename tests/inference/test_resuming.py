"""Predictions of archives: skipped scans, shards that share a folder, and scans that fail."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.files import locked, read_json
from graftseg.core.predictions import PredictedCase, read_manifest
from graftseg.data.store import Store
from graftseg.inference.inputs import Source
from graftseg.inference.output_folder import OutputFolder
from graftseg.inference.predict import PlannedPrediction, Predicted
from graftseg.inference.prediction_settings import Shard
from user_errors import user_error

NAMES = ["test_000", "test_001"]


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, path, device="cpu")
    return path


@pytest.fixture
def images(scans: Path, tmp_path: Path) -> Path:
    """Copy two scans, test_000 and test_001."""
    return Path(shutil.copytree(scans / "imagesTs", tmp_path / "images"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def predict(run: Path, images: Path, out: Path, **options: Any) -> Predicted:
    return api.predict(run, images, out, device="cpu", **options)


def listed(out: Path) -> list[str]:
    manifest = read_manifest(out, "")
    assert manifest is not None
    return sorted(case.case for case in manifest.cases)


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_finished_scans_are_skipped(run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = predict(run, images, out)
    assert first.skipped == 0
    with monkeypatch.context() as patch:
        patch.setattr(PlannedPrediction, "predict_case", None)
        again = predict(run, images, out)
    assert (again.skipped, again.cases, again.unfound) == (2, first.cases, first.unfound)
    assert listed(out) == NAMES
    assert predict(run, images, out, again=True).skipped == 0
    assert [line["case"] for line in lines(out / "cases.jsonl")] == NAMES


def test_changed_scans_settings_and_label_maps_are_predicted_again(run: Path, images: Path, out: Path) -> None:
    first, second = sorted(images.iterdir())
    predict(run, images, out)
    label_map = (out / "test_000.nii.gz").read_bytes()
    shutil.copy(second, first)
    assert predict(run, images, out).skipped == 1
    assert (out / "test_000.nii.gz").read_bytes() != label_map
    (out / "test_000.nii.gz").write_bytes(b"damaged")
    assert predict(run, images, out).skipped == 1
    assert predict(run, images, out).skipped == 2
    assert predict(run, images, out, overrides=["inference.precision=float32"]).skipped == 0
    assert predict(run, images, out, overrides=["inference.overlap=0.25"]).skipped == 0
    assert predict(run, images, out, overrides=["inference.overlap=0.25"], probabilities=True).skipped == 0


def test_the_journal_outlives_a_killed_process(
    run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "end", lambda *_: None)
        predict(run, images, out)
    assert read_json(out / "manifest.json")["cases"] == []
    assert listed(out) == NAMES
    journal = out / "cases.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    assert listed(out) == NAMES[:1], "an incomplete line is ignored"
    assert predict(run, images, out).skipped == 1
    assert listed(out) == NAMES


def test_an_older_manifest_can_be_read_and_extended(run: Path, images: Path, out: Path) -> None:
    predict(run, images, out)
    content = read_json(out / "manifest.json")
    for case in content["cases"]:
        for key in ("precision", "found", "key", "checksums"):
            del case[key]
    (out / "manifest.json").write_text(json.dumps(content))
    (out / "cases.jsonl").unlink()
    assert listed(out) == NAMES
    assert predict(run, images / "test_000_0000.nii.gz", out).skipped == 0
    assert predict(run, images, out).skipped == 1
    assert listed(out) == NAMES


def test_any_error_of_a_scan_is_listed(run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict_case = PlannedPrediction.predict_case

    def broken(plan: PlannedPrediction, case: Source, *others: Any) -> PredictedCase:
        if case.name == "test_000":
            raise ZeroDivisionError("unexpected")
        return predict_case(plan, case, *others)

    monkeypatch.setattr(PlannedPrediction, "predict_case", broken)
    predicted = predict(run, images, out)
    (failure,) = predicted.failures
    assert "ZeroDivisionError: unexpected" in failure.finding and "test_000_0000.nii.gz" in failure.where
    assert [case.case for case in predicted.cases] == ["test_001"]
    failed, done = lines(out / "cases.jsonl")
    assert (failed, done["case"]) == ({"case": "test_000", "failure": str(failure)}, "test_001")
    monkeypatch.undo()
    assert predict(run, images, out).skipped == 1


def test_shards_fill_one_folder(run: Path, images: Path, out: Path) -> None:
    for number in range(5):
        shutil.copy(images / "test_000_0000.nii.gz", images / f"more{number}_0000.nii.gz")
    parts = [{case.case for case in predict(run, images, out, shard=f"{number}/3").cases} for number in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 7
    assert listed(out) == sorted(set.union(*parts))
    assert predict(run, images, out).skipped == 7
    for name in set.union(*parts):
        assert sum(Shard(number, 3).contains(name) for number in (1, 2, 3)) == 1


def test_two_shards_at_the_same_time(run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another shard begins and ends while a scan of the first shard is predicted."""
    monkeypatch.setattr(Shard, "contains", lambda shard, name: name == NAMES[shard.number - 1])
    predict_case = PlannedPrediction.predict_case

    def interleaved(plan: PlannedPrediction, case: Source, *others: Any) -> PredictedCase:
        with monkeypatch.context() as patch:
            patch.setattr(PlannedPrediction, "predict_case", predict_case)
            predict(run, images, out, shard="2/2")
            with user_error(Code.FOLDER_LOCKED, out):
                predict(run, images, out, shard="1/2")
            with user_error(Code.FOLDER_LOCKED, out):
                predict(run, images, out)
        return predict_case(plan, case, *others)

    monkeypatch.setattr(PlannedPrediction, "predict_case", interleaved)
    predict(run, images, out, shard="1/2")
    assert listed(out) == NAMES
    assert read_json(out / "manifest.json")["unfinished"] == []


def test_a_shard_does_not_wait_forever_for_the_manifest(
    run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graftseg.inference.output_folder.LOCK_ATTEMPTS", 2)
    out.mkdir()
    with locked(out, "taken"), user_error(Code.FOLDER_LOCKED, out):
        predict(run, images, out, shard="1/1")


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/8/2", "a/b", "1/0"])
def test_invalid_shards(text: str) -> None:
    with user_error(Code.OPTION_INVALID, text):
        Shard.parse(text)


def test_scores_stay_if_all_scans_are_skipped(run: Path, images: Path, scans: Path, out: Path) -> None:
    predict(run, images, out)
    api.evaluate(out, scans / "labelsTs")
    assert not predict(run, images, out).warnings
    assert (out / "metrics.csv").exists()
    (out / "test_000.nii.gz").unlink()
    assert len(predict(run, images, out).warnings) == 1
    assert not (out / "metrics.csv").exists()
