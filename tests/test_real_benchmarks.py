"""A few cases of LA and ACDC in their published form, if present."""

import importlib.util
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.run_folder import read_log
from graftseg.data.benchmarks.case_lists import PUBLISHED, read_list
from graftseg.data.layouts import read_layout

PARTS = Path(__file__).parents[2] / "shared" / "benchmarks"
ACDC_SLICES = {1: 32, 3: 68, 7: 136, 70: 1312}

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not (PARTS / "unpack.py").is_file(), reason="the benchmark data are missing"),
]


@pytest.fixture(scope="module")
def unpack() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unpack", PARTS / "unpack.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str | Path) -> str:
    """Run a command that must succeed and return its output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def trained(recipe: str, store: Path, folder: Path, labeled: int, *overrides: str) -> list[float]:
    """Train a recipe for a few steps with narrow networks, test it, and return the losses."""
    few = [f"batches.labeled_cases={labeled}", "stages.0.steps=2", "stages.1.steps=3", "network.width=4"]
    sets = [word for override in (*few, *overrides) for word in ("--set", override)]
    run("train", recipe, "--data", store, "--out", folder, "--device", "cpu", *sets)
    coarse = () if recipe.startswith("acdc") else ("--set", "inference.stride=[112,112,80]")
    run("predict", folder, store, "--device", "cpu", *coarse)
    assert "protocol: paper" in run("evaluate", folder / "predictions", "--reference", store, "--protocol", "paper")
    return [line["total"] for line in read_log(folder / "log.jsonl") if "total" in line]


def test_la(unpack: ModuleType, tmp_path: Path) -> None:
    images = {}
    for path, image, label in islice(unpack.cases(PARTS / "la-0.xz"), 3):
        unpack.write(tmp_path / "LA" / path, image, label)
        images[Path(path).parent.name] = image
    train, test = list(images)[:0:-1], list(images)[:1]
    (tmp_path / "LA" / "train.list").write_text("\n".join(train))
    (tmp_path / "LA" / "test.list").write_text("\n".join(test))
    output = run("prepare", tmp_path, "--benchmark", "la", "--out", tmp_path / "store")
    assert "3 cases, classes background, left atrium" in output
    store = api.info(tmp_path / "store")
    assert store["cases"] == {"labeled": 2, "unlabeled": 0, "validation": 0, "test": 1}
    assert store["voxels"] == sum(image.size for image in images.values())
    dataset = read_layout(tmp_path / "LA")
    assert [case.name for case in dataset.cases] == train + test
    for case in dataset.cases:
        assert np.array_equal(dataset.reader.image(case).array[0], images[case.name])
        assert set(np.unique(dataset.reader.label(case).array)) == {0, 1}
    two = ("batches.labeled=2", "batches.unlabeled=2")
    losses = trained("la-8/bcp", tmp_path / "store", tmp_path / "run", 1, *two)
    assert len(losses) == 5 and np.isfinite(losses).all()


def test_acdc(unpack: ModuleType, tmp_path: Path) -> None:
    root, shapes = tmp_path / "ACDC", {}
    for path, image, label in islice(unpack.cases(PARTS / "acdc-0.xz"), 6):
        target = root / path
        unpack.write(target, image, label)
        shapes[target.stem] = (*image.shape[1:], image.shape[0])
        assert (image.min(), image.max()) == pytest.approx((0, 1), abs=1e-6)
    names = list(shapes)
    for file, chosen in {"train": names[:2], "val": names[2:4], "test": names[4:]}.items():
        (root / f"{file}.list").write_text("\n".join(chosen))
    store = api.prepare(root, tmp_path / "store")
    assert {case.name: case.shape for case in store.cases} == shapes
    assert [len(store.of(split)) for split in ("labeled", "validation", "test")] == [2, 2, 2]
    assert all(case.values == (0, 1, 2, 3) for case in store.cases)
    losses = trained("acdc-3/bcp", store.path, tmp_path / "run", 1)
    assert len(losses) == 5 and np.isfinite(losses).all()


def test_acdc_prefixes_have_the_slices_of_the_papers() -> None:
    entries = read_list(PARTS / "lists" / "acdc-train_slices.list")
    volumes = list(dict.fromkeys(entry.partition("_slice_")[0] for entry in entries))
    assert volumes == read_list(PUBLISHED / "acdc-train.list")
    for patients, slices in ACDC_SLICES.items():
        chosen = set(volumes[: 2 * patients])
        assert sum(entry.partition("_slice_")[0] in chosen for entry in entries) == slices


def test_published_lists_are_those_of_the_data() -> None:
    for name in ("la-train", "la-test", "acdc-train", "acdc-val", "acdc-test"):
        assert read_list(PUBLISHED / f"{name}.list") == read_list(PARTS / "lists" / f"{name}.list")
