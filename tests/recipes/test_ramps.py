"""Warnings about ramps that stay low, so that unlabeled scans have little weight."""

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
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.recipes.settings import StageSettings
from graftseg.recipes.shortening import requested_recipe, warn_of_low_ramps
from sweep_fakes import Sweeper


def with_ramp(steps: int, method: str = "ua-mt", **settings: Any) -> Recipe:
    """Return a recipe of one stage whose method has a ramp."""
    stage = {"method": method, "steps": steps, "settings": settings, "optimizer": {"name": "sgd"}}
    return tiny.tiny_recipe(stages=[stage])


def height(stage: StageSettings) -> float:
    """Return the value of a stage's ramp at its last step; 1 if it has none."""
    return ramp.height if (ramp := ramps._ramp_of(stage, "")) else 1.0


@given(steps=st.integers(1, 10**5), ramp=st.floats(1e-3, 1e4))
def test_the_height_is_that_of_the_last_step(steps: int, ramp: float) -> None:
    expected = consistency_ramp(torch.tensor(steps - 1.0), ramp).item()
    assert height(with_ramp(steps, ramp=ramp).stages[0]) == pytest.approx(expected, rel=1e-4)


def test_stairs_of_another_height_count() -> None:
    stage = with_ramp(1200, "coranet", ramp=300, ramp_every=6).stages[0]
    expected = consistency_ramp(torch.tensor(1199.0), 300, 6).item()
    assert height(stage) == pytest.approx(expected) and 0.5 < expected < 0.6
    assert height(tiny.tiny_recipe().stages[0]) == 1


def test_short_training_with_the_default_ramp_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_low_ramps(with_ramp(300))
    (warning,) = caplog.messages
    assert "1 % of its maximum in 300 steps" in warning and "set stages.0.settings.ramp to 1 or less" in warning
    caplog.clear()
    warn_of_low_ramps(with_ramp(300, ramp=1))
    assert caplog.messages == []
    warn_of_low_ramps(with_ramp(150, ramp=1))
    assert "set stages.0.steps to 151 or more and stages.0.settings.ramp to 1" in caplog.messages[0]


def test_shortened_training_gets_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_low_ramps(with_ramp(6000), shorter=20)
    (warning,) = caplog.messages
    assert warning.startswith("recipe tiny, --shorter 20: ") and "29 % of its maximum in 300 steps" in warning
    caplog.clear()
    warn_of_low_ramps(with_ramp(3000, ramp=10), shorter=9)
    assert "ua-mt rises only 2 times" in caplog.messages[0]
    caplog.clear()
    warn_of_low_ramps(with_ramp(3000, ramp=10), shorter=15)
    assert "ua-mt rises only once" in caplog.messages[0]


SETTING = re.compile(r"(stages\.0\.\S+) to (\d+)")


@given(steps=st.integers(1, 10**5), ramp=st.floats(1e-3, 1e4), shorter=st.integers(1, 100), every=st.integers(1, 300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_advice_removes_the_warning(
    caplog: pytest.LogCaptureFixture, steps: int, ramp: float, shorter: int, every: int
) -> None:
    caplog.clear()
    ramps._warned.clear()
    recipe, shorter = with_ramp(steps, "coranet", ramp=ramp, ramp_every=every), min(steps, shorter)
    requested_recipe(recipe, shorter=shorter)
    if not caplog.messages:
        return
    (warning,) = caplog.messages
    caplog.clear()
    advice = SETTING.findall(warning)
    assert advice or (warning.endswith("; shorten less") and shorter > 1)
    requested_recipe(recipe, [f"{place}={value}" for place, value in advice])
    assert caplog.messages == []


def test_no_shipped_recipe_needs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    recipes = [load_recipe(name) for name in shipped_recipes()]
    for recipe in recipes:
        warn_of_low_ramps(recipe)
    assert caplog.messages == []
    assert not [recipe.name for recipe in recipes if any(height(stage) <= 0.99 for stage in recipe.stages)]


def test_every_training_warns(cli: CommandLine, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = {"method": "mean-teacher", "steps": 2, "optimizer": {"name": "sgd"}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree() | {"stages": [stage]}))
    cli.works("train", recipe, "--data", store.path, "--out", tmp_path / "one", "--device", "cpu")
    ramps._warned.clear()
    api.train(load_recipe(recipe), store.path, tmp_path / "two", device="cpu")
    ramps._warned.clear()
    api.train_folds(recipe, store.path, tmp_path / "folds", folds=2, device="cpu")
    assert len([line for line in caplog.messages if "mean-teacher reaches 1 % of its maximum in 2 steps" in line]) == 3


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [line for line in caplog.messages if "the ramp of" in line]
    caplog.clear()
    return found


def test_seeds_warn_once(cli: CommandLine, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = {"method": "mean-teacher", "steps": 4, "optimizer": {"name": "sgd"}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree() | {"stages": [stage]}))
    words = ("train", recipe, "--data", store.path, "--out", tmp_path / "out", "--device", "cpu", "--shorter", 2)
    cli.works(*words, "--seeds", 2)
    (warning,) = warnings_in(caplog)
    assert "mean-teacher reaches 1 % of its maximum in 4 steps" in warning
    cli.works(*words, "--seeds", 2)
    assert warnings_in(caplog) == []


@pytest.mark.slow
def test_sweep_warns_once_per_recipe(
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
        assert [line.split(":")[0] for line in warnings_in(caplog)] == [f"recipe {name}" for name in expected]
