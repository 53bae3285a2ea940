"""Equal shares of the time of a plan: recipes, folds and steps of every method."""

from collections.abc import Sequence
from typing import Any

import pytest
from tiny import tiny_recipe

from graftseg.core.errors import Code
from graftseg.methods import METHODS
from graftseg.methods.costs import SELF_TRAINING
from graftseg.planning.length import StepTimes
from graftseg.planning.method_shares import (
    choose_folds,
    compared_methods,
    method_recipe,
    planned_seconds,
    share_plan,
    step_seconds,
)
from graftseg.recipes.recipe import Recipe
from graftseg.training.shipping import check_average
from user_errors import user_error

STAGE = {"optimizer": {"name": "sgd"}}
SECONDS = {"supervised": 1.0, "bcp": 2.0, "mean-teacher": 4.0}


def plan(first: int = 6000, second: int = 4000, method: str = "bcp", **changes: Any) -> Recipe:
    stages = [{"method": "supervised", "steps": first, **STAGE}, {"method": method, "steps": second, **STAGE}]
    return tiny_recipe(**{"stages": stages, **changes})


def seconds_of(recipes: Sequence[Recipe]) -> list[float]:
    return [SECONDS[recipe.method] for recipe in recipes]


def test_supervised_training_is_always_compared() -> None:
    assert compared_methods(None) == ("supervised", *SELF_TRAINING)
    assert compared_methods(["bcp", "supervised", "ua-mt", "bcp"]) == ("supervised", "bcp", "ua-mt")


def test_copy_paste_with_and_without_pasting() -> None:
    names = compared_methods(["bcp-pasted", "bcp-unpasted"])
    recipes = share_plan(plan(20000, 20000), names, seconds_of, "cpu", labeled=4)
    stages = {name: one.compared.stages[-1] for name, one in recipes.items()}
    assert {name: stage.settings.get("direction") for name, stage in stages.items()} == {
        "supervised": None,
        "bcp-pasted": "both",
        "bcp-unpasted": "none",
    }
    assert stages["bcp-unpasted"].method == "bcp" and recipes["bcp-unpasted"].final.name == "tiny-bcp-unpasted"


def test_methods_that_cannot_be_compared() -> None:
    with user_error(Code.UNKNOWN_NAME, "--methods dtc", "bcp"):
        compared_methods(["bcp", "dtc"])
    with user_error(Code.OPTION_INVALID, "--methods", "supervised"):
        compared_methods(["supervised"])


def test_a_new_method_is_taken_from_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELF_TRAINING, "new", 5.0)
    assert compared_methods(None)[-1] == "new"
    assert compared_methods(["new"]) == ("supervised", "new")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 6000 + 2 * 4000),
        ({"folds": 3}, 3 * (6000 + 2 * 4000)),
        # the baseline continues after the first stage
        ({"baseline": True}, 6000 + 2 * 4000 + 4000),
        ({"baseline": True, "folds": 5}, 5 * (6000 + 2 * 4000 + 4000)),
    ],
)
def test_the_time_of_a_plan(changes: dict[str, Any], expected: float) -> None:
    assert planned_seconds(plan(**changes), SECONDS) == expected


def test_the_time_of_a_recipe_with_another_first_stage() -> None:
    recipe = tiny_recipe(baseline=True)
    seconds = {"bcp-pretrain": 1.5, "bcp": 2.0, "supervised": 1.0}
    assert planned_seconds(recipe, seconds) == 4 * 1.5 + 5 * 2.0 + 9 * 1.0


def test_every_method_is_timed_with_its_own_stage_and_batch() -> None:
    seen: dict[str, tuple[int, int]] = {}

    def timer(recipes: Sequence[Recipe]) -> list[float]:
        seen.update({recipe.method: (len(recipe.stages), recipe.batches.unlabeled) for recipe in recipes})
        return [1.0] * len(recipes)

    found = step_seconds(tiny_recipe(), ("supervised", "mean-teacher"), timer)
    assert list(found) == ["bcp-pretrain", "bcp", "supervised", "mean-teacher"]
    assert seen == {"bcp-pretrain": (1, 0), "bcp": (1, 2), "supervised": (1, 0), "mean-teacher": (1, 2)}


def test_each_method_gets_the_same_time() -> None:
    """The plan takes 60000 s: 20000 s per method and 5000 s per fold."""
    recipes = share_plan(plan(20000, 20000), tuple(SECONDS), seconds_of, "cpu", labeled=4)
    assert {name: one.compared.folds for name, one in recipes.items()} == dict.fromkeys(SECONDS, 4)
    lengths = {name: [stage.steps for stage in one.compared.stages] for name, one in recipes.items()}
    # six tenths of a short run are supervised, rounded down to two digits
    assert lengths == {"supervised": [5000], "bcp": [2100, 1450], "mean-teacher": [1300, 925]}
    for name, one in recipes.items():
        seconds = planned_seconds(one.compared.model_copy(update={"folds": None}), SECONDS)
        assert 5000 - SECONDS[name] < seconds <= 5000
        assert (one.compared.baseline, one.final.baseline) == (False, name != "supervised")
        assert (one.final.folds, one.final.method) == (None, name)
        assert 60000 - 6000 < planned_seconds(one.final, SECONDS) <= 60000


