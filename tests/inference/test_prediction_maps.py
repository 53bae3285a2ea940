"""Probabilities, uncertainty, flips and folds of a prediction, and the written files."""

import json
import shutil
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from scipy import stats

from graftseg import api
from graftseg.core.colors import COLORS
from graftseg.core.errors import Code
from graftseg.core.files import read_json, write_json
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.data.scans import read_label
from graftseg.data.store import Store
from graftseg.evaluation.references import label_map_files
from graftseg.inference import predictor as prediction
from graftseg.inference.ensemble import Ensemble
from graftseg.inference.label_maps import LEVELS
from graftseg.inference.predict import FLIPS
from graftseg.recipes.recipe import load_recipe
from graftseg.training.folds import fold_recipe
from user_errors import user_error


@pytest.fixture(scope="module")
def folds(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder of two folds with different seeds."""
    path = tmp_path_factory.mktemp("runs") / "folds"
    parts = [[case.name] for case in store.of("labeled")[:2]]
    for number, part in enumerate(parts):
        recipe = fold_recipe(tiny.tiny_recipe(seed=number), part)
        api.train(recipe, store.path, path / f"fold-{number}", device="cpu")
    write_json(RunFolder(path).folds_file, {"folds": [{"held_out": part} for part in parts]})
    return path


@pytest.fixture
def run(folds: Path) -> Path:
    return folds / "fold-0"


@pytest.fixture
def scan(scans: Path) -> Path:
    return scans / "imagesTs" / "test_000_0000.nii.gz"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def manifest(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(out / "manifest.json")
    return content


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def shares(out: Path, kind: str = "probabilities") -> Any:
    """Read a NIfTI file with classes last and without the third axis of an image."""
    values = nibabel.load(out / f"test_000_{kind}.nii.gz").get_fdata()
    return values[:, :, 0] if values.ndim == 4 else values


def test_classes_are_listed_with_values_and_colors(run: Path, scan: Path, out: Path) -> None:
    api.predict(run, scan, out, device="cpu")
    listed = json.loads((out / "classes.json").read_text())
    assert [(one["value"], one["name"]) for one in listed] == [
        (0, "background"),
        (1, "crescent"),
        (2, "ring"),
        (3, "core"),
    ]
    assert [one["colour"] for one in listed] == [None, *COLORS[:3]]


def test_an_unrelated_class_list_is_not_overwritten(run: Path, scan: Path, out: Path) -> None:
    out.mkdir()
    (out / "classes.json").write_text('{"mine": 1}')
    with user_error(Code.UNSAFE_TARGET, out / "classes.json"):
        api.predict(run, scan, out, device="cpu")
    assert names(out) == {"classes.json"}


def test_the_label_map_is_the_argmax_of_the_probabilities(run: Path, scan: Path, out: Path) -> None:
    predicted = api.predict(run, scan, out, probabilities=True, device="cpu")
    assert names(out) == {
        "cases.jsonl",
        "classes.json",
        "manifest.json",
        "test_000.nii.gz",
        "test_000_probabilities.nii.gz",
    }
    probabilities, labels = shares(out), read_label(out / "test_000.nii.gz").array
    assert probabilities.shape == (*labels.shape, 4)
    assert np.abs(probabilities.sum(-1) - 1).max() <= 2 / LEVELS
    ordered = np.sort(probabilities, axis=-1)
    clear = ordered[..., -1] - ordered[..., -2] > 1.5 / LEVELS
    np.testing.assert_array_equal(probabilities.argmax(-1)[clear], labels[clear])
    assert clear.any()
    assert predicted.cases[0].probabilities == "test_000_probabilities.nii.gz"
    assert manifest(out)["inference"]["flips"] is False


def test_a_network_trained_with_mirroring_is_flipped(run: Path, scan: Path, out: Path, tmp_path: Path) -> None:
    (case,) = api.predict(run, scan, out, uncertainty=True, device="cpu").cases
    assert names(out) == {
        "cases.jsonl",
        "classes.json",
        "manifest.json",
        "test_000.nii.gz",
        "test_000_uncertainty.nii.gz",
    }
    uncertainty = shares(out, "uncertainty")
    assert 0 <= uncertainty.min() < uncertainty.max() <= 1 + 1e-6, "rounded to single precision"
    assert case.mean_uncertainty is not None and 0 < case.mean_uncertainty < 1
    said = manifest(out)
    assert said["cases"][0]["mean_uncertainty"] == case.mean_uncertainty
    assert (said["inference"]["flips"], said["networks"], said["opinions"]) == (False, 1, "one network, flipped")
    api.predict(run, scan, tmp_path / "plain", device="cpu")
    assert (tmp_path / "plain" / "test_000.nii.gz").read_bytes() == (out / "test_000.nii.gz").read_bytes()
    flipped = api.predict(run, scan, tmp_path / "flips", uncertainty=True, overrides=[FLIPS], device="cpu")
    np.testing.assert_allclose(shares(tmp_path / "flips", "uncertainty"), uncertainty, atol=1.01 / LEVELS)
    assert flipped.cases[0].mean_uncertainty == pytest.approx(case.mean_uncertainty, rel=1e-4)
    assert not flipped.warnings


def test_a_network_trained_without_mirroring_is_not_flipped(run: Path, scan: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    recipe = load_recipe(copied / "recipe.yaml", ["batches.augment.rotate_flip=0"])
    (copied / "recipe.yaml").write_text(recipe.to_yaml())
    out = tmp_path / "out"
    plain = api.predict(copied, scan, out, probabilities=True, uncertainty=True, device="cpu")
    assert (manifest(out)["opinions"], plain.warnings) == ("one network", ())
    probabilities = shares(out)
    expected = stats.entropy(probabilities, axis=-1, base=4)
    assert np.abs(shares(out, "uncertainty") - expected).max() < 0.03
    flipped = api.predict(copied, scan, tmp_path / "flips", overrides=[FLIPS], device="cpu")
    assert "trained without mirrored scans" in flipped.warnings[0]


def test_a_warp_that_mirrors_flips_only_its_axes(run: Path, scan: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    overrides = ["batches.augment={rotate_flip: 0, rotate: 0}", "batches.warp={mirror: [1]}"]
    (copied / "recipe.yaml").write_text(load_recipe(copied / "recipe.yaml", overrides).to_yaml())
    networks = Ensemble.load([RunFolder(copied)], torch.device("cpu"), [FLIPS], "shipped")
    assert (networks.mirrored_axes, networks.predictor.flip_axes) == ((1,), (1,))
    assert not api.predict(copied, scan, tmp_path / "flips", overrides=[FLIPS], device="cpu").warnings


def test_a_warp_that_does_not_mirror_is_never_flipped(run: Path, scan: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    overrides = ["batches.augment={rotate_flip: 0, rotate: 0}", "batches.warp={mirror: []}"]
    (copied / "recipe.yaml").write_text(load_recipe(copied / "recipe.yaml", overrides).to_yaml())
    api.predict(copied, scan, tmp_path / "plain", device="cpu")
    flipped = api.predict(copied, scan, tmp_path / "flips", overrides=[FLIPS], device="cpu")
    assert len(flipped.warnings) == 1 and "no flips" in flipped.warnings[0]
    same = [(tmp_path / name / "test_000.nii.gz").read_bytes() for name in ("plain", "flips")]
    assert same[0] == same[1]


def test_folds_are_averaged(folds: Path, scan: Path, tmp_path: Path) -> None:
    each = []
    for number in range(2):
        api.predict(folds, scan, tmp_path / str(number), fold=number, probabilities=True, device="cpu")
        each.append(shares(tmp_path / str(number)))
        assert manifest(tmp_path / str(number))["weights"] == sha256_of(folds / f"fold-{number}" / "model.safetensors")
    api.predict(folds, scan, tmp_path / "mean", probabilities=True, uncertainty=True, device="cpu")
    assert np.abs(shares(tmp_path / "mean") - np.mean(each, axis=0)).max() <= 1.01 / LEVELS
    assert np.abs(each[0] - each[1]).max() > 5 / LEVELS
    said = manifest(tmp_path / "mean")
    assert (said["networks"], said["opinions"]) == (2, "2 networks")
    with user_error(Code.PREDICTIONS_MISMATCH, tmp_path / "0"):
        api.predict(folds, scan, tmp_path / "0", device="cpu")


def test_default_folders_of_folds(folds: Path, scan: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folds, tmp_path / "folds"))
    assert api.predict(copied, scan, device="cpu").folder == copied / "predictions"
    assert api.predict(copied, scan, fold=1, device="cpu").folder == copied / "fold-1" / "predictions"
    with user_error(Code.NO_SUCH_FOLD, "--fold 2"):
        api.predict(copied, scan, fold=2, device="cpu")


def test_networks_with_different_inputs_are_not_averaged(folds: Path, store: Store, scan: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folds, tmp_path / "folds"))
    shutil.rmtree(copied / "fold-1")
    batches = {"patch": [8, 8], "labeled": 2, "unlabeled": 2}
    recipe = fold_recipe(tiny.tiny_recipe(batches=batches), [store.of("labeled")[1].name])
    api.train(recipe, store.path, copied / "fold-1", device="cpu")
    with user_error(Code.RECIPE_MISMATCH, "fold-1", "fold-0"):
        api.predict(copied, scan, tmp_path / "out", device="cpu")


def test_extra_maps_not_requested_again_are_removed(run: Path, scans: Path, scan: Path, out: Path) -> None:
    images = scans / "imagesTs"
    api.predict(run, images, out, probabilities=True, device="cpu")
    api.predict(run, scan, out, uncertainty=True, device="cpu")
    extras = {"test_000_uncertainty.nii.gz", "test_001_probabilities.nii.gz"}
    assert names(out) == {"cases.jsonl", "classes.json", "manifest.json", "test_000.nii.gz", "test_001.nii.gz"} | extras
    api.evaluate(out, scans / "labelsTs")
    assert {"metrics.csv", "metrics.json"} <= names(out)


def test_a_scan_that_fails_leaves_no_file(run: Path, scan: Path, out: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copy(scan, tmp_path))
    api.predict(run, copied, out, probabilities=True, uncertainty=True, device="cpu")
    copied.write_bytes(b"rubbish")
    predicted = api.predict(run, copied, out, device="cpu")
    assert len(predicted.failures) == 1 and names(out) == {"cases.jsonl", "classes.json", "manifest.json"}


def test_case_names_that_collide_with_extra_maps(run: Path, scan: Path, out: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a", "a_probabilities"):
        shutil.copy(scan, folder / f"{name}_0000.nii.gz")
    with user_error(Code.CASE_DUPLICATE, "a_probabilities.nii.gz"):
        api.predict(run, folder, out, probabilities=True, device="cpu")
    assert not out.exists()
    assert len(api.predict(run, folder, out, device="cpu").cases) == 2


def test_scans_that_exceed_the_memory_fail(run: Path, scan: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "free_memory", lambda device: 1000)
    (failure,) = api.predict(run, scan, out, device="cpu").failures
    assert failure.code == Code.OUT_OF_MEMORY and "test_000_0000.nii.gz" in failure.where


def test_the_manifest_contains_times_and_memory(run: Path, scan: Path, out: Path) -> None:
    api.predict(run, scan, out, device="cpu")
    said = manifest(out)
    assert said["started"] <= said["ended"]
    assert said["peak_memory"].keys() == {"host"} and said["peak_memory"]["host"] > 2**20


def test_manifests_of_older_versions_are_extended(run: Path, scans: Path, out: Path) -> None:
    images = sorted((scans / "imagesTs").iterdir())
    api.predict(run, images[0], out, device="cpu")
    said = manifest(out)
    for key in ("networks", "started", "ended", "peak_memory"):
        del said[key]
    del said["inference"]["flips"]
    write_json(out / "manifest.json", said)
    api.predict(run, images[1], out, device="cpu")
    assert [case["case"] for case in manifest(out)["cases"]] == ["test_000", "test_001"]


def test_a_label_map_as_a_picture(run: Path, out: Path, tmp_path: Path) -> None:
    """Each pixel of the picture is the class of the same pixel of the scan."""
    pixels = np.zeros((20, 36), np.uint8)
    pixels[3:9, 20:30] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (case,) = api.predict(run, tmp_path / "a.png", out, device="cpu", pictures=True).cases
    assert (case.output, case.picture) == ("a.nii.gz", "a.png")
    with Image.open(out / "a.png") as picture:
        assert (picture.mode, picture.size) == ("L", (36, 20))
        np.testing.assert_array_equal(np.array(picture).T, read_label(out / "a.nii.gz").array)
    assert label_map_files(out) == {"a": out / "a.nii.gz"}
    api.predict(run, tmp_path / "a.png", out, device="cpu")
    assert names(out) == {"a.nii.gz", "classes.json", "manifest.json", "cases.jsonl"}, "the old picture is removed"


def test_a_volume_cannot_be_written_as_a_picture(run: Path, out: Path, tmp_path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(np.zeros((16, 16, 3), np.float32), np.eye(4)), tmp_path / "v.nii")
    (failure,) = api.predict(run, tmp_path / "v.nii", out, device="cpu", pictures=True).failures
    assert failure.code == Code.OPTION_CONFLICT and "--pictures" in failure.remedy
    assert names(out) == {"cases.jsonl", "classes.json", "manifest.json"}
