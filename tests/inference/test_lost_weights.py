"""Runs that have ended and whose network, or last checkpoint, is gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import CommandLine, contents
from tiny import recipe_tree, tiny_recipe

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.training import run as training
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint, save_checkpoint

SCORED = {"selection": {"every": 2}, "batches": recipe_tree()["batches"] | {"validation_cases": 1}}


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny_recipe(), store.path, run, device="cpu")
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(trained, tmp_path / "run")))


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing may be trained")


def resume(run: RunFolder, store: Store, **changes: Any) -> int:
    return api.train(tiny_recipe(**changes), store.path, run.path, resume=True, device="cpu").steps


def test_the_commands_lead_back_to_the_network(
    cli: CommandLine,
    run: RunFolder,
    store: Store,
    scans: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(recipe_tree()))
    before = contents(run.path)
    run.weights_file.unlink()
    sentence = (
        f"{run.weights_file}: the trained network of the run is missing; the command of the training with --resume"
    )
    assert sentence in cli.fails("predict", run.path, scans / "imagesTs", "--device", "cpu")
    assert sentence in cli.fails("test", run.path, "--device", "cpu")
    words = ("train", recipe, "--data", store.path, "--out", run.path, "--device", "cpu", "--resume")
    cli.works(*words)
    told = f"{run.weights_file}: was missing and is written again from the last checkpoint"
    assert caplog.messages == [told]
    after = contents(run.path)
    for name in ("model.safetensors", "run.json", "recipe.yaml"):
        assert after[name] == before[name]
    cli.works("test", run.path, "--device", "cpu")
    cli.works(*words)
    assert caplog.messages == [told]


@pytest.mark.parametrize("kept", [0, 1])
def test_without_the_last_checkpoint_it_cannot_be_written(run: RunFolder, store: Store, kept: int) -> None:
    for path in checkpoints_in(run.checkpoints)[kept:]:
        path.unlink()
    run.weights_file.unlink()
    before = contents(run.path)
    with pytest.raises(UserError, match=r"model\.safetensors: the trained network is missing, and so is the last"):
        resume(run, store)
    assert contents(run.path) == before


def test_a_run_without_checkpoints_is_not_trained_again(
    run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run.checkpoints)
    before = contents(run.path)
    monkeypatch.setattr(training, "fit", refuse)
    assert resume(run, store) == 9
    assert contents(run.path) == before


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", [slice(-1, None), slice(None)])
def test_with_a_damaged_last_checkpoint_it_stays_as_it_ended(
    run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch, damaged: slice
) -> None:
    for path in checkpoints_in(run.checkpoints)[damaged]:
        flip(path)
    before = contents(run.path)
    monkeypatch.setattr(training, "fit", refuse)
    assert resume(run, store) == 9
    assert contents(run.path) == before
    run.weights_file.unlink()
    before = contents(run.path)
    told = r"the trained network is missing, and the last checkpoint cannot give it again \(the checkpoint is damaged\)"
    with pytest.raises(UserError, match=told) as refused:
        resume(run, store)
    assert refused.value.remedy == "restore one of the two, or train anew into another --out"
    assert contents(run.path) == before


def test_nothing_else_of_an_ended_run_is_touched(run: RunFolder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither log nor checkpoints, nor is there a moment at which a stop could cut them."""
    monkeypatch.setattr(training, "fit", refuse)
    before = contents(run.path)
    assert resume(run, store) == 9
    run.weights_file.unlink()
    assert resume(run, store) == 9
    assert contents(run.path) == before


def test_without_a_hash_the_chosen_network_comes_back(store: Store, tmp_path: Path) -> None:
    """Of versions that did not write down the hash, and by a protocol that reports another than the last state."""
    changes = SCORED | {"selection": {"every": 2, "protocol": "val"}}
    run = RunFolder(tmp_path / "run")
    api.train(tiny_recipe(**changes), store.path, run.path, device="cpu")
    before = run.weights_file.read_bytes()
    facts = {name: value for name, value in run.manifest().items() if name != "weights"}
    run.manifest_file.write_text(json.dumps(facts))
    run.weights_file.unlink()
    assert resume(run, store, **changes) == 9
    assert run.weights_file.read_bytes() == before


def test_a_checkpoint_that_gives_another_network(run: RunFolder, store: Store) -> None:
    newest = checkpoints_in(run.checkpoints)[-1]
    state = load_checkpoint(newest)
    state["method"] = {name: value + 1 for name, value in state["method"].items()}
    save_checkpoint(run.checkpoints, 9, state)
    run.weights_file.unlink()
    before = contents(run.path)
    with pytest.raises(UserError, match="the last checkpoint gives another network than the run had; restore it"):
        resume(run, store)
    assert contents(run.path) == before


def test_the_best_network_comes_back_too(store: Store, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    api.train(tiny_recipe(**SCORED), store.path, run.path, device="cpu")
    before = contents(run.path)
    run.weights_file.unlink()
    run.best_file.unlink()
    assert resume(run, store, **SCORED) == 9
    for name in ("model.safetensors", "best.safetensors", "run.json"):
        assert contents(run.path)[name] == before[name]


def test_folds_and_their_baseline(scans: Path, tmp_path: Path) -> None:
    recipe, out = tiny_recipe(), tmp_path / "folds"
    api.train_folds(recipe, scans, out, folds=2, baseline=True, device="cpu")
    lost = [RunFolder(out).fold(1).weights_file, RunFolder(out).baseline.fold(0).weights_file]
    before, told = [path.read_bytes() for path in lost], json.loads((out / "folds.json").read_text())
    for path in lost:
        path.unlink()
    api.train_folds(recipe, scans, out, folds=2, baseline=True, device="cpu", resume=True)
    assert [path.read_bytes() for path in lost] == before
    assert json.loads((out / "folds.json").read_text()) == told


def test_a_run_of_a_store_elsewhere_asks_for_it(run: RunFolder, scans: Path) -> None:
    with pytest.raises(UserError, match=r"run: the run has no store of its own; give it the store that it began with"):
        api.train(tiny_recipe(), scans, run.path, resume=True, device="cpu")