def test_the_number_of_folds_leaves_enough_steps() -> None:
    times = {"supervised": StepTimes(1.0, 1.0, False), "bcp": StepTimes(1.0, 1.0, True)}
    assert [choose_folds(times, 4000.0 * folds, labeled=9) for folds in (1, 2, 3, 4, 5, 6)] == [2, 2, 3, 4, 5, 5]
    assert choose_folds(times, 1e9, labeled=3) == 3
    assert choose_folds(times, 1e9, labeled=2) == 2


def test_a_supervised_plan_can_be_shared() -> None:
    """A plan without time for unlabeled scans has no unlabeled images in its batches."""
    batches = {"patch": [16, 16], "labeled": 4, "unlabeled": 0}
    short = tiny_recipe(stages=[{"method": "supervised", "steps": 20000}], batches=batches)
    recipes = share_plan(short, ("supervised", "bcp"), seconds_of, "cpu", labeled=4)
    assert {one.compared.batches.unlabeled for one in recipes.values()} == {4}
    assert sum(stage.steps for stage in recipes["supervised"].compared.stages) == 20000 // 2 // 3


def test_given_folds_are_kept() -> None:
    recipes = share_plan(plan(20000, 20000), ("supervised", "bcp"), seconds_of, "cpu", labeled=6, folds=6)
    assert {one.compared.folds for one in recipes.values()} == {6}


def test_a_plan_that_is_too_short_names_the_minutes() -> None:
    """400 steps of mean-teacher take 240 + 4 x 160 s: 3 methods on 2 folds need 5280 s, which is 88 minutes."""
    with user_error(Code.BUDGET_TOO_SMALL, "recipe tiny", "--minutes 97"):
        share_plan(plan(5279 - 2 * 1000, 1000), tuple(SECONDS), seconds_of, "cpu", labeled=4)
    enough = plan(round(1.02 * 5280) - 2 * 1000, 1000)
    assert share_plan(enough, tuple(SECONDS), seconds_of, "cpu", labeled=4)["mean-teacher"].compared.folds == 2


def test_the_same_data_settings_and_seed() -> None:
    base = plan(seed=7)
    for name in ("supervised", *SELF_TRAINING):
        recipe = method_recipe(base, name, 2000, short=True)
        assert (recipe.method, recipe.name) == (name, f"tiny-{name}")
        assert sum(stage.steps for stage in recipe.stages) == 2000
        for part in ("data", "batches", "network", "loop", "inference", "seed"):
            assert getattr(recipe, part) == getattr(base, part)


def test_settings_of_the_own_method_are_kept_and_follow_the_length() -> None:
    stages = [
        {"method": "supervised", "steps": 600, "settings": {"dice": "foreground"}, **STAGE},
        {"method": "bcp", "steps": 400, "settings": {"beta": 0.5, "ema_decay": 0.99}, "check_teacher": False, **STAGE},
    ]
    recipe = method_recipe(tiny_recipe(stages=stages), "bcp", 1000, short=True)
    first, second = recipe.stages
    assert first.settings["dice"] == "foreground"
    assert (second.settings["beta"], second.settings["ema_decay"], second.check_teacher) == (0.5, 0.95, False)
    assert second.optimizer.name == "adam"


def test_the_rule_for_components_is_kept_for_other_methods() -> None:
    settings = {"largest_component": [2]}
    stages = [
        {"method": "supervised", "steps": 9, **STAGE},
        {"method": "bcp", "steps": 9, "settings": settings, **STAGE},
    ]
    other = method_recipe(tiny_recipe(stages=stages), "fg-cutmix", 1000, short=True)
    assert list(other.stages[-1].settings["largest_component"]) == [2]
    without = plan(method="mean-teacher", inference={"largest_component": [1]})
    assert list(method_recipe(without, "bcp", 1000, short=True).stages[-1].settings["largest_component"]) == [1]


def test_only_short_runs_of_fitting_networks_are_averaged() -> None:
    base = plan(average_with_baseline=True)
    names = ("supervised", *SELF_TRAINING)
    averages = {name: method_recipe(base, name, 1000, short=True).average_with_baseline for name in names}
    assert [name for name, average in averages.items() if not average] == ["supervised", "mc-net"]
    assert not method_recipe(base, "bcp", 5000, short=False).average_with_baseline
    check_average(method_recipe(base, "bcp", 1000, short=True))


def test_every_planned_method_exists() -> None:
    assert set(SELF_TRAINING) <= set(METHODS)
