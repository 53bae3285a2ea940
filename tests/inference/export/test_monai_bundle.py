"""A MONAI bundle gives the label maps of ``predict``."""

import json
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tiny
import torch
from export_fakes import write_run

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Geometry
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.scans import write_scan
from graftseg.data.store import Store
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.monai_bundle import _intensity, _overlap
from graftseg.inference.predict import predict_scans
from graftseg.recipes.settings import InferenceSettings
from user_errors import user_error

# importing these packages takes seconds, also in processes that run none of these tests
pytestmark = pytest.mark.skipif(not (find_spec("ignite") and find_spec("skimage")), reason="needs ignite and skimage")
FEW = 0.001
"""Fraction of voxels that may differ because two classes are equally probable up to rounding."""
CLASSES = ("background", "ring", "core")


def write_scans(folder: Path, shape: tuple[int, ...], channels: int = 1) -> Path:
    """Write two scans of smooth noise with reordered axes and anisotropic voxels."""
    rng = np.random.default_rng(3)
    turned = np.diag([1.0, 1.0, 1.0, 1.0])
    turned[:3, :3] = [[0.0, 0.0, 2.0], [-1.2, 0.0, 0.0], [0.0, 0.9, 0.0]]
    affine = turned if len(shape) == 3 else np.diag([1.3, 0.8, 1.0, 1.0])
    geometry = Geometry(shape, tuple(tuple(map(float, row)) for row in affine))
    for name in ("a", "b"):
        for channel in range(channels):
            image = rng.normal(size=shape).astype(np.float32).cumsum(0)
            write_scan(folder / f"{name}_{channel:04d}.nii.gz", image, geometry)
    return folder


def run_bundle(bundle: Path, scans: Path, out: Path) -> None:
    from monai.bundle import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(
            config_file=str(bundle / "configs" / "inference.json"),
            meta_file=str(bundle / "configs" / "metadata.json"),
            bundle_root=str(bundle),
            dataset_dir=str(scans),
            output_dir=str(out),
        )


def shares_that_differ(run: RunFolder, scans: Path, tmp_path: Path) -> list[float]:
    """Return per scan the fraction of voxels in which bundle and ``predict`` differ. Both must find every class."""
    export_run("monai", Request(run, tmp_path / "bundle"))
    run_bundle(tmp_path / "bundle", scans, tmp_path / "theirs")
    predict_scans(run, scans, tmp_path / "own", torch.device("cpu"))
    shares = []
    for name in ("a", "b"):
        theirs, own = (
            nibabel.load(tmp_path / "theirs" / f"{name}_0000.nii.gz"),
            nibabel.load(tmp_path / "own" / f"{name}.nii.gz"),
        )
        np.testing.assert_allclose(theirs.affine, own.affine)
        assert len(np.unique(own.dataobj)) > 1
        shares.append(float((np.asarray(theirs.dataobj) != np.asarray(own.dataobj)).mean()))
    return shares


def by_bundle(image: Any, settings: IntensitySettings) -> Any:
    """Scale an image with the transforms of the bundle."""
    from monai.bundle import ConfigParser
    from monai.data import MetaTensor

    (config,) = _intensity(settings)
    grid = torch.diag(torch.tensor([2.0, 3.0, 4.0, 1.0]))
    given = MetaTensor(torch.from_numpy(image), affine=grid)
    scaled = ConfigParser({"scaling": config}).get_parsed_content("scaling")({"image": given})["image"]
    assert torch.equal(scaled.affine.float(), grid)
    return np.asarray(scaled)


def recipe_of(dimensions: int, data: dict[str, Any], inference: dict[str, Any]) -> Any:
    network = tiny.DEEP_2D if dimensions == 2 else tiny.DEEP_3D
    data = {"dimensions": dimensions, **data}
    return tiny.tiny_recipe(dimensions, data=data, inference=inference, network=network)


@pytest.mark.slow
def test_volumes_resampled_cleaned_and_of_two_channels(tmp_path: Path) -> None:
    inference = {"largest_component": [1], "keep_components": {2: 2}, "stride": [8, 12, 16]}
    run = write_run(tmp_path / "run", recipe_of(3, {"spacing": [1.0, None, 1.5]}, inference), CLASSES, channels=2)
    shares = shares_that_differ(run, write_scans(tmp_path / "scans", (19, 23, 14), channels=2), tmp_path)
    assert max(shares) <= FEW


@pytest.mark.slow
def test_volumes_slice_by_slice(tmp_path: Path, volumes: Store) -> None:
    run = write_run(tmp_path / "run", recipe_of(2, {"spacing": [1.0, 1.1]}, {}), CLASSES, store=volumes)
    assert max(shares_that_differ(run, write_scans(tmp_path / "scans", (19, 23, 5)), tmp_path)) <= FEW


