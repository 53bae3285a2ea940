"""The supervised baseline of a run: its recipe, its training, and resuming."""

import json
import logging
import re
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from safetensors.torch import load_file
from tiny import recipe_tree, tiny_recipe, write_scans
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import Code, StoppedError
from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import adapt_to_data, baseline_of, own_baseline
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe, training_differences
from graftseg.training import run as completion
from graftseg.training import with_baseline
from graftseg.training.loop import Outcome
from graftseg.training.run import train_run
from loops import for_each
from user_errors import user_error


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scans(tmp_path_factory.mktemp("scans"), labeled=3, unlabeled=2, test=1)


def test_all_steps_in_one_stage_under_the_last_optimiser() -> None:
    tree = recipe_tree()
    tree["stages"][0]["optimizer"] = {"name": "sgd", "learning_rate": 0.5}
    recipe = tiny_recipe(stages=tree["stages"], baseline=True, folds=3, seed=7)
    baseline = baseline_of(recipe)
    (stage,) = baseline.stages
    assert (stage.method, stage.steps) == ("supervised", 9)
    assert stage.optimizer == recipe.stages[1].optimizer
    assert (baseline.name, baseline.seed) == ("tiny-supervised", 7)
    assert (baseline.baseline, baseline.folds, baseline.published) == (False, None, None)
    for part in ("data", "batches", "network", "loop", "inference", "selection"):
        assert getattr(baseline, part) == getattr(recipe, part)


@pytest.mark.parametrize("setting", ["demo-2d", "demo-3d", "default-2d", "default-3d"])
def test_the_baseline_is_the_shipped_supervised_recipe_of_equal_length(setting: str) -> None:
    assert training_differences(baseline_of(load_recipe(f"{setting}/bcp")), load_recipe(f"{setting}/supervised")) == []


@for_each("name", shipped_recipes())
def test_every_shipped_recipe_has_a_baseline_and_asks_for_none(name: str) -> None:
    recipe = load_recipe(name)
    baseline = baseline_of(recipe)
    assert sum(stage.steps for stage in recipe.stages) == baseline.stages[0].steps
    assert (recipe.baseline, recipe.folds) == (False, None)


def test_the_kind_of_dice_on_labeled_images_is_kept() -> None:
    stage = {"method": "mean-teacher", "steps": 3, "settings": {"dice": "foreground"}}
    assert baseline_of(tiny_recipe(stages=[stage])).stages[0].settings == {"dice": "foreground"}
    assert baseline_of(tiny_recipe()).stages[0].settings == {"dice": "classes"}


def test_neither_baseline_nor_folds_change_what_is_trained() -> None:
    assert training_differences(tiny_recipe(), tiny_recipe(baseline=True, folds=4)) == []


def supervised(**changes: Any) -> Recipe:
    return tiny_recipe(stages=[{"method": "supervised", "steps": 4}], **changes)


def test_what_is_trained_with_and_without_unlabeled_scans(caplog: pytest.LogCaptureFixture) -> None:
    recipe, wanted = tiny_recipe(), tiny_recipe(baseline=True)
    assert adapt_to_data(recipe, unlabeled=3, baseline=False) == (recipe, False)
    assert adapt_to_data(recipe, unlabeled=3, baseline=True) == (recipe, True)
    assert adapt_to_data(recipe, unlabeled=0, baseline=False) == (recipe, False)
    assert not caplog.messages
    assert adapt_to_data(wanted, unlabeled=0, baseline=False) == (baseline_of(wanted), False)
    assert "there are no unlabeled scans" in caplog.messages[-1]
    assert adapt_to_data(supervised(), unlabeled=0, baseline=True) == (supervised(), False)
    assert "no separate baseline" in caplog.messages[-1]


