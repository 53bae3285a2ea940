"""Ramps that stay low within their stage, which would leave unlabeled scans without a say, are told."""

import re
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import yaml
from command_line import CommandLine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg import api
from graftseg.data.store import Store
from graftseg.ops.optimizers import consistency_ramp
from graftseg.recipes import shortening as ramps
from graftseg.recipes.recipe import Recipe, load_recipe, shipped_recipes
from graftseg.recipes.shortening import asked_for, height, tell_of_ramps
from sweep_fakes import Sweeper

TOLD = "reaches 1 % of its height in 300 steps, so that unlabeled scans count little; set stages.0.settings.ramp to 1"


def taught(steps: int, method: str = "ua-mt", **settings: Any) -> Recipe:
    """A recipe of one stage whose method has a ramp."""
    stage = {"method": method, "steps": steps, "settings": settings, "optimizer": {"name": "sgd"}}
    return tiny.tiny_recipe(stages=[stage])


@given(steps=st.integers(1, 10**5), ramp=st.floats(1e-3, 1e4))
def test_the_height_is_that_of_the_last_step(steps: int, ramp: float) -> None:
    expected = consistency_ramp(torch.tensor(steps - 1.0), ramp).item()
    assert height(taught(steps, ramp=ramp).stages[0]) == pytest.approx(expected, rel=1e-4)


def test_stairs_of_another_height_count() -> None:
    stage = taught(1200, "coranet", ramp=300, ramp_every=6).stages[0]
    expected = consistency_ramp(torch.tensor(1199.0), 300, 6).item()
    assert height(stage) == pytest.approx(expected) and 0.5 < expected < 0.6
    assert height(tiny.tiny_recipe().stages[0]) == 1


def test_a_training_of_few_steps_with_the_usual_ramp_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tell_of_ramps(taught(300))
    assert caplog.messages == [f"recipe tiny: the ramp of ua-mt {TOLD} or less"]
    caplog.clear()
    tell_of_ramps(taught(300, ramp=1))
    assert caplog.messages == []
    tell_of_ramps(taught(150, ramp=1))
    steps = "set stages.0.steps to 151 or more and stages.0.settings.ramp to 1, or choose a method without a ramp"
    assert caplog.messages[0].endswith(f"; {steps}")


def test_one_sentence_is_enough_where_a_training_is_shorter(caplog: pytest.LogCaptureFixture) -> None:
    tell_of_ramps(taught(6000), shorter=20)
    told = "reaches 29 % of its height in 300 steps, so that unlabeled scans count little"
    assert caplog.messages == [f"recipe tiny, --shorter 20: the ramp of ua-mt {told}; shorten less"]
    caplog.clear()
    tell_of_ramps(taught(3000, ramp=10), shorter=9)
    assert caplog.messages[0].endswith(
        "ua-mt rises 2 times only, so that unlabeled scans may count little; shorten less"
    )
    caplog.clear()
    tell_of_ramps(taught(3000, ramp=10), shorter=15)
    assert " rises once only, so that unlabeled scans may count little; " in caplog.messages[0]


SETTING = re.compile(r"(stages\.0\.\S+) to (\d+)")


@given(steps=st.integers(1, 10**5), ramp=st.floats(1e-3, 1e4), shorter=st.integers(1, 100), every=st.integers(1, 300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_advised_works(
    caplog: pytest.LogCaptureFixture, steps: int, ramp: float, shorter: int, every: int
) -> None:
    caplog.clear()
    ramps._told.clear()
    recipe, shorter = taught(steps, "coranet", ramp=ramp, ramp_every=every), min(steps, shorter)
    asked_for(recipe, shorter=shorter)
    if not caplog.messages:
        return
    (told,) = caplog.messages
    caplog.clear()
    advice = SETTING.findall(told)
    assert advice or (told.endswith("; shorten less") and shorter > 1)
    asked_for(recipe, [f"{place}={value}" for place, value in advice])
    assert caplog.messages == []


@pytest.mark.parametrize("name", shipped_recipes())
def test_no_shipped_recipe_needs_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    recipe = load_recipe(name)
    tell_of_ramps(recipe)
    assert caplog.messages == []
    assert all(height(stage) > 0.99 for stage in recipe.stages)


def test_every_training_tells(cli: CommandLine, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = {"method": "mean-teacher", "steps": 2, "optimizer": {"name": "sgd"}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree() | {"stages": [stage]}))
    cli.works("train", recipe, "--data", store.path, "--out", tmp_path / "one", "--device", "cpu")
    ramps._told.clear()
    api.train(load_recipe(recipe), store.path, tmp_path / "two", device="cpu")
    ramps._told.clear()
    api.train_folds(recipe, store.path, tmp_path / "folds", folds=2, device="cpu")
    told = [line for line in caplog.messages if "the ramp of mean-teacher reaches 1 % of its height in 2 steps" in line]
    assert len(told) == 3


def told_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [line for line in caplog.messages if "the ramp of" in line]
    caplog.clear()
    return told


def test_seeds_tell_once(cli: CommandLine, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = {"method": "mean-teacher", "steps": 4, "optimizer": {"name": "sgd"}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree() | {"stages": [stage]}))
    words = ("train", recipe, "--data", store.path, "--out", tmp_path / "out", "--device", "cpu", "--shorter", 2)
    cli.works(*words, "--seeds", 2)
    (told,) = told_of(caplog)
    assert told.startswith("recipe tiny: the ramp of mean-teacher reaches 1 % of its height in 4 steps, ")
    cli.works(*words, "--seeds", 2)
    assert told_of(caplog) == []


def test_a_sweep_tells_once_of_every_recipe_that_it_trains(
    cli: CommandLine, sweeper: Sweeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = {"method": "mean-teacher", "steps": 2, "optimizer": {"name": "sgd"}}
    for name in ("la-4/bcp", "la-8/bcp"):
        (tmp_path / f"recipes/{name}.yaml").write_text(
            yaml.safe_dump(tiny.recipe_tree() | {"name": name, "stages": [stage]})
        )
    words = ("sweep", "masks", "--data", sweeper.store.path, "--out", sweeper.runs, "--results", sweeper.results)
    for only, expected in (("la-4/bcp", ["la-4/bcp"]), ("la-*/bcp", ["la-8/bcp"]), ("la-*/bcp", [])):
        cli.works(*words, "--device", "cpu", "--seeds", 2, "--only", only)
        assert [line.split(":")[0] for line in told_of(caplog)] == [f"recipe {name}" for name in expected]