@pytest.mark.slow
def test_slices(tmp_path: Path, store: Store) -> None:
    intensity = {"rule": "percentile", "low": 1, "high": 99}
    run = write_run(tmp_path / "run", recipe_of(2, {"intensity": intensity}, {}), CLASSES, store=store)
    assert max(shares_that_differ(run, write_scans(tmp_path / "scans", (21, 30)), tmp_path)) <= FEW


@pytest.mark.parametrize(
    "settings",
    [
        {"rule": "zscore"},
        {"rule": "minmax"},
        {"rule": "percentile", "low": 2, "high": 90},
        {"rule": "window", "low": -1, "high": 2},
        {"rule": "window-zscore", "low": -1, "high": 2, "mean": 0.3, "std": 0.7},
        {"rule": "window-zscore", "low": -1, "high": 2, "mean": 0.3, "std": 0.7},
    ],
)
def test_every_rule_of_intensities_has_its_transform(settings: dict[str, Any]) -> None:
    rule = IntensitySettings(**settings)
    image = np.random.default_rng(0).normal(size=(2, 6, 7, 8)).astype(np.float32)
    image[1] *= 30
    np.testing.assert_allclose(by_bundle(image, rule), normalize(image, rule), atol=1e-5)
    assert _intensity(IntensitySettings(rule="none")) == []


@pytest.mark.parametrize("rule", ["percentile", "minmax", "zscore"])
def test_channels_that_are_almost_constant(rule: Any) -> None:
    image = np.full((3, 10, 10, 10), 5.0, np.float32)
    image[0, 0, 0, :3] = 100.0, 400.0, 1000.0
    image[2] = np.random.default_rng(0).normal(size=(10, 10, 10))
    expected = normalize(image, IntensitySettings(rule=rule))
    assert rule != "percentile" or (expected[0].min(), expected[0].max()) == (0, 1)
    np.testing.assert_allclose(by_bundle(image, IntensitySettings(rule=rule)), expected, atol=1e-5)


def test_overlaps_give_the_same_strides() -> None:
    for patch in range(1, 200):
        for step in range(1, patch + 1):
            (overlap,) = _overlap(InferenceSettings(stride=(step,)), (patch,))
            assert 0 <= overlap < 1 and int(patch * (1 - overlap)) == step


def test_the_bundle_contains_no_local_paths(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(3), CLASSES)
    export_run("monai", Request(run, tmp_path / "bundle"))
    files = sorted(path.relative_to(tmp_path / "bundle").as_posix() for path in (tmp_path / "bundle").rglob("*.*"))
    assert files == ["configs/inference.json", "configs/metadata.json", "docs/README.md", "models/model.ts"]
    for name in files[:3]:
        assert str(tmp_path) not in (tmp_path / "bundle" / name).read_text()
    metadata = json.loads((tmp_path / "bundle" / "configs" / "metadata.json").read_text())
    assert metadata["network_data_format"]["outputs"]["pred"]["channel_def"]["2"] == "core"


def test_a_bundle_checks_its_network(tmp_path: Path) -> None:
    from monai.bundle import ConfigParser

    export_run("monai", Request(write_run(tmp_path / "run", tiny.tiny_recipe(3), CLASSES), tmp_path / "bundle"))
    config = json.loads((tmp_path / "bundle" / "configs" / "inference.json").read_text())
    file = tmp_path / "bundle" / "models" / "model.ts"
    given = config | {"bundle_root": str(tmp_path / "bundle")}
    assert ConfigParser(given).get_parsed_content("network_file") == str(file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(RuntimeError) as caught:
        ConfigParser(given).get_parsed_content("network")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_run_moved_with_its_store(tmp_path: Path, store: Store) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(2), CLASSES)
    shutil.copytree(store.path, run.store)
    moved = RunFolder(run.path.rename(tmp_path / "moved"))
    export_run("monai", Request(moved, tmp_path / "bundle"))
    config = json.loads((tmp_path / "bundle" / "configs" / "inference.json").read_text())
    assert config["inferer"]["_target_"] == "SlidingWindowInferer"


def test_unsupported_runs_are_an_error(tmp_path: Path) -> None:
    batches = {"patch": [16, 16], "labeled": 2, "unlabeled": 2, "fit": "stretch"}
    stretched = write_run(tmp_path / "stretched", tiny.tiny_recipe(2, batches=batches), CLASSES)
    with user_error(Code.EXPORT_UNSUPPORTED, stretched.path, "batches.fit"):
        export_run("monai", Request(stretched, tmp_path / "bundle"))
    small = write_run(tmp_path / "small", recipe_of(3, {}, {"min_component_ml": {1: 0.5}}), CLASSES)
    with user_error(Code.EXPORT_UNSUPPORTED, small.path, "min_component_ml"):
        export_run("monai", Request(small, tmp_path / "bundle"))
    unknown = write_run(tmp_path / "unknown", tiny.tiny_recipe(2), CLASSES)
    with pytest.raises(UserError, match="slices or volumes"):
        export_run("monai", Request(unknown, tmp_path / "bundle"))
