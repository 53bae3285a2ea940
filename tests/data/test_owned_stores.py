"""Prepare must not change the store of a run, of folds or of seeds."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine, contents
from tiny import recipe_tree, tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import store_owner
from graftseg.experiments.seeds import train_seeds


@pytest.fixture(scope="module", params=["run", "folds", "seeds"])
def trained(scans: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    out, recipe = tmp_path_factory.mktemp("runs") / "out", tiny_recipe(stages=[{"method": "supervised", "steps": 1}])
    if request.param == "run":
        api.train(recipe, scans, out, device="cpu")
    elif request.param == "folds":
        api.train_folds(recipe, scans, out, folds=2, device="cpu")
    else:
        train_seeds(recipe, scans, out, 1, device="cpu")
    return out


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(recipe_tree()))
    return path


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "out")) / "store"


def test_other_settings_are_refused(cli: CommandLine, out: Path, scans: Path, recipe: Path) -> None:
    before = contents(out.parent)
    words = ("prepare", scans, "--out", out, "--recipe", recipe, "--set", "data.intensity.rule=none")
    assert f"{out}: " in (sentence := cli.fails(*words, code=Code.STORE_MISMATCH)) and "case labeled_000" in sentence
    assert contents(out.parent) == before


@pytest.mark.parametrize(
    ("change", "case"),
    [
        (lambda data: (data / "imagesUn" / "unlabeled_000_0000.nii.gz").unlink(), "unlabeled_000"),
        (lambda data: (data / "labelsTr" / "labeled_001.nii.gz").unlink(), "labeled_001"),
        (
            lambda data: shutil.copy(
                data / "imagesUn" / "unlabeled_000_0000.nii.gz", data / "imagesUn" / "more_0000.nii.gz"
            ),
            "more",
        ),
        (
            lambda data: shutil.copy(
                data / "imagesUn" / "unlabeled_000_0000.nii.gz", data / "imagesUn" / "unlabeled_001_0000.nii.gz"
            ),
            "unlabeled_001",
        ),
    ],
)
def test_other_data_is_refused(
    cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path, change: object, case: str
) -> None:
    data, out = Path(shutil.copytree(scans, tmp_path / "data")), tmp_path / "run" / "store"
    api.train(recipe, data, out.parent, device="cpu")
    assert callable(change)
    change(data)
    before = contents(out.parent)
    words = ("prepare", data, "--out", out, "--recipe", recipe)
    assert f"(case {case})" in cli.fails(*words, code=Code.STORE_MISMATCH)
    assert contents(out.parent) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["labels"] | {"renamed": tree["labels"].pop("crescent")},
        lambda tree: tree["labels"] | {"more": len(tree["labels"])},
        None,
    ],
)
def test_other_classes_are_refused(cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path, change: object) -> None:
    data, out = Path(shutil.copytree(scans, tmp_path / "data")), tmp_path / "run" / "store"
    api.train(recipe, data, out.parent, device="cpu")
    listed = data / "dataset.json"
    text = listed.read_text()
    tree = json.loads(text)
    if callable(change):
        labels = change(tree)
        listed.write_text(json.dumps(tree | {"labels": labels}))
    else:
        listed.unlink()
    before = contents(out.parent)
    assert "the classes" in cli.fails("prepare", data, "--out", out, "--recipe", recipe, code=Code.STORE_MISMATCH)
    assert contents(out.parent) == before
    listed.write_text(text)
    cli.works("prepare", data, "--out", out, "--recipe", recipe)
    cli.works("train", recipe, "--data", data, "--out", out.parent, "--resume", "--device", "cpu")


def test_a_damaged_store_is_repaired(cli: CommandLine, out: Path, scans: Path, recipe: Path) -> None:
    before = contents(out / "cases")
    (out / "cases" / "unlabeled_000.image.npy").unlink()
    (out / "cases" / "labeled_000.label.npy").write_bytes(b"damaged")
    cli.works("prepare", scans, "--out", out, "--recipe", recipe)
    after = contents(out / "cases")
    assert {name: after[name] for name in before} == before
    shutil.rmtree(out)
    cli.works("prepare", scans, "--out", out, "--recipe", recipe)
    after = contents(out / "cases")
    assert {name: after[name] for name in before if name.endswith(".npy")} == {
        name: content for name, content in before.items() if name.endswith(".npy")
    }


def test_a_store_without_a_run(tmp_path: Path, scans: Path, recipe: Path) -> None:
    store = tmp_path / "place" / "store"
    api.prepare(scans, store, recipe=recipe)
    assert store_owner(store) is None and store_owner(tmp_path / "nowhere" / "store") is None
    api.prepare(scans, store, recipe=recipe, overrides=["data.intensity.rule=none"])
