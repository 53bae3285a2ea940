"""Prediction and evaluation of a store's test cases, in the geometry of the original scans."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.reading import sha256_of
from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, to_source_axes
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.scans import read_label, write_label, write_scan
from graftseg.data.store import Store
from graftseg.evaluation.references import references_in, stored_references
from graftseg.inference.label_maps import ScanMaps
from graftseg.inference.predictor import Predictor
from graftseg.reporting import cases
from graftseg.reporting.orientation import Orientation
from graftseg.reporting.results import read_results
from scoring import evaluate_folder
from user_errors import user_error

TURNED = ((0.0, 0.0, -2.0, 5.0), (1.5, 0.0, 0.0, -7.0), (0.0, -1.0, 0.0, 3.0), (0.0, 0.0, 0.0, 1.0))
SHAPE = (10, 8, 6)


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write volumes with another axis order than the prepared one."""
    root, geometry = tmp_path_factory.mktemp("turned"), Geometry(SHAPE, TURNED)
    rng = np.random.default_rng(0)
    for split, count in (("Tr", 2), ("Ts", 2)):
        for index in range(count):
            labels = rng.integers(0, 2, SHAPE).astype(np.uint8)
            image = labels + rng.uniform(-0.4, 0.4, SHAPE).astype(np.float32)
            write_scan(root / f"images{split}" / f"{split}{index}_0000.nii.gz", image, geometry)
            write_label(root / f"labels{split}" / f"{split}{index}.nii.gz", labels, geometry)
    return root