def test_both_are_trained_and_the_baseline_is_a_run_of_its_own(scans: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    api.train(tiny_recipe(baseline=True), scans, run.path, device="cpu")
    facts = run.baseline.manifest()
    assert (facts["status"], facts["steps"], facts["method"]) == ("finished", 9, "supervised")
    assert facts["store"]["labeled"] == run.manifest()["store"]["labeled"]
    assert facts["store"]["identity"] == run.manifest()["store"]["identity"]
    alone = RunFolder(tmp_path / "alone")
    api.train(baseline_of(tiny_recipe(baseline=True)), run.store, alone.path, device="cpu")
    assert alone.manifest()["weights"] == facts["weights"]


def test_the_command_asks_for_it_or_leaves_it_out(scans: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    for planned, option, expected in ((True, "--no-baseline", False), (False, "--baseline", True)):
        recipe.write_text(tiny_recipe(baseline=planned).to_yaml())
        out = tmp_path / option
        given = ["train", str(recipe), "--data", str(scans), "--out", str(out), option, "--device", "cpu"]
        said = CliRunner().invoke(app, given)
        assert said.exit_code == 0 and ("baseline" in said.stdout.replace(option, "")) is expected
        assert RunFolder(out).exists and RunFolder(out).baseline.exists is expected


@pytest.mark.parametrize("cut", ["run", pytest.param("baseline", marks=pytest.mark.slow)])
def test_a_stopped_run_or_baseline_is_resumed(scans: Path, tmp_path: Path, cut: str) -> None:
    recipe, whole, again = tiny_recipe(baseline=True), RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    api.train(recipe, scans, whole.path, device="cpu")
    shutil.copytree(whole.path, again.path)
    with user_error(Code.TARGET_EXISTS, whole.path, "another --out") as refused:
        api.train(recipe, scans, whole.path, device="cpu")
    assert "--resume" not in str(refused.value)
    stopped = again if cut == "run" else again.baseline
    if cut == "run":
        shutil.rmtree(again.baseline.path)
    _rewind(stopped, step=8)
    with user_error(Code.TARGET_EXISTS, "", "--resume"):
        api.train(recipe, scans, again.path, device="cpu")
    api.train(recipe, scans, again.path, resume=True, device="cpu")
    for one, two in ((whole, again), (whole.baseline, again.baseline)):
        ours, theirs = load_file(one.weights_file), load_file(two.weights_file)
        assert all(ours[name].equal(theirs[name]) for name in ours)
        assert two.manifest()["status"] == "finished"


def _rewind(run: RunFolder, step: int) -> None:
    """Leave a run as if it had been stopped after a step."""
    run.weights_file.unlink()
    for path in run.checkpoints.iterdir():
        if path.name != f"step-{step:08d}.ckpt":
            path.unlink()
    assert len(list(run.checkpoints.iterdir())) == 1
    run.update_manifest({"status": "stopped", "weights": None})


@pytest.mark.parametrize(
    ("folds", "where"), [(None, "the baseline"), pytest.param(2, "fold 0 of the baseline", marks=pytest.mark.slow)]
)
def test_stop_in_the_baseline_is_reported(
    cli: CommandLine, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: int | None, where: str
) -> None:
    trained = train_run

    def stops(recipe: Recipe, *given: Any, **more: Any) -> Outcome:
        outcome = trained(recipe, *given, **more)
        return replace(outcome, stopped_by=signal.SIGINT, steps=7) if recipe.method == "supervised" else outcome

    monkeypatch.setattr(completion, "train_run", stops)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(tiny_recipe(baseline=True, folds=folds).to_yaml())
    status, _, error = cli("train", recipe, "--data", scans, "--out", tmp_path / "run", "--device", "cpu")
    assert status == 130 and f"stopped in {where}, after step 7" in error and "--resume" in error


def test_stop_before_the_baseline_keeps_the_run(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: object, **__: object) -> None:
        raise StoppedError(2, 3)

    monkeypatch.setattr(with_baseline, "complete", stops)
    with pytest.raises(StoppedError):
        api.train(tiny_recipe(baseline=True), scans, tmp_path / "run", device="cpu")
    assert RunFolder(tmp_path / "run").manifest()["status"] == "finished"


def test_only_the_baseline_is_trained_without_unlabeled_scans(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scans, run = write_scans(tmp_path / "scans", labeled=1, unlabeled=0, test=0), RunFolder(tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        api.train(tiny_recipe(baseline=True), scans, run.path, device="cpu")
    assert [text for text in caplog.messages if "no unlabeled scans" in text]
    assert run.manifest()["method"] == "supervised" and not run.baseline.path.exists()
    with user_error(Code.TOO_FEW_CASES, "", "unlabeled"):
        api.train(tiny_recipe(), scans, tmp_path / "other", device="cpu")


def fills(page: Path) -> list[str]:
    """Return the commands that a report suggests for results, cases and comparison."""
    parts = re.findall(r'(?s)<section id="(?:results|cases|comparison)".*?</section>', page.read_text(), re.S)
    return [one for part in parts for one in re.findall("To fill this section, run <code>(.*?)</code>", part)]


@pytest.mark.slow
def test_a_report_says_what_gives_scores_and_a_baseline(scans: Path, tmp_path: Path) -> None:
    run, named, beside = tmp_path / "run", "graftseg test run DATA", "--out run --resume --baseline"
    few = write_scans(tmp_path / "few", test=0)
    train = partial(api.train, tiny_recipe(), few, run, device="cpu")
    train()
    assert fills(api.report(run)) == [named, f"graftseg train run/recipe.yaml --data DATA {beside}"]
    assert "without test scans, train with --folds" in (run / "report.html").read_text()
    # the printed commands work
    train(resume=True, baseline=True)
    assert fills(api.report(run)) == [named]
    api.test(run, scans, device="cpu")
    assert fills(api.report(run)) == []
    api.train(tiny_recipe(baseline=True), scans, tmp_path / "other", device="cpu")
    assert fills(api.report(tmp_path / "other")) == ["graftseg test other"]


@pytest.mark.slow
def test_the_report_finds_a_baseline_that_was_evaluated(scans: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    api.train(tiny_recipe(baseline=True), scans, run.path, device="cpu")
    assert own_baseline(run) is None
    for one in (run, run.baseline):
        api.evaluate(api.predict(one.path, scans / "imagesTs", device="cpu").folder, scans / "labelsTs")
    assert own_baseline(run) == run.baseline.path
    assert "tiny-supervised (labeled scans only)" in api.report(run.path).read_text()
    assert json.loads(run.baseline.manifest_file.read_text())["recipe"] == "tiny-supervised"
