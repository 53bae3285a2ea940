"""Checkpoints that are whole and are not those of the training that is to go on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_line import CommandLine, contents
from tiny import recipe_tree, tiny_recipe

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint, save_checkpoint

WIDER = {"network": recipe_tree()["network"] | {"width": 4}}
LONGER = {"stages": [recipe_tree()["stages"][0], recipe_tree()["stages"][1] | {"steps": 7}]}
"""Two steps more than the tiny recipe."""


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny_recipe(), store.path, run, device="cpu")
    return run


def stopped(trained: Path, to: Path) -> RunFolder:
    """A copy that was cut off before its last checkpoint, its network and its end."""
    run = RunFolder(Path(shutil.copytree(trained, to)))
    run.weights_file.unlink()
    checkpoints_in(run.checkpoints)[-1].unlink()
    run.update_manifest({"status": "stopped"})
    return run


def put(run: RunFolder, state: Any, step: int = 8) -> Path:
    """The one checkpoint of a run."""
    for path in checkpoints_in(run.checkpoints):
        path.unlink()
    return save_checkpoint(run.checkpoints, step, state)


def refused(run: RunFolder, store: Store) -> str:
    before = contents(run.checkpoints)
    with pytest.raises(UserError) as caught:
        api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert contents(run.checkpoints) == before and not run.weights_file.exists()
    return str(caught.value)


def test_a_checkpoint_of_the_run_itself(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "run")
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: {"a": 1}, "not a checkpoint of a training (stage: Field required); move it away, and --resume"),
        (lambda state: [1], "not a checkpoint of a training"),
        (lambda state: state | {"step": True}, "not a checkpoint of a training (step: "),
        (lambda state: state | {"random": None}, "not a checkpoint of a training (random: "),
        (lambda state: state | {"random": torch.zeros(3)}, "the checkpoint does not fit this run ("),
        (lambda state: state | {"method": {}}, "the checkpoint does not fit this run (Error(s) in loading state_dict"),
        (lambda state: state | {"optimizers": {}}, "the checkpoint does not fit this run ('student')"),
        (lambda state: state | {"stage": 2}, "is of stage 3, step 4, which this run does not have; move it away"),
        (lambda state: state | {"step": 6}, "is of stage 2, step 6, which this run does not have; move it away"),
        (lambda state: state | {"done": 7}, "is of step 4 of stage 2 and of 7 steps in all, which are not those of"),
    ],
)
def test_a_whole_checkpoint_that_does_not_fit(
    trained: Path, store: Store, tmp_path: Path, change: Any, sentence: str
) -> None:
    run = stopped(trained, tmp_path / "run")
    path = put(run, change(load_checkpoint(checkpoints_in(run.checkpoints)[-1])))
    told = refused(run, store)
    assert told.startswith(f"{path}: ") and sentence in told


def test_a_selection_that_does_not_fit(store: Store, tmp_path: Path) -> None:
    recipe = tiny_recipe(selection={"every": 2}, batches=recipe_tree()["batches"] | {"validation_cases": 1})
    api.train(recipe, store.path, tmp_path / "run", device="cpu")
    run = stopped(tmp_path / "run", tmp_path / "cut")
    state = load_checkpoint(checkpoints_in(run.checkpoints)[-1])
    put(run, state | {"selection": {"validation": {"mine": 1}}})
    with pytest.raises(UserError, match=r"step-00000008\.ckpt: the checkpoint does not fit this run \(.*'mine'"):
        api.train(recipe, store.path, run.path, resume=True, device="cpu")


def test_the_command_says_it_in_a_sentence(cli: CommandLine, trained: Path, store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(recipe_tree()))
    run = stopped(trained, tmp_path / "run")
    path = put(run, {"a": 1})
    words = ("train", recipe, "--data", store.path, "--out", run.path, "--device", "cpu", "--resume")
    assert f"{path}: not a checkpoint of a training" in cli.fails(*words)
    path.unlink()
    cli.works(*words)
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()


def test_networks_of_another_width(trained: Path, store: Store, tmp_path: Path) -> None:
    """Of versions that did not write down whose a checkpoint is."""
    api.train(tiny_recipe(**WIDER), store.path, tmp_path / "wide", device="cpu")
    run = stopped(trained, tmp_path / "run")
    run.update_manifest({"identity": None})
    put(run, load_checkpoint(checkpoints_in(RunFolder(tmp_path / "wide").checkpoints)[-2]) | {"run": None})
    told = refused(run, store)
    assert told.count("\n") == 0 and "size mismatch" in told and len(told) < 600


@pytest.mark.parametrize("changes", [{"seed": 7}, WIDER, LONGER])
def test_a_checkpoint_of_another_run(trained: Path, store: Store, tmp_path: Path, changes: dict[str, Any]) -> None:
    api.train(tiny_recipe(**changes), store.path, tmp_path / "other", device="cpu")
    run, other = stopped(trained, tmp_path / "run"), RunFolder(tmp_path / "other")
    path = put(run, load_checkpoint(checkpoints_in(other.checkpoints)[0]))
    sentence = "the checkpoint is of another run, with other settings, another seed or other data; move it away, and"
    assert f"{path}: {sentence}" in refused(run, store)


def test_a_checkpoint_of_other_data(trained: Path, scans: Path, store: Store, tmp_path: Path) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    next((data / "imagesUn").iterdir()).unlink()
    api.train(tiny_recipe(), data, tmp_path / "other", device="cpu")
    run, other = stopped(trained, tmp_path / "run"), RunFolder(tmp_path / "other")
    put(run, load_checkpoint(checkpoints_in(other.checkpoints)[0]))
    assert "the checkpoint is of another run" in refused(run, store)


def test_runs_from_before_go_on_with_their_own_checkpoints(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "run")
    identity, state = run.manifest()["identity"], load_checkpoint(checkpoints_in(run.checkpoints)[-1])
    assert state.pop("run") == identity
    put(run, state)
    assert "the checkpoint is of another run" in refused(run, store), "this run's own ones tell whose they are"
    facts = json.loads(run.manifest_file.read_text())
    del facts["identity"]
    run.manifest_file.write_text(json.dumps(facts))
    put(run, state | {"run": identity})
    assert "the checkpoint is of another run" in refused(run, store), "this run's own ones do not tell whose they are"
    put(run, state)
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()
    assert run.manifest()["identity"] is None
    assert load_checkpoint(checkpoints_in(run.checkpoints)[-1])["run"] is None


def test_a_checkpoint_of_another_name(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "run")
    (newest,) = checkpoints_in(run.checkpoints)
    newest.rename(newest.with_name("step-99999999.ckpt"))
    assert "step-99999999.ckpt: the checkpoint is of step 8; name it step-00000008.ckpt, as" in refused(run, store)
