"""Recipes to compare methods: each method gets an equal share of the training time of a plan."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import torch

from graftseg.core.errors import Code, UserError
from graftseg.data.store import Store
from graftseg.methods import METHODS
from graftseg.methods.costs import SELF_TRAINING
from graftseg.planning.choices import tree_of
from graftseg.planning.draft import StepTimer, method_choices
from graftseg.planning.length import (
    MIN_FOLD_STEPS,
    MIN_UNLABELED_STEPS,
    TIME_MARGIN,
    StepTimes,
    choose_average,
    first_stage_steps,
    is_short,
    optimizer_choices,
    stage_choices,
)
from graftseg.planning.probe import seconds_per_step
from graftseg.recipes.baseline import SUPERVISED, baseline_stages, uses_unlabeled
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.folds import DEFAULT_FOLDS, LEAVE_ONE_OUT, MIN_FOLDS, FoldCount

VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bcp-pasted": ("bcp", {"direction": "both"}),
    "bcp-unpasted": ("bcp", {"direction": "none"}),
}
"""Method and settings of further names for a comparison, which are compared only on request."""
Seconds = Mapping[str, float]
"""Seconds per step by the name of the method."""


class MethodRecipes(NamedTuple):
    """The recipes of a method.

    compared: recipe for the folds of the comparison
    final: recipe to train with all labeled cases, and a baseline, in the complete time of the plan
    """

    compared: Recipe
    final: Recipe


def compared_methods(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return supervised training and the named methods, by default all methods that can be planned."""
    chosen = tuple(dict.fromkeys(name for name in (SELF_TRAINING if names is None else names) if name != SUPERVISED))
    known = [*SELF_TRAINING, *VARIANTS]
    if unknown := [name for name in chosen if name not in known]:
        remedy = f"choose from {', '.join(known)}"
        raise UserError(Code.UNKNOWN_NAME, f"--methods {unknown[0]}", "not a method that can be planned", remedy)
    if not chosen:
        remedy = f"name at least one of {', '.join(known)}"
        raise UserError(Code.OPTION_INVALID, "--methods", "no method to compare with supervised training", remedy)
    return SUPERVISED, *chosen


def share_on_device(
    plan: Recipe, methods: Sequence[str], device: torch.device, folds: FoldCount | None, store: Store, labeled: int
) -> dict[str, MethodRecipes]:
    """Call ``share_plan`` with step times measured on a device. ``labeled`` is the number of labeled cases."""
    timer = partial(seconds_per_step, channels=store.channels, classes=len(store.classes), device=device)
    count = labeled if folds == LEAVE_ONE_OUT else folds
    return share_plan(plan, methods, timer, device.type, labeled=labeled, folds=count)


def share_plan(
    plan: Recipe, methods: Sequence[str], timer: StepTimer, kind: str, *, labeled: int, folds: int | None = None
) -> dict[str, MethodRecipes]:
    """Return recipes that give each method the same share of the time of a plan, for the same number of folds.

    ``timer`` measures the seconds per step on a device of this ``kind``. Without ``folds``, choose a number that leaves
    enough steps per fold.
    """
    plan = _with_unlabeled_images(plan)
    seconds = step_seconds(plan, methods, timer)
    times = {name: StepTimes(seconds[name], seconds[SUPERVISED], name != SUPERVISED) for name in methods}
    budget = planned_seconds(plan, seconds)
    count = choose_folds(times, budget, labeled) if folds is None else folds
    steps = _steps_in(times, budget / len(times) / count)
    if min(steps.values()) < MIN_UNLABELED_STEPS:
        needed = len(times) * count * max(time.seconds(MIN_UNLABELED_STEPS)[0] for time in times.values())
        finding = (
            f"the steps of the plan take {budget / 60:.3g} minutes here, which is too short to compare {len(times)} "
            f"methods on {count} folds with at least {MIN_UNLABELED_STEPS} steps each"
        )
        remedy = f"plan with --minutes {ceil(TIME_MARGIN * needed / 60)} or more, or name fewer --methods"
        raise UserError(Code.BUDGET_TOO_SMALL, f"recipe {plan.name}", finding, remedy)
    final = _steps_in(times, budget, baseline=True)

    def recipe_of(name: str, length: int) -> Recipe:
        return method_recipe(plan, name, length, short=is_short(length, kind))

    return {
        name: MethodRecipes(
            recipe_of(name, steps[name]).model_copy(update={"folds": count}),
            recipe_of(name, final[name]).model_copy(update={"baseline": name != SUPERVISED}),
        )
        for name in methods
    }


