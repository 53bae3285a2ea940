"""Prediction of arrays: the same voxels as prediction of files, and errors for arrays that are no scans."""

import shutil
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tiny
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

import graftseg
from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.files import write_json
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.data.scans import read_label
from graftseg.data.store import Store
from graftseg.inference.model import save_weights
from user_errors import user_error

OBLIQUE = np.array([[0.1, -0.9, 0.2, 5], [-1.2, 0, 0.1, -7], [0, 0.1, 2.0, 30], [0, 0, 0, 1]])
"""An affine with axes in the order PLS, a tilt, and another voxel size along each axis."""


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(network=tiny.DEEP_2D), store.path, path, device="cpu")
    return path


@pytest.fixture(scope="module")
def volume_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on volumes that are reoriented and resampled."""
    folder = tmp_path_factory.mktemp("volumes")
    data = {"dimensions": 3, "spacing": [1.0, 1.5, 1.0], "orientation": "LPS"}
    recipe = tiny.tiny_recipe(3, data=data, inference={"largest_component": True})
    scans = tiny.write_scans(folder / "scans", 3, labeled=2, unlabeled=2, test=0)
    api.train(recipe, scans, folder / "run", device="cpu", overrides=["stages.0.steps=1", "stages.1.steps=1"])
    return folder / "run"


def noise(*shape: int) -> NDArray[np.int16]:
    return np.random.default_rng(len(shape)).integers(-1000, 2000, shape).astype(np.int16)


def from_file(run: Path, array: NDArray[Any], affine: NDArray[Any], folder: Path, **options: Any) -> NDArray[Any]:
    """Predict a NIfTI file with this content."""
    (folder / "scans").mkdir()
    nibabel.save(nibabel.Nifti1Image(array, affine), folder / "scans" / "scan.nii.gz")
    predicted = api.predict(run, folder / "scans", folder / "out", device="cpu", **options)
    assert not predicted.failures
    return read_label(folder / "out" / "scan.nii.gz").array


def test_a_volume_gets_the_label_map_of_its_file(volume_run: Path, tmp_path: Path) -> None:
    array, affine = noise(20, 18, 13), OBLIQUE.astype(np.float32)
    before = array.copy()
    expected = from_file(volume_run, array, affine, tmp_path)
    model = graftseg.load(volume_run, device="cpu")
    labels = model.predict(array, affine)
    assert labels.dtype == np.uint8 and labels.shape == array.shape and len(np.unique(labels)) > 1
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(model.predict(array[None].astype(">f8"), affine.tolist()), expected)
    np.testing.assert_array_equal(array, before)
    assert not np.array_equal(model.predict(array, np.eye(4)), expected), "the affine matters"


@pytest.mark.parametrize("shape", [(20, 17), (16, 16, 4)])
def test_a_slice_and_its_volume_get_the_label_maps_of_their_files(
    run: Path, shape: tuple[int, ...], tmp_path: Path
) -> None:
    array = noise(*shape)
    expected = from_file(run, array, np.eye(4), tmp_path)
    model = graftseg.load(run, device="cpu")
    np.testing.assert_array_equal(model.predict(array, np.eye(4)), expected)
    np.testing.assert_array_equal(model.predict(array[None], np.eye(4)), expected)
    assert model.classes == ("background", "crescent", "ring", "core")


def test_a_picture_needs_no_affine(run: Path, tmp_path: Path) -> None:
    array = noise(20, 17)
    assert np.array_equal(graftseg.load(run, device="cpu").predict(array), from_file(run, array, np.eye(4), tmp_path))


def test_settings_change_the_label_map_as_in_predict(run: Path, tmp_path: Path) -> None:
    array, flips = noise(20, 17), ["inference.flips=true"]
    expected = from_file(run, array, np.eye(4), tmp_path, overrides=flips)
    flipped = graftseg.load(run, device="cpu", overrides=flips).predict(array, np.eye(4))
    np.testing.assert_array_equal(flipped, expected)
    assert not np.array_equal(graftseg.load(run, device="cpu").predict(array, np.eye(4)), expected)


def write_folds(run: Path, target: RunFolder, seed: int) -> None:
    """Copy a run as two folds, with other weights in each."""
    torch.manual_seed(seed)
    for number in range(2):
        fold = RunFolder(Path(shutil.copytree(run, target.fold(number).path)))
        state = load_file(fold.weights_file)
        floats = {name: value + 0.3 * torch.rand_like(value) for name, value in state.items() if value.ndim}
        save_weights(state | floats, fold.weights_file)
        fold.update_manifest({"weights": sha256_of(fold.weights_file)})
    write_json(target.folds_file, {"folds": [{"held_out": []}, {"held_out": []}]})


def test_folds_and_the_shipped_network_are_those_of_predict(run: Path, tmp_path: Path) -> None:
    folder, array = RunFolder(tmp_path / "folds"), noise(20, 17)
    write_folds(run, folder, 1)
    write_folds(run, folder.baseline, 2)
    maps = {}
    for network in ("run", "baseline"):
        folder.ship(Shipped(network, "a test"))
        (tmp_path / network).mkdir()
        model = graftseg.load(folder.path, device="cpu")
        assert len(model.networks.members) == 2 and "a test" in model.network
        maps[network] = model.predict(array, np.eye(4))
        np.testing.assert_array_equal(maps[network], from_file(folder.path, array, np.eye(4), tmp_path / network))
    assert not np.array_equal(maps["run"], maps["baseline"])
    single = graftseg.load(folder.path, device="cpu", fold=1)
    assert (len(single.networks.members), single.network) == (1, "")


@pytest.mark.parametrize(
    ("array", "affine", "code", "where"),
    [
        (np.zeros((4, 4), complex), np.eye(4), Code.SCAN_UNSUPPORTED, "array"),
        (np.zeros(4), np.eye(4), Code.SCAN_UNSUPPORTED, "array"),
        (np.zeros((0, 4)), np.eye(4), Code.SCAN_UNSUPPORTED, "array"),
        (np.zeros((2, 4, 4, 4)), np.eye(4), Code.CHANNELS_MISMATCH, "array"),
        (np.full((4, 4), np.nan), np.eye(4), Code.SCAN_DAMAGED, "array"),
        (np.zeros((4, 4)), np.eye(3), Code.SCAN_HEADER, "affine"),
        (np.zeros((4, 4)), np.zeros((4, 4)), Code.SCAN_HEADER, "affine"),
        (np.zeros((4, 4)), np.full((4, 4), np.nan), Code.SCAN_HEADER, "affine"),
        (np.zeros((4, 4)), "identity", Code.SCAN_HEADER, "affine"),
        (np.zeros((5, 4, 4)), None, Code.SCAN_HEADER, "affine"),
    ],
)
def test_arrays_that_are_no_scans_are_errors(run: Path, array: Any, affine: Any, code: Code, where: str) -> None:
    model = graftseg.load(run, device="cpu")
    with user_error(code, where):
        model.predict(array, affine)


def test_a_network_for_volumes_refuses_a_slice(volume_run: Path) -> None:
    with user_error(Code.RECIPE_MISMATCH, "array", "2-D"):
        graftseg.load(volume_run, device="cpu").predict(noise(16, 16), np.eye(4))


def test_load_checks_its_arguments(run: Path, tmp_path: Path) -> None:
    with user_error(Code.NOT_A_RUN, tmp_path):
        graftseg.load(tmp_path, device="cpu")
    with user_error(Code.OPTION_INVALID, "seed=3"):
        graftseg.load(run, device="cpu", overrides=["seed=3"])
    with user_error(Code.NO_SUCH_FOLD, "--fold 0"):
        graftseg.load(run, device="cpu", fold=0)