@pytest.fixture(scope="module")
def turned_store(turned: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepare(read_layout(turned), tmp_path_factory.mktemp("store"), tiny.tiny_recipe().data)


@pytest.fixture(scope="module")
def turned_run(turned_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    stage = {"method": "supervised", "steps": 1}
    api.train(tiny.tiny_recipe(stages=[stage]), turned_store.path, run, device="cpu")
    return run


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, path, device="cpu")
    return path


def bright(self: Any, image: torch.Tensor, grid: Grid, wanted: object) -> ScanMaps:
    """Replace the network: bright voxels are foreground."""
    middle = image.float().mean()
    return ScanMaps(to_source_axes((image[0] > middle).numpy().astype(np.uint8), grid))


def test_a_store_and_its_scans_give_the_same_label_maps(
    turned_run: Path, turned: Path, turned_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "maps", bright)
    from_scans = api.predict(turned_run, turned / "imagesTs", tmp_path / "scans", device="cpu")
    from_store = api.predict(turned_run, turned_store.path, tmp_path / "store", device="cpu")
    assert [case.case for case in from_store.cases] == [case.case for case in from_scans.cases] == ["Ts0", "Ts1"]
    for name in ("Ts0.nii.gz", "Ts1.nii.gz"):
        one, two = (read_label(tmp_path / folder / name) for folder in ("scans", "store"))
        np.testing.assert_array_equal(one.array, two.array)
        assert one.geometry == two.geometry
    (image,) = from_store.cases[0].images
    assert image == str((turned_store.path / "cases" / "Ts0.image.npy").resolve())


def test_a_store_scores_as_its_label_files_do(
    turned_run: Path, turned: Path, turned_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "maps", bright)
    api.predict(turned_run, turned_store.path, tmp_path, device="cpu")
    from_files = api.evaluate(tmp_path, turned / "labelsTs", tmp_path / "files.csv")
    from_store = api.evaluate(tmp_path, turned_store.path)
    assert from_store == from_files
    assert from_store.rows[0].dice == 1.0, "bright voxels are the labeled ones"
    assert json.loads((tmp_path / "metrics.json").read_text())["references"] == str(turned_store.path.resolve())
    (tmp_path / "manifest.json").unlink()
    assert [row.name for row in api.evaluate(tmp_path, turned_store.path).rows] == ["class 1", "class 1"]


def test_stored_labels_are_the_original_ones(turned: Path, turned_store: Store) -> None:
    found = stored_references(turned_store)
    assert sorted(found) == ["Ts0", "Ts1"]
    for case, reference in found.items():
        original = read_label(turned / "labelsTs" / f"{case}.nii.gz")
        np.testing.assert_array_equal(reference.read().array, original.array)
        assert reference.read().geometry == original.geometry
        assert reference.path.name == f"{case}.label.npy"


def test_the_protocol_reaches_labels_of_a_store(store: Store, tmp_path: Path) -> None:
    for case in store.of("test"):
        write_label(tmp_path / f"{case.name}.nii.gz", np.zeros(case.geometry.shape, np.uint8), case.geometry)
    paper = evaluate_folder(tmp_path, store.path, classes=dict(enumerate(store.classes)), protocol="paper")
    assert {(row.dice, row.hd95) for row in paper.rows} == {(0.0, 0.0)}


def test_a_missing_label_map_names_the_stored_label(run: Path, store: Store, tmp_path: Path) -> None:
    api.predict(run, store.path, tmp_path, device="cpu")
    (tmp_path / "test_001.nii.gz").unlink()
    with user_error(Code.FILE_MISSING, "test_001.label.npy", "reference"):
        api.evaluate(tmp_path, store.path)
    assert {row.case for row in api.evaluate(tmp_path, store.path, allow_missing=True).rows} == {"test_000"}


def test_damaged_files_of_a_store_are_an_error(run: Path, store: Store, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(store.path, tmp_path / "store"))
    api.predict(run, copy, tmp_path / "out", device="cpu")
    for kind in ("image", "label"):
        path = copy / "cases" / f"test_000.{kind}.npy"
        np.save(path, np.load(path)[..., ::-1].copy())
    with pytest.raises(UserError, match=r"test_000\.label\.npy"):
        api.evaluate(tmp_path / "out", copy)
    (failure,) = api.predict(run, copy, tmp_path / "again", device="cpu").failures
    assert "test_000.image.npy" in failure.where


def test_a_store_with_other_classes_is_rejected_as_reference(run: Path, store: Store, tmp_path: Path) -> None:
    api.predict(run, store.path, tmp_path / "out", device="cpu")
    copy = Path(shutil.copytree(store.path, tmp_path / "store"))
    said = read_json(copy / "manifest.json")
    (copy / "manifest.json").write_text(json.dumps(said | {"classes": ["background", "a", "b", "c"]}))
    with user_error(Code.NOT_COMPARABLE, copy, "background, a, b, c"):
        api.evaluate(tmp_path / "out", copy)


def test_a_resampled_store_is_rejected_as_reference(turned: Path, tmp_path: Path) -> None:
    settings = PrepareSettings(dimensions=3, spacing=(3.0, 3.0, 3.0))
    store = prepare(read_layout(turned), tmp_path / "store", settings)
    with user_error(Code.GEOMETRY_MISMATCH, store.path, "Ts0"):
        references_in(store.path)


def test_equal_spacing_is_not_resampling(turned: Path, tmp_path: Path) -> None:
    settings = PrepareSettings(dimensions=3, spacing=(2.0, 1.5, 1.0))
    assert len(stored_references(prepare(read_layout(turned), tmp_path / "store", settings))) == 2


def test_stores_that_cannot_be_used(run: Path, turned_store: Store, scans: Path, tmp_path: Path) -> None:
    other = prepare(read_layout(scans), tmp_path / "other", PrepareSettings(dimensions=2, orientation=None))
    with user_error(Code.STORE_MISMATCH, other.path, "data.orientation"):
        api.predict(run, other.path, tmp_path / "out", device="cpu")
    dataset = read_layout(scans).for_training(None, 0)
    untested = prepare(dataset, tmp_path / "untested", tiny.tiny_recipe().data)
    with user_error(Code.NO_TEST_CASES, untested.path):
        api.predict(run, untested.path, tmp_path / "out", device="cpu")
    with user_error(Code.NO_TEST_CASES, untested.path):
        references_in(untested.path)
    assert not (tmp_path / "out").exists()


RAS = Orientation("RAS", is_volume=True)


def test_the_report_shows_cases_of_a_store_as_it_shows_scans(
    turned_run: Path, turned: Path, turned_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "maps", bright)
    views = []
    for scans, labels in ((turned / "imagesTs", turned / "labelsTs"), (turned_store.path, turned_store.path)):
        folder = tmp_path / scans.name
        api.predict(turned_run, scans, folder, device="cpu")
        api.evaluate(folder, labels)
        results = read_results(folder)
        assert results is not None
        predicted = cases.reported_cases(results)
        read = cases.read_arrays("Ts0", predicted["Ts0"])
        assert not isinstance(read, str)
        views.append(cases.slices_of(read.image, read.reference, read.prediction, read.geometry, RAS)[0])
    assert results is not None
    from_scans, from_store = views
    assert from_scans.marks == from_store.marks is not None
    np.testing.assert_array_equal(from_store.reference, from_scans.reference)
    np.testing.assert_array_equal(from_store.prediction, from_scans.prediction)
    assert np.corrcoef(from_store.image.ravel(), from_scans.image.ravel())[0, 1] > 0.999
    assert from_store.aspect == from_scans.aspect
    (folder / "Ts0.nii.gz").write_bytes(b"rubbish")
    assert cases.read_arrays("Ts0", predicted["Ts0"]) == "Ts0.nii.gz cannot be read"
    assert cases.read_arrays("Ts7", predicted["Ts1"]) == cases.REFERENCE_MISSING


def with_best(run: Path, target: Path, best: dict[str, Any], **facts: Any) -> Path:
    """Copy a run and add a best checkpoint with different weights."""
    shutil.copytree(run, target)
    weights = (run / "model.safetensors").read_bytes()
    (target / "best.safetensors").write_bytes(weights[:-4] + b"\0\0\0\0")
    said = read_json(run / "run.json") | facts
    said["best"] = {"sha256": sha256_of(target / "best.safetensors"), "step": 6, "dice": 0.5} | best
    (target / "run.json").write_text(json.dumps(said))
    return target


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(folder / "manifest.json")
    return content


@pytest.mark.parametrize(
    ("on", "words"),
    [("test", "best on test, step 6 (oracle)"), ("validation", "best on validation, step 6")],
)
def test_the_best_checkpoint_has_its_own_folder_and_description(
    run: Path, store: Store, tmp_path: Path, on: str, words: str
) -> None:
    copy = with_best(run, tmp_path / "run", {"on": on})
    predicted = api.predict(copy, store.path, checkpoint="best", device="cpu")
    assert predicted.folder == copy / "predictions-best"
    assert manifest(predicted.folder)["checkpoint"] == words
    assert manifest(predicted.folder)["weights"] == sha256_of(copy / "best.safetensors")
    api.predict(copy, store.path, device="cpu")
    assert manifest(copy / "predictions")["checkpoint"] == "last"
    with user_error(Code.PREDICTIONS_MISMATCH, copy / "predictions"):
        api.predict(copy, store.path, copy / "predictions", checkpoint="best", device="cpu")


def test_a_best_checkpoint_equal_to_the_shipped_one_has_its_description(
    run: Path, store: Store, tmp_path: Path
) -> None:
    words = "best on test, step 6 (protocol paper)"
    copy = with_best(run, tmp_path / "run", {"on": "test", "sha256": sha256_of(run / "model.safetensors")})
    shutil.copy(copy / "model.safetensors", copy / "best.safetensors")
    said = read_json(copy / "run.json") | {"checkpoint": words}
    (copy / "run.json").write_text(json.dumps(said))
    for checkpoint in ("shipped", "best"):
        predicted = api.predict(copy, store.path, checkpoint=checkpoint, device="cpu")
        assert manifest(predicted.folder)["checkpoint"] == words


def test_a_run_without_a_best_checkpoint(run: Path, store: Store, tmp_path: Path) -> None:
    with user_error(Code.NO_BEST_CHECKPOINT, run, "selection.every"):
        api.predict(run, store.path, tmp_path / "out", checkpoint="best", device="cpu")
    copy = with_best(run, tmp_path / "run", {"on": "test", "sha256": "0" * 64})
    with user_error(Code.WEIGHTS_DAMAGED, copy / "best.safetensors"):
        api.predict(copy, store.path, checkpoint="best", device="cpu")
    assert not (tmp_path / "out").exists() and not (copy / "predictions-best").exists()
