"""Resuming: a run accepts its own checkpoints only."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_line import CommandLine, contents
from tiny import recipe_tree, tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.files import CHECKSUM, read_json, write_checked
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.data.store import Store
from graftseg.recipes.reading import CHECKSUM_LINE
from graftseg.recipes.recipe import load_recipe
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint, save_checkpoint
from user_errors import user_error

WIDER = {"network": recipe_tree()["network"] | {"width": 4}}
LONGER = {"stages": [recipe_tree()["stages"][0], recipe_tree()["stages"][1] | {"steps": 7}]}
"""Two more steps than the tiny recipe."""


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny_recipe(), store.path, run, device="cpu")
    return run


def stopped(trained: Path, to: Path) -> RunFolder:
    """Return a copy of the run as it was before its last checkpoint."""
    run = RunFolder(Path(shutil.copytree(trained, to)))
    run.weights_file.unlink()
    checkpoints_in(run.checkpoints)[-1].unlink()
    run.update_manifest({"status": "stopped"})
    return run


def put(run: RunFolder, state: Any, step: int = 8) -> Path:
    """Replace all checkpoints of a run by this state."""
    for path in checkpoints_in(run.checkpoints):
        path.unlink()
    return save_checkpoint(run.checkpoints, step, state)


def assert_refused(run: RunFolder, store: Store, keyword: str = "") -> None:
    """Resume; expect a mismatch of the checkpoint and unchanged files."""
    before = contents(run.checkpoints)
    with user_error(Code.CHECKPOINT_MISMATCH, run.checkpoints, keyword) as caught:
        api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700
    assert contents(run.checkpoints) == before and not run.weights_file.exists()


def test_resume_gives_the_same_weights(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "run")
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()


def test_a_changed_version_gives_a_warning(
    trained: Path, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = stopped(trained, tmp_path / "run")
    versions = run.manifest()["versions"]
    run.update_manifest({"versions": versions | {"torch": "2.0"}})
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert caplog.messages[0] == f"{run.path}: torch was 2.0 and is now {versions['torch']}"


def test_info_shows_the_progress_and_the_command_to_resume(cli: CommandLine, trained: Path, tmp_path: Path) -> None:
    assert not {"planned_steps", "resume_command"} & api.info(trained).keys(), "a finished run is not resumed"
    run = stopped(trained, tmp_path / "my run")
    facts = json.loads(cli.works("info", run.path, "--json"))
    assert (facts["status"], facts["steps"], facts["planned_steps"]) == ("stopped", 8, 9)
    text = cli.works("info", run.path)
    assert yaml.safe_load(text)["steps"] == 8 and text.splitlines()[-1] == f"next: {facts['resume_command']}"
    command, *words = shlex.split(facts["resume_command"])
    assert command == "graftseg" and "--baseline" not in words and "--no-baseline" not in words
    cli.works(*words)
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.mark.parametrize("own", [True, False])
def test_the_command_to_resume_keeps_the_choice_of_a_baseline(trained: Path, tmp_path: Path, own: bool) -> None:
    run = stopped(trained, tmp_path / "run")
    run.update_manifest({"with_baseline": not own, "ranks": 2})
    load_recipe(run.recipe_file).model_copy(update={"baseline": own, "folds": 3}).save(run.recipe_file)
    choice = "--no-baseline" if own else "--baseline"
    assert api.info(run.path)["resume_command"].endswith(f" --resume {choice} --folds 0 --devices 2 --device cpu")


def test_part_of_a_folder_has_progress_but_no_command_of_its_own(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "seed-1")
    teacher = [TeacherCheck(1, 5, {"a": "no foreground"}, "skip", added=4).to_json()]
    write_checked(run.teacher_file, {"checks": teacher})
    facts = api.info(run.path)
    assert (facts["steps"], facts["planned_steps"]) == (8, 13) and "resume_command" not in facts
    lone = stopped(trained, tmp_path / "lone" / "run")
    lone.update_manifest({"store": lone.manifest()["store"] | {"path": str(tmp_path / "gone")}})
    assert "resume_command" not in api.info(lone.path) and api.info(lone.path)["planned_steps"] == 9


@pytest.mark.parametrize(
    "change", [{"random": torch.zeros(3)}, {"method": {}}, {"optimizers": {}}], ids=["random", "method", "optimizers"]
)
def test_state_that_does_not_fit_is_refused(
    trained: Path, store: Store, tmp_path: Path, change: dict[str, Any]
) -> None:
    run = stopped(trained, tmp_path / "run")
    put(run, load_checkpoint(checkpoints_in(run.checkpoints)[-1]) | change)
    assert_refused(run, store, "does not fit")


def test_selector_state_that_does_not_fit_is_refused(store: Store, tmp_path: Path) -> None:
    recipe = tiny_recipe(selection={"every": 2}, batches=recipe_tree()["batches"] | {"validation_cases": 1})
    api.train(recipe, store.path, tmp_path / "run", device="cpu")
    run = stopped(tmp_path / "run", tmp_path / "cut")
    state = load_checkpoint(checkpoints_in(run.checkpoints)[-1])
    put(run, state | {"selection": {"validation": {"mine": 1}}})
    with user_error(Code.CHECKPOINT_MISMATCH, "step-00000008.ckpt", "mine"):
        api.train(recipe, store.path, run.path, resume=True, device="cpu")


def test_command_line_refuses_and_then_resumes(cli: CommandLine, trained: Path, store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(recipe_tree()))
    run = stopped(trained, tmp_path / "run")
    path = put(run, {"a": 1})
    words = ("train", recipe, "--data", store.path, "--out", run.path, "--device", "cpu", "--resume")
    assert str(path) in cli.fails(*words, code=Code.CHECKPOINT_MISMATCH)
    path.unlink()
    cli.works(*words)
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()


def test_finished_run_without_weights_is_refused(trained: Path, store: Store, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(trained, tmp_path / "run")))
    run.weights_file.unlink()
    with user_error(Code.WEIGHTS_MISSING, run.weights_file):
        api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")


def test_finished_run_is_not_trained_again(
    trained: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(Path(shutil.copytree(trained, tmp_path / "run")))
    before = contents(run.path)
    monkeypatch.setattr("graftseg.training.run.fit", None)
    outcome = api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert outcome.steps == sum(stage["steps"] for stage in recipe_tree()["stages"])
    assert contents(run.path) == before


def test_networks_of_another_width_are_refused(trained: Path, store: Store, tmp_path: Path) -> None:
    """Early versions recorded no identity; then only the shapes differ."""
    api.train(tiny_recipe(**WIDER), store.path, tmp_path / "wide", device="cpu")
    run = stopped(trained, tmp_path / "run")
    run.update_manifest({"identity": None})
    put(run, load_checkpoint(checkpoints_in(RunFolder(tmp_path / "wide").checkpoints)[-2]) | {"run": None})
    assert_refused(run, store, "size mismatch")


@pytest.mark.parametrize(
    "changes", [{"seed": 7}, *(pytest.param(each, marks=pytest.mark.slow) for each in (WIDER, LONGER))]
)
def test_checkpoint_of_another_run_is_refused(
    trained: Path, store: Store, tmp_path: Path, changes: dict[str, Any]
) -> None:
    api.train(tiny_recipe(**changes), store.path, tmp_path / "other", device="cpu")
    run, other = stopped(trained, tmp_path / "run"), RunFolder(tmp_path / "other")
    put(run, load_checkpoint(checkpoints_in(other.checkpoints)[0]))
    assert_refused(run, store, "another run")


def test_checkpoint_of_other_data_is_refused(trained: Path, scans: Path, store: Store, tmp_path: Path) -> None:
    data = Path(shutil.copytree(scans, tmp_path / "data"))
    next((data / "imagesUn").iterdir()).unlink()
    api.train(tiny_recipe(), data, tmp_path / "other", device="cpu")
    run, other = stopped(trained, tmp_path / "run"), RunFolder(tmp_path / "other")
    put(run, load_checkpoint(checkpoints_in(other.checkpoints)[0]))
    assert_refused(run, store, "another run")


def test_early_runs_without_identity_resume(trained: Path, store: Store, tmp_path: Path) -> None:
    run = stopped(trained, tmp_path / "run")
    identity, state = run.manifest()["identity"], load_checkpoint(checkpoints_in(run.checkpoints)[-1])
    assert state.pop("run") == identity
    put(run, state)
    assert_refused(run, store, "another run")
    facts = read_json(run.manifest_file)
    del facts["identity"]
    run.manifest_file.write_text(json.dumps(facts))
    put(run, state | {"run": identity})
    assert_refused(run, store, "another run")
    put(run, state)
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()
    assert run.manifest()["identity"] is None
    assert load_checkpoint(checkpoints_in(run.checkpoints)[-1])["run"] is None


def test_runs_without_checksums_resume_and_predict(trained: Path, store: Store, tmp_path: Path) -> None:
    """Earlier versions wrote no checksums."""
    run = stopped(trained, tmp_path / "run")
    run.manifest_file.write_text(json.dumps(read_json(run.manifest_file)))
    run.recipe_file.write_text(tiny_recipe().to_yaml())
    assert not [path for path in (run.manifest_file, run.recipe_file) if "sha256 " in path.read_text()]
    api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu")
    assert run.weights_file.read_bytes() == (trained / "model.safetensors").read_bytes()
    assert CHECKSUM in run.manifest_file.read_text() and run.recipe_file.read_text().startswith(CHECKSUM_LINE)
    run.manifest_file.write_text(json.dumps(read_json(run.manifest_file)))
    run.recipe_file.write_text(tiny_recipe().to_yaml())
    assert len(api.predict(run.path, store.path, device="cpu").cases) == 2


@pytest.mark.parametrize(
    ("name", "before", "after"), [("run.json", '"ring"', '"rinh"'), ("recipe.yaml", "rate: 0.01", "rate: 0.11")]
)
def test_an_edited_file_is_one_error(
    trained: Path, store: Store, tmp_path: Path, name: str, before: str, after: str
) -> None:
    run = stopped(trained, tmp_path / "run")
    text = (run.path / name).read_text()
    assert before in text
    (run.path / name).write_text(text.replace(before, after))
    for call in (
        lambda: api.train(tiny_recipe(), store.path, run.path, resume=True, device="cpu"),
        lambda: api.predict(run.path, store.path, device="cpu"),
        lambda: api.report(run.path),
    ):
        with user_error(Code.DAMAGED_FILE, run.path / name, "checksum"):
            call()