def _with_unlabeled_images(plan: Recipe) -> Recipe:
    """Return the plan with unlabeled images in its batches, also if it is supervised."""
    batches = plan.batches
    if batches.unlabeled:
        return plan
    return plan.model_copy(update={"batches": batches.model_copy(update={"unlabeled": batches.labeled})})


def choose_folds(times: Mapping[str, StepTimes], budget: float, labeled: int) -> int:
    """Return the largest number of folds up to the default with enough steps for every method, but at least two."""
    for folds in range(min(labeled, DEFAULT_FOLDS), MIN_FOLDS, -1):
        if min(_steps_in(times, budget / len(times) / folds).values()) >= MIN_FOLD_STEPS:
            return folds
    return MIN_FOLDS


def planned_seconds(plan: Recipe, seconds: Seconds) -> float:
    """Return the training time of a plan, with its baseline and all folds."""
    stages = [*plan.stages, *(baseline_stages(plan) if plan.baseline and uses_unlabeled(plan) else ())]
    return (plan.folds or 1) * sum(stage.steps * seconds[stage.method] for stage in stages)


def step_seconds(plan: Recipe, methods: Sequence[str], timer: StepTimer) -> dict[str, float]:
    """Measure the seconds per step of the methods and of the stages of the plan."""
    stages = {stage.method: stage for stage in plan.stages}
    stages |= {name: method_recipe(plan, name, MIN_UNLABELED_STEPS, short=True).stages[-1] for name in methods}
    recipes = []
    for stage in stages.values():
        unlabeled = plan.batches.unlabeled if METHODS[stage.method].uses_unlabeled else 0
        batches = plan.batches.model_copy(update={"unlabeled": unlabeled})
        recipes.append(plan.model_copy(update={"stages": (stage,), "batches": batches}))
    return dict(zip(stages, timer(recipes), strict=True))


def method_recipe(plan: Recipe, method: str, steps: int, *, short: bool) -> Recipe:
    """Return a plan with stages for another method and number of steps, without folds and baseline.

    The stages are those that ``graftseg plan`` chooses for this method in a ``short`` or a long run. Other settings are
    kept. ``method`` is the name of a method or one of ``VARIANTS``.
    """
    base, settings = VARIANTS.get(method, (method, {}))
    about = f"{method} with the data settings of {plan.name}"
    changes: dict[str, Any] = {"name": f"{plan.name}-{method}", "about": about}
    average = choose_average(None if base == SUPERVISED else base, short=short).value
    changes |= {"baseline": False, "average_with_baseline": average, "folds": None, "published": None}
    tree = plan.model_dump(mode="json") | changes
    stages = _stages(plan, base, steps, short=short)
    stages[-1]["settings"] |= settings
    return parse_recipe(tree | {"stages": stages}, f"recipe {plan.name} with {method}")


def _stages(plan: Recipe, method: str, steps: int, *, short: bool) -> list[dict[str, Any]]:
    first = 0 if method == SUPERVISED else first_stage_steps(steps)
    stage_steps = [first, steps - first] if first else [steps]
    by_length = stage_choices(first, steps - first, "", method, short=short)
    stages: list[dict[str, Any]] = tree_of(by_length | optimizer_choices(stage_steps, short=short))["stages"]
    by_method: list[dict[str, Any]] = tree_of(method_choices(plan.data.dimensions, method))["stages"]
    for index, stage in enumerate(stages):
        defaults = by_method[index]["settings"] if index < len(by_method) else {}
        stage["settings"] = defaults | _settings_in(plan, stage["method"]) | stage.get("settings", {})
    if first and uses_unlabeled(plan):
        stages[-1]["check_teacher"] = plan.stages[-1].check_teacher
    return stages


def _settings_in(plan: Recipe, method: str) -> dict[str, Any]:
    """Return the settings of a method in the plan. For other methods, return only the rule for components."""
    for stage in plan.stages:
        if stage.method == method:
            return stage.settings
    if "largest_component" not in METHODS[method].Config.model_fields:
        return {}
    rule = plan.stages[-1].settings.get("largest_component", plan.inference.largest_component)
    return {"largest_component": rule}


def _steps_in(times: Mapping[str, StepTimes], budget: float, *, baseline: bool = False) -> dict[str, int]:
    """Return the steps of every method in ``budget`` seconds, with or without a ``baseline``."""
    return {name: time.steps_in(budget, baseline=baseline) for name, time in times.items()}
