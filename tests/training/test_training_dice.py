"""Scores of the training scans during training: exact, on request only, and without any effect on training."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.batches import training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store, open_store
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.shortening import part_of, shortened
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint
from graftseg.training.selection import CaseScores
from user_errors import user_error

CPU = torch.device("cpu")


def recipe_with(every: int | None, dimensions: int = 2, **changes: Any) -> Recipe:
    """The tiny recipe with two labeled cases. The other two are used without their labels."""
    tree = tiny.recipe_tree(dimensions)
    loop = tree["loop"] | ({} if every is None else {"training_dice_every": every})
    return tiny.tiny_recipe(dimensions, batches=tree["batches"] | {"labeled_cases": 2}, loop=loop, **changes)


def train(recipe: Recipe, data: Path, out: Path, **more: Any) -> RunFolder:
    api.train(recipe, data, out, device="cpu", **more)
    return RunFolder(out)


def scores_of(run: RunFolder) -> dict[int, dict[str, float]]:
    return {line["global_step"]: line["training_dice"] for line in read_log(run.log_file) if "training_dice" in line}


@pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_scores_change_no_bit_of_the_training(dimensions: int, store: Store, volumes: Store, tmp_path: Path) -> None:
    data = (store if dimensions == 2 else volumes).path
    plain = train(recipe_with(None, dimensions), data, tmp_path / "plain")
    scored = train(recipe_with(2, dimensions), data, tmp_path / "scored")
    first, second = (load_file(run.weights_file) for run in (plain, scored))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    steps = [[line for line in read_log(run.log_file) if "total" in line] for run in (plain, scored)]
    assert steps[0] == steps[1]
    states = [load_checkpoint(checkpoints_in(run.checkpoints)[-1]) for run in (plain, scored)]
    assert torch.equal(states[0]["random"], states[1]["random"])
    assert all(torch.equal(value, states[1]["method"][name]) for name, value in states[0]["method"].items())
    assert not scores_of(plain) and list(scores_of(scored)) == [2, 4, 6, 8, 9]


def test_the_last_scores_are_those_of_the_trained_network(store: Store, tmp_path: Path) -> None:
    recipe = recipe_with(5)
    run = train(recipe, store.path, tmp_path / "run")
    assert list(scores_of(run)) == [4, 5, 9]  # every fifth step, and the ends of both stages
    cases, method = training_cases(store, recipe.batches), load_network(run).method
    assert [case.name for case in cases.unlabeled[:2]] == ["labeled_002", "labeled_003"]
    with torch.inference_mode():
        expected = {
            "labeled": CaseScores(recipe, store, cases.labeled, CPU)(method)["dice"],
            "unlabeled": CaseScores(recipe, store, cases.unlabeled[:2], CPU)(method)["dice"],
        }
    assert scores_of(run)[9] == expected


def test_a_resumed_run_has_the_same_scores(store: Store, tmp_path: Path) -> None:
    whole = train(recipe_with(2), store.path, tmp_path / "whole")
    resumed = tmp_path / "resumed"
    shutil.copytree(whole.path, resumed)
    run = RunFolder(resumed)
    checkpoints_in(run.checkpoints)[-1].unlink()
    run.update_manifest({"status": "stopped"})
    train(recipe_with(2), store.path, resumed, resume=True)
    assert scores_of(run) == scores_of(whole)


def test_hidden_labels_are_opened_only_on_request(store: Store, tmp_path: Path) -> None:
    copied = open_store(Path(shutil.copytree(store.path, tmp_path / "store")))
    (copied.path / "cases" / str(copied.of("labeled")[2].label)).unlink()
    assert train(recipe_with(None), copied.path, tmp_path / "run").manifest()["status"] == "finished"
    with user_error(Code.DAMAGED_FILE, "labeled_002.label.npy"):
        train(recipe_with(2), copied.path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_scores_need_labels_of_unlabeled_scans(store: Store, tmp_path: Path) -> None:
    recipe = tiny.tiny_recipe(loop=tiny.recipe_tree()["loop"] | {"training_dice_every": 2})
    with user_error(Code.RECIPE_MISMATCH, store.path, "training_dice_every"):
        train(recipe, store.path, tmp_path / "run")


def test_a_store_of_a_run_has_no_hidden_labels(scans: Path, tmp_path: Path) -> None:
    """Training on a folder prepares no labels that it must not see, so there is nothing to score."""
    with user_error(Code.RECIPE_MISMATCH, scans, "training_dice_every"):
        train(recipe_with(2), scans, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    dataset = read_layout(scans).for_training(2, 0)
    prepared = prepare(dataset, tmp_path / "store", recipe_with(2).data)
    assert all(case.label is None for case in training_cases(prepared, recipe_with(2).batches).unlabeled)


def test_recipes_without_scores_are_written_as_before() -> None:
    assert "training_dice_every" not in recipe_with(None).to_yaml()
    assert "training_dice_every: 2" in recipe_with(2).to_yaml()


def test_shorter_runs_are_scored_as_often() -> None:
    recipe = recipe_with(4)
    assert shortened(recipe, 2).loop.training_dice_every == 2
    assert part_of(recipe, 0.25).loop.training_dice_every == 1
