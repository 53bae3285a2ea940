"""Cached scores are reused only while the test cases are unchanged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from graftseg import api
from graftseg.core.files import read_json
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_label, read_scan, write_label, write_scan
from graftseg.data.store import Store
from graftseg.experiments.records import read_record
from graftseg.experiments.seeds import train_seeds
from sweep_fakes import Sweeper, forbid

RECIPE = tiny.tiny_recipe(stages=[{"method": "supervised", "steps": 1}])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write scans that a test may change."""
    return tiny.write_scans(tmp_path / "data")


def prepared(data: Path) -> Store:
    return prepare(read_layout(data), data.parent / "store", RECIPE.data)


def change_labels(data: Path) -> None:
    """Erase one half of each test label."""
    for path in sorted((data / "labelsTs").iterdir()):
        label = read_label(path)
        half = label.array.copy()
        half[: len(half) // 2] = 0
        write_label(path, half, label.geometry)


def change_images(data: Path) -> None:
    for path in sorted((data / "imagesTs").iterdir()):
        scan = read_scan(path)
        write_scan(path, scan.array[..., ::-1].copy(), scan.geometry)


def change_class_names(data: Path) -> None:
    text = (data / "dataset.json").read_text()
    (data / "dataset.json").write_text(text.replace("crescent", "moon"))


def test_seeds_are_scored_again_if_test_cases_changed(data: Path) -> None:
    store, out = prepared(data), data.parent / "out"
    (before,) = train_seeds(RECIPE, store.path, out, 1, device="cpu")
    change_labels(data)
    assert prepared(data).identity == store.identity
    first, second = train_seeds(RECIPE, store.path, out, 2, device="cpu")
    for result in (first, second):
        folder = data.parent / f"again-{result.seed}"
        assert api.predict(out / f"seed-{result.seed}", store.path, folder, device="cpu").failures == ()
        api.evaluate(folder, store.path)
        kept = out / f"seed-{result.seed}" / "predictions" / "metrics.csv"
        assert kept.read_text() == (folder / "metrics.csv").read_text()
    assert first != before


def test_a_sweep_records_no_scores_of_other_test_cases(sweeper: Sweeper, data: Path) -> None:
    store = prepared(data)
    sweeper("masks", "la-4/bcp", data=store.path)
    folder = sweeper.results / "la-4/bcp/seed-0"
    before = read_record(folder).evaluation
    change_labels(data)
    prepared(data)
    shutil.rmtree(sweeper.results)
    sweeper("masks", "la-4/bcp", data=store.path)
    assert sweeper.records() == ["la-4/bcp/seed-0"] and read_record(folder).evaluation != before


def test_changed_scans_are_predicted_again_even_if_scored_since(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, out = prepared(data), data.parent / "out"
    train_seeds(RECIPE, store.path, out, 1, device="cpu")
    change_images(data)
    prepared(data)
    api.evaluate(out / "seed-0" / "predictions", store.path)
    forbid(monkeypatch, "predict_scans")
    with pytest.raises(AssertionError, match="executed again"):
        train_seeds(RECIPE, store.path, out, 1, device="cpu")


def test_scores_without_test_identity_are_computed_again(store: Store, tmp_path: Path) -> None:
    before = train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu")
    folder = tmp_path / "seed-0" / "predictions"
    manifest, scores = (read_json(folder / name) for name in ("manifest.json", "metrics.json"))
    assert scores.pop("tested_on") == store.test_identity
    assert [case.pop("sha256") for case in manifest["cases"]] == [case.sha256[case.image] for case in store.of("test")]
    for name, content in (("manifest.json", manifest), ("metrics.json", scores)):
        (folder / name).write_text(json.dumps(content))
    assert train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu") == before
    assert json.loads((folder / "metrics.json").read_text())["tested_on"] == store.test_identity


@pytest.mark.parametrize("change", [change_labels, change_images, change_class_names])
def test_changed_labels_images_or_class_names_change_the_test_identity(
    data: Path, change: Callable[[Path], None]
) -> None:
    before = prepared(data).test_identity
    assert prepared(data).test_identity == before
    change(data)
    assert prepared(data).test_identity != before
