"""Patches of unlabeled scans around what the network of the stage before finds."""

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from graftseg import api
from graftseg.core.errors import Code, StoppedError
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.data.batches import Batches, Cases
from graftseg.data.foreground import Positions, positions_in
from graftseg.data.store import Store
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training import step as stepping
from graftseg.training import unlabeled_predictions
from graftseg.training.clock import StageWork
from graftseg.training.unlabeled_predictions import UnlabeledPredictions, final_work
from user_errors import user_error


def aimed_recipe(dimensions: int = 2, share: float = 0.5, **changes: Any) -> Recipe:
    tree = tiny.recipe_tree(dimensions)
    return tiny.tiny_recipe(dimensions, batches=tree["batches"] | {"foreground": share}, **changes)


def of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests do not change it."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    api.train(aimed_recipe(), store.path, run)
    return run


def test_what_the_first_stage_finds_is_kept_and_drawn_around(store: Store, whole: Path, tmp_path: Path) -> None:
    """Positions are those of the first stage's own predictions, and the file is of the second stage."""
    kept = Positions.load(RunFolder(whole).foreground_file(1))
    assert not RunFolder(whole).foreground_file(0).exists()
    assert len(kept.cases) == len(store.of("unlabeled"))
    api.train(tiny.tiny_recipe(), store.path, tmp_path / "plain")
    assert not RunFolder(tmp_path / "plain").foreground_file(1).exists()
    assert of(tmp_path / "plain") != of(whole)


@pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_scans_are_looked_at_in_bfloat16_too(dimensions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As planned trainings do on a CPU that has it; stored scans are of float16, which its autocast does not know."""
    monkeypatch.setattr(stepping, "has_bf16", lambda device: True)
    scans = tiny.write_scans(tmp_path / "scans", dimensions)
    tree = tiny.recipe_tree(dimensions)
    changes = {"batches": tree["batches"] | {"foreground": 0.5, "validation_cases": 1}, "selection": {"every": 3}}
    recipe = tiny.tiny_recipe(dimensions, fast=True, **changes)
    assert recipe.loop.precision == "bf16"
    api.train(recipe, scans, tmp_path / "run", device="cpu")
    assert RunFolder(tmp_path / "run").foreground_file(1).exists()


class BrightHalf(torch.nn.Module):
    """A network that finds class 1 where the image is above zero."""

    student = torch.nn.Identity()

    def segment(self, images: torch.Tensor) -> torch.Tensor:
        bright = (images[:, 0] > 0).float()
        return torch.stack([1 - bright, bright, *[torch.zeros_like(bright)] * 2], dim=1)


def test_positions_are_the_foreground_that_the_network_finds(store: Store, tmp_path: Path) -> None:
    recipe = aimed_recipe(share=1.0)
    batches = Batches(store, recipe.batches, seed=0, device="cpu")
    run = RunFolder(tmp_path)
    method: Any = BrightHalf().train()
    finder = UnlabeledPredictions(recipe, store, batches, run)
    finder.find(method, recipe.stages[0], recipe.stages[1], 1)
    assert method.training
    found = Positions.load(run.foreground_file(1))
    for case, classes in zip(store.of("unlabeled"), found.cases, strict=True):
        (expected,) = positions_in((store.image(case)[0] > 0).astype(np.uint8))
        np.testing.assert_array_equal(classes[0], expected)
    again = Batches(store, recipe.batches, seed=0, device="cpu")
    UnlabeledPredictions(recipe, store, again, run).restore(recipe.stages[1], 1)
    plain = Batches(store, recipe.batches, seed=0, device="cpu")
    assert torch.equal(batches.at(1, 3).unlabeled, again.at(1, 3).unlabeled)
    differ = [not torch.equal(batches.at(1, step).unlabeled, plain.at(1, step).unlabeled) for step in range(8)]
    assert any(differ)
    finder.find(method, recipe.stages[0], recipe.stages[1], 0)
    assert not run.foreground_file(0).exists()


@pytest.mark.parametrize("cut_at", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_a_run_that_resumes_draws_the_same(
    store: Store, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    """At the border of the stages and within the second."""
    recipe = aimed_recipe()
    draw = Batches.draw

    def cut(batches: Batches, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        if 4 * stage + step == cut_at:
            raise KeyboardInterrupt
        return draw(batches, stage, step, unlabeled=unlabeled)

    with monkeypatch.context() as patched:
        patched.setattr(Batches, "draw", cut)
        with pytest.raises((KeyboardInterrupt, StoppedError)):
            api.train(recipe, store.path, tmp_path / "cut")
    api.train(recipe, store.path, tmp_path / "cut", resume=True)
    assert of(tmp_path / "cut") == of(whole)


def test_missing_positions_are_reported(store: Store, whole: Path, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(whole, tmp_path / "run")))
    run.foreground_file(1).unlink()
    run.update_manifest({"status": "stopped"})
    with user_error(Code.DAMAGED_FILE, "foreground-1.npz"):
        api.train(aimed_recipe(), store.path, run.path, resume=True)


def test_volumes_too(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans", 3, labeled=2, unlabeled=2, test=0)
    api.train(aimed_recipe(3), scans, tmp_path / "run")
    assert RunFolder(tmp_path / "run").foreground_file(1).is_file()


def test_the_work_of_a_stage_includes_predictions(store: Store, tmp_path: Path) -> None:
    """Five scans of one window each, with batches of two labeled images."""
    recipe, run = aimed_recipe(), RunFolder(tmp_path)
    batches = Batches(store, recipe.batches, seed=0, device="cpu")
    first, second = recipe.stages
    predictions = UnlabeledPredictions(recipe, store, batches, run)
    assert predictions.work(first, 0) == StageWork(4, 3.0, 2)
    assert predictions.work(second, 1) == StageWork(5, 4.0, 4, before=2.5)
    checked = second.model_copy(update={"check_teacher": True})
    assert predictions.work(checked, 1) == StageWork(5, 4.0, 4, before=2.5, pause=2.5, pauses=4)


def test_the_final_check_predicts_every_scan_twice(store: Store, tmp_path: Path) -> None:
    recipe = aimed_recipe()
    batches = Batches(store, recipe.batches, seed=0, device="cpu")
    assert UnlabeledPredictions(recipe, store, batches, RunFolder(tmp_path)).final_work() == StageWork(0)
    first, second = recipe.stages
    stages = (first, second.model_copy(update={"check_teacher": True}))
    recipe = recipe.model_copy(update={"stages": stages})
    predictions = UnlabeledPredictions(recipe, store, batches, RunFolder(tmp_path))
    assert predictions.final_work() == StageWork(0, before=2 * 2.5)


@pytest.mark.parametrize(("second", "networks"), [((0, 1, 2), 2), ((0, 1), 3)])
def test_the_final_check_of_an_average_and_an_occasional_class(second: tuple[int, ...], networks: int) -> None:
    stages = [stage.model_copy(update={"check_teacher": True}) for stage in aimed_recipe().stages]
    recipe = aimed_recipe().model_copy(update={"stages": tuple(stages), "average_with_baseline": True})
    labeled: list[Any] = [SimpleNamespace(values=values) for values in ((0, 1, 2), second)]
    scan: Any = SimpleNamespace(shape=recipe.batches.patch)
    expected = networks / recipe.batches.labeled
    assert final_work(recipe, Cases(tuple(labeled), (scan,), ())) == StageWork(0, before=expected)


@pytest.mark.parametrize("is_extended", [True, False])
def test_a_check_that_accepts_is_shown_after_one_that_did_not(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_extended: bool
) -> None:
    extend, accept = TeacherCheck(1, 5, {"a": "no foreground"}, "extend"), TeacherCheck(2, 5, {}, "continue")
    checks = [extend, accept] if is_extended else [accept]
    results = iter(checks)
    monkeypatch.setattr(unlabeled_predictions, "check_teacher", lambda *arguments, **options: next(results))
    recipe = tiny.tiny_recipe()
    first, second = recipe.stages[0], recipe.stages[1].model_copy(update={"check_teacher": True})
    batches = Batches(store, recipe.batches, seed=0, device="cpu")
    predictions = UnlabeledPredictions(recipe, store, batches, RunFolder(tmp_path))
    method: Any = BrightHalf()
    with caplog.at_level(logging.INFO):
        for check in checks:
            predictions.find(method, first, second, check.stage)
    levels = [record.levelno for record in caplog.records if "graftseg" in record.name]
    assert levels == ([logging.WARNING, logging.WARNING] if is_extended else [logging.INFO])
    assert caplog.messages[-1].endswith(accept.sentence)


def test_all_skipped_stages_become_steps_of_the_stage_before(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of the second stage costs 4/3 of a step of the first stage."""
    skip = TeacherCheck(1, 5, {"a": "no foreground"}, "skip")
    monkeypatch.setattr(unlabeled_predictions, "check_teacher", lambda *arguments, **options: skip)
    recipe = tiny.tiny_recipe()
    first, second = recipe.stages[0], recipe.stages[1].model_copy(update={"check_teacher": True, "steps": 6})
    batches = Batches(store, recipe.batches, seed=0, device="cpu")
    method: Any = BrightHalf()

    def added(*later: StageSettings) -> int:
        predictions = UnlabeledPredictions(recipe, store, batches, RunFolder(tmp_path))
        check = predictions.find(method, first, second, 1, later)
        assert check is not None
        return check.added

    assert (added(), added(second), added(first, second)) == (2, 4, 4)
