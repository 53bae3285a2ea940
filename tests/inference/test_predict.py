"""Prediction of folders: failing scans, earlier label maps, and files that must not be overwritten."""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import CommandLine
from PIL import Image

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import locked, read_json
from graftseg.core.predictions import PredictedCase
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Geometry
from graftseg.data.grid import Grid
from graftseg.data.scans import write_scan
from graftseg.data.store import Store
from graftseg.inference import predict as prediction
from graftseg.inference.inputs import Source
from graftseg.inference.label_maps import ScanMaps
from graftseg.inference.predict import PlannedPrediction
from graftseg.inference.predictor import Predictor
from user_errors import user_error


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, path, device="cpu")
    return path


@pytest.fixture(scope="module")
def other(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "other"
    api.train(tiny.tiny_recipe(seed=1), store.path, path, device="cpu")
    return path


@pytest.fixture
def images(scans: Path, tmp_path: Path) -> Path:
    """Copy two scans, test_000 and test_001."""
    return Path(shutil.copytree(scans / "imagesTs", tmp_path / "images"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def manifest(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(out / "manifest.json")
    return content


def listed(out: Path) -> list[str]:
    return [case["case"] for case in manifest(out)["cases"]]


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_the_manifest_says_where_label_maps_come_from(run: Path, images: Path, out: Path) -> None:
    predicted = api.predict(run, images, out, device="cpu")
    assert [case.output for case in predicted.cases] == ["test_000.nii.gz", "test_001.nii.gz"]
    said = manifest(out)
    assert said["run"] == str(run.resolve())
    assert said["classes"] == ["background", "crescent", "ring", "core"]
    assert said["inference"]["overlap"] == 0.5
    assert said["cases"][0]["images"] == [str((images / "test_000_0000.nii.gz").resolve())]
    assert (said["failures"], said["unfinished"]) == ({}, [])


def test_other_label_maps_in_the_folder_are_reported(cli: CommandLine, run: Path, images: Path, out: Path) -> None:
    first, second = (images / f"test_00{number}_0000.nii.gz" for number in range(2))
    assert "other label map" not in cli.works("predict", run, first, "--out", out, "--uncertainty", "--probabilities")
    assert "other label map" not in cli.works("predict", run, first, "--out", out, "--uncertainty")
    assert "already contained 1 other label map," in cli.works("predict", run, second, "--out", out, "--uncertainty")
    shutil.copy(out / "test_000.nii.gz", out / "by_hand.nii.gz")
    assert "already contained 2 other label maps," in cli.works("predict", run, second, "--out", out)
    assert api.predict(run, images, out, device="cpu").others == 1


def test_scans_with_other_channels_fail_and_do_not_stop_the_others(run: Path, images: Path, out: Path) -> None:
    affine = tuple(tuple(row) for row in np.eye(4).tolist())
    write_scan(images / "two.nii.gz", np.zeros((2, 16, 16, 4), np.float32), Geometry((16, 16, 4), affine))
    shutil.copy(images / "test_000_0000.nii.gz", images / "test_000_0001.nii.gz")
    predicted = api.predict(run, images, out, device="cpu")
    assert [case.case for case in predicted.cases] == ["test_001"]
    surplus, two = predicted.failures
    assert "test_000_0000.nii.gz" in surplus.where and "2 channels" in surplus.finding
    assert (two.code, "two.nii.gz" in two.where) == (Code.CHANNELS_MISMATCH, True)
    assert manifest(out)["failures"] == {"test_000": str(surplus), "two": str(two)}
    assert sorted(content(out)) == ["cases.jsonl", "classes.json", "manifest.json", "test_001.nii.gz"]


def test_pipes_and_links_to_proc_fail_and_do_not_stop_the_others(run: Path, images: Path, out: Path) -> None:
    """Reading a pipe, or /proc/kmsg, would wait forever. /proc/kmsg is a regular file of size 0."""
    os.mkfifo(images / "a.nii.gz")
    (images / "b.nii.gz").symlink_to("a.nii.gz")
    for name in ("c.nii.gz", "d.zip", "e.png", "f.mha", "g.dcm"):
        (images / name).symlink_to("/proc/kmsg")
    for _ in range(2):
        predicted = api.predict(run, images, out, device="cpu")
        assert [case.case for case in predicted.cases] == ["test_000", "test_001"]
        failures = [(Path(error.where).name[0], error.code) for error in predicted.failures]
        refused = {"a": Code.READ_FAILED, "b": Code.READ_FAILED} | dict.fromkeys("cdefg", Code.SCAN_DAMAGED)
        assert sorted(failures) == sorted(refused.items())
        assert sorted(manifest(out)["failures"]) == list("abcdefg")


def test_a_long_name_fails_only_if_its_files_need_longer_names(run: Path, images: Path, out: Path) -> None:
    name = "x" * (255 - len(".nii.gz"))
    (images / "test_000_0000.nii.gz").rename(images / f"{name}.nii.gz")
    for _ in range(2):
        predicted = api.predict(run, images, out, device="cpu")
        assert [case.case for case in predicted.cases] == ["test_001", name] and not predicted.failures
        predicted = api.predict(run, images, out, device="cpu", probabilities=True)
        assert [case.case for case in predicted.cases] == ["test_001"]
        assert [(error.code, name in error.where) for error in predicted.failures] == [(Code.CASE_NAME, True)]
        assert not (out / f"{name}.nii.gz").exists()


def test_numbers_are_cases_if_the_training_cases_are_numbered(
    run: Path, images: Path, out: Path, tmp_path: Path
) -> None:
    (images / "test_000_0000.nii.gz").rename(images / "p_0000.nii.gz")
    (images / "test_001_0000.nii.gz").rename(images / "p_0001.nii.gz")
    (failure,) = api.predict(run, images, out, device="cpu").failures
    assert "p_0000.nii.gz" in failure.where and "2 channels" in failure.finding
    numbered = RunFolder(Path(shutil.copytree(run, tmp_path / "numbered")))
    numbered.update_manifest({"store": numbered.training_manifest()["store"] | {"labeled": ["p_0007"]}})
    assert not api.predict(numbered.path, images, out, device="cpu").failures
    assert listed(out) == ["p_0000", "p_0001"]


def test_an_unsupported_picture_format_is_an_error(run: Path, images: Path, out: Path) -> None:
    (images / "a.gif").touch()
    with user_error(Code.NOT_A_SCAN, "a.gif", ".png"):
        api.predict(run, images / "a.gif", out, device="cpu")


@pytest.mark.parametrize("name", ["one.nii.gz", "one.PNG"])
def test_a_file_name_is_refused_as_output_folder(run: Path, images: Path, tmp_path: Path, name: str) -> None:
    with user_error(Code.NOT_A_FOLDER, name, "name a folder"):
        api.predict(run, images, tmp_path / name, device="cpu")
    assert not (tmp_path / name).exists()


def test_a_missing_package_is_reported_once(
    run: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        Image.fromarray(np.eye(20, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    code, _, error = CommandLine(capsys, monkeypatch)("predict", run, tmp_path, "--out", out, "--device", "cpu")
    assert code == 2 and error.count("pip install pillow") == 1
    assert sorted(manifest(out)["failures"]) == ["a", "b"]


def test_cases_are_added_and_replaced(run: Path, images: Path, out: Path) -> None:
    api.predict(run, images / "test_001_0000.nii.gz", out, device="cpu")
    first = content(out)["test_001.nii.gz"]
    api.predict(run, images / "test_000_0000.nii.gz", out, device="cpu")
    assert listed(out) == ["test_000", "test_001"]
    assert content(out)["test_001.nii.gz"] == first
    api.predict(run, images, out, device="cpu")
    assert listed(out) == ["test_000", "test_001"]
    (out / "test_001.nii.gz").unlink()
    api.predict(run, images / "test_000_0000.nii.gz", out, device="cpu")
    assert listed(out) == ["test_000"], "removed label maps are not listed"


def test_a_scan_that_fails_now_does_not_keep_its_old_label_map(run: Path, images: Path, out: Path) -> None:
    api.predict(run, images, out, device="cpu")
    (out / "notes.txt").write_text("mine")
    (images / "test_000_0000.nii.gz").write_bytes(b"rubbish")
    api.predict(run, images, out, device="cpu")
    assert sorted(content(out)) == ["cases.jsonl", "classes.json", "manifest.json", "notes.txt", "test_001.nii.gz"]
    assert (listed(out), list(manifest(out)["failures"])) == (["test_001"], ["test_000"])
    api.predict(run, images / "test_001_0000.nii.gz", out, device="cpu")
    assert list(manifest(out)["failures"]) == ["test_000"]


def test_scores_do_not_outlive_their_label_maps(run: Path, images: Path, scans: Path, out: Path) -> None:
    api.predict(run, images, out, device="cpu")
    api.evaluate(out, scans / "labelsTs")
    assert {"metrics.csv", "metrics.json"} <= content(out).keys()
    api.predict(run, images / "test_000_0000.nii.gz", out, again=True, device="cpu")
    assert sorted(content(out)) == [
        "cases.jsonl",
        "classes.json",
        "manifest.json",
        "test_000.nii.gz",
        "test_001.nii.gz",
    ]


def test_scores_stay_with_their_label_maps(run: Path, images: Path, scans: Path, out: Path) -> None:
    first, second = sorted(images.iterdir())[:2]
    api.predict(run, first, out, device="cpu")
    api.evaluate(out, scans / "labelsTs", allow_missing=True)
    scored = (out / "metrics.csv").read_bytes()
    added = api.predict(run, second, out, device="cpu")
    assert (out / "metrics.csv").read_bytes() == scored and not added.warnings
    again = api.predict(run, first, out, again=True, device="cpu")
    assert not (out / "metrics.csv").exists() and not (out / "metrics.json").exists()
    (warning,) = again.warnings
    assert warning.startswith(f"{out}: removed the scores")


def test_a_name_in_another_unicode_form_is_the_same_case(run: Path, images: Path, out: Path, tmp_path: Path) -> None:
    scan = sorted(images.iterdir())[0]
    names = [unicodedata.normalize(form, "é_0000.nii.gz") for form in ("NFC", "NFD")]
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(scan, folder / name)
        api.predict(run, folder, out, device="cpu")
    (left,) = out.glob("*.nii.gz")
    assert left.name == unicodedata.normalize("NFC", "é.nii.gz")


def test_an_unrelated_metrics_file_is_kept(run: Path, images: Path, out: Path) -> None:
    out.mkdir()
    (out / "metrics.csv").write_text("mine")
    api.predict(run, images, out, device="cpu")
    assert (out / "metrics.csv").read_text() == "mine"


def test_another_network_is_refused(run: Path, other: Path, images: Path, out: Path) -> None:
    api.predict(run, images, out, device="cpu")
    before = content(out)
    with user_error(Code.PREDICTIONS_MISMATCH, out, str(run)):
        api.predict(other, images, out, device="cpu")
    assert content(out) == before


def test_a_copy_of_the_network_is_the_same_network(run: Path, images: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(run, tmp_path / "moved"))
    api.predict(moved, images / "test_000_0000.nii.gz", device="cpu")
    again = moved.rename(tmp_path / "again")
    api.predict(again, images / "test_001_0000.nii.gz", device="cpu")
    assert listed(again / "predictions") == ["test_000", "test_001"]


def test_settings_of_inference_can_change(run: Path, images: Path, out: Path) -> None:
    scan = images / "test_000_0000.nii.gz"
    api.predict(run, scan, out, overrides=["inference.largest_component=true"], device="cpu")
    assert manifest(out)["inference"]["largest_component"] is True
    assert listed(out) == ["test_000"]
    with user_error(Code.PREDICTIONS_MISMATCH, out, "1 label maps"):
        api.predict(run, images / "test_001_0000.nii.gz", out, device="cpu")
    api.predict(run, images, out, device="cpu")
    assert manifest(out)["inference"]["largest_component"] is False


@pytest.mark.parametrize(
    ("override", "keyword"),
    [
        ("seed=1", "--set seed=1"),
        ("inference={}", "--set inference={}"),
        ("network.width=4", "--set network.width=4"),
        ("inference.overlaps=0", "inference.overlaps"),
        ("inference.overlap=2", "inference.overlap"),
        ("inference.decision=threshold", "two classes"),
        ("inference.overlap", "key=value"),
    ],
)
def test_settings_that_cannot_be_used(run: Path, images: Path, out: Path, override: str, keyword: str) -> None:
    api.predict(run, images, out, device="cpu")
    before = content(out)
    with pytest.raises(UserError) as caught:
        api.predict(run, images, out, overrides=[override], device="cpu")
    assert keyword in str(caught.value)
    assert content(out) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda said: [],
        lambda said: {"format": "graftseg store", "version": 1},
        lambda said: said | {"version": 2},
        lambda said: said | {"cases": "none"},
        lambda said: said | {"unfinished": ["../scan.nii.gz"]},
    ],
)
def test_manifests_that_are_not_replaced(run: Path, images: Path, out: Path, change: Callable[[Any], Any]) -> None:
    api.predict(run, images, out, device="cpu")
    (out / "manifest.json").write_text(json.dumps(change(manifest(out))))
    before = content(out)
    with user_error(Code.DAMAGED_FILE, out / "manifest.json", "--out"):
        api.predict(run, images, out, device="cpu")
    assert content(out) == before


def test_unrelated_files_are_not_overwritten(run: Path, images: Path, scans: Path, tmp_path: Path) -> None:
    references = Path(shutil.copytree(scans / "labelsTs", tmp_path / "labels"))
    before = content(references)
    with user_error(Code.UNSAFE_TARGET, references / "test_000.nii.gz"):
        api.predict(run, images, references, device="cpu")
    assert content(references) == before


def test_an_interrupted_prediction_can_be_repeated(
    run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.predict(run, images, out, device="cpu")
    whole = content(out)
    predict_case = PlannedPrediction.predict_case

    def interrupted(plan: PlannedPrediction, case: Source, *others: Any) -> PredictedCase:
        if case.name == "test_001":
            raise KeyboardInterrupt
        return predict_case(plan, case, *others)

    with monkeypatch.context() as patch:
        patch.setattr(PlannedPrediction, "predict_case", interrupted)
        with pytest.raises(KeyboardInterrupt):
            api.predict(run, images, out, again=True, device="cpu")
    assert content(out)["test_001.nii.gz"] == whole["test_001.nii.gz"], "it is kept until it is overwritten"
    assert (listed(out), manifest(out)["unfinished"]) == (["test_000"], ["test_001.nii.gz"])
    api.predict(run, images, out, device="cpu")
    assert (listed(out), manifest(out)["unfinished"]) == (["test_000", "test_001"], [])
    for name in ("test_000.nii.gz", "test_001.nii.gz"):
        assert content(out)[name] == whole[name]


def test_classes_in_no_label_map_are_reported(
    run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """The first label map has the first class, the second the first and the last."""
    values = iter([[1, 1], [1, 3], [0, 0], [0, 0]])

    def finds(predictor: object, image: torch.Tensor, grid: Grid, *_: object) -> ScanMaps:
        labels = np.zeros(grid.source_shape, np.uint8)
        labels[0, :2] = next(values)
        return ScanMaps(labels)

    monkeypatch.setattr(prediction, "predict_maps", finds)
    said = cli.works("predict", run, images, "--out", out)
    assert said.startswith(f"{out}: 2 label maps\nWarning: ") and said.endswith(": ring\n")
    assert api.predict(run, images, out, again=True).unfound == ("crescent", "ring", "core")


def test_one_label_map_is_printed_in_the_singular(run: Path, images: Path, out: Path, cli: CommandLine) -> None:
    said = cli.works("predict", run, images / "test_000_0000.nii.gz", "--out", out)
    assert re.fullmatch(r"1 label map(, 1 of them empty)?", said.splitlines()[0].removeprefix(f"{out}: "))


def test_out_of_memory_is_a_user_error(run: Path, images: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **settings: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Predictor, "maps", full)
    with user_error(Code.OUT_OF_MEMORY, "inference", "inference.windows_per_forward=1"):
        api.predict(run, images, out, device="cpu")
    assert not out.exists()


def test_two_predictions_cannot_write_into_one_folder(run: Path, images: Path, out: Path) -> None:
    out.mkdir(parents=True)
    with (
        locked(out, "taken"),
        pytest.raises(UserError, match="another prediction writes into this folder; wait until it ends"),
    ):
        api.predict(run, images, out, device="cpu")
    assert content(out) == {}
