"""Equal shares of the training time of a plan: one recipe per method, all for the same folds."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import torch

from graftseg.core.errors import Code, UserError
from graftseg.data.store import Store
from graftseg.methods import METHODS
from graftseg.planning.choices import tree_of
from graftseg.planning.cost import SELF_TRAINING
from graftseg.planning.length import (
    MAX_STEPS,
    MIN_FOLD_STEPS,
    MIN_UNLABELED_STEPS,
    TIME_MARGIN,
    StepTimes,
    first_stage_steps,
    optimizer_choices,
    stage_choices,
)
from graftseg.planning.plans import StepTimer, method_choices
from graftseg.planning.probe import seconds_per_step
from graftseg.recipes.baseline import SUPERVISED, baseline_of, shares_first_stage, uses_unlabeled
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.folds import DEFAULT_FOLDS, LEAVE_ONE_OUT, MIN_FOLDS, FoldCount

Seconds = Mapping[str, float]
"""Seconds per step by the name of the method."""


class MethodRecipes(NamedTuple):
    """The recipes of a method: for a fold of the comparison, and for all labeled cases in the time of the plan."""

    compared: Recipe
    final: Recipe


def compared_methods(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return supervised training and the named methods, by default all methods that can be planned."""
    chosen = tuple(dict.fromkeys(name for name in (SELF_TRAINING if names is None else names) if name != SUPERVISED))
    if unknown := [name for name in chosen if name not in SELF_TRAINING]:
        remedy = f"choose from {', '.join(SELF_TRAINING)}"
        raise UserError(Code.UNKNOWN_NAME, f"--methods {unknown[0]}", "not a method that can be planned", remedy)
    if not chosen:
        remedy = f"name at least one of {', '.join(SELF_TRAINING)}"
        raise UserError(Code.OPTION_INVALID, "--methods", "no method to compare with supervised training", remedy)
    return SUPERVISED, *chosen


def share_on_device(
    plan: Recipe, methods: Sequence[str], device: torch.device, folds: FoldCount | None, store: Store, labeled: int
) -> dict[str, MethodRecipes]:
    """Call ``share_plan`` with step times that are measured on a device. ``labeled`` is the number of labeled cases."""
    timer = partial(seconds_per_step, channels=store.channels, classes=len(store.classes), device=device)
    return share_plan(plan, methods, timer, labeled=labeled, folds=labeled if folds == LEAVE_ONE_OUT else folds)


def share_plan(
    plan: Recipe, methods: Sequence[str], timer: StepTimer, *, labeled: int, folds: int | None = None
) -> dict[str, MethodRecipes]:
    """Return recipes that give each method the same share of the time of a plan, for the same number of folds.

    ``timer`` measures the seconds per step. ``folds`` is chosen so that enough steps remain, unless it is given.
    """
    plan = _with_unlabeled_images(plan)
    seconds = step_seconds(plan, methods, timer)
    times = {name: StepTimes(seconds[name], seconds[SUPERVISED], name != SUPERVISED) for name in methods}
    budget = planned_seconds(plan, seconds)
    count = choose_folds(times, budget, labeled) if folds is None else folds
    steps = _steps(times, budget / len(times) / count)
    if min(steps.values()) < MIN_UNLABELED_STEPS:
        needed = len(times) * count * max(one.seconds(MIN_UNLABELED_STEPS)[0] for one in times.values())
        finding = (
            f"{budget / 60:.3g} minutes of training are too short to compare {len(times)} methods on {count} folds "
            f"with at least {MIN_UNLABELED_STEPS} steps each"
        )
        remedy = f"plan with --minutes {ceil(TIME_MARGIN * needed / 60)} or more, or name fewer --methods"
        raise UserError(Code.BUDGET_TOO_SMALL, f"recipe {plan.name}", finding, remedy)
    final = _steps(times, budget)
    return {
        name: MethodRecipes(
            method_recipe(plan, name, steps[name]).model_copy(update={"folds": count}),
            method_recipe(plan, name, final[name]),
        )
        for name in methods
    }


def _with_unlabeled_images(plan: Recipe) -> Recipe:
    """Return a plan whose batches have unlabeled images, which a supervised plan leaves out."""
    batches = plan.batches
    if batches.unlabeled:
        return plan
    return plan.model_copy(update={"batches": batches.model_copy(update={"unlabeled": batches.labeled})})


def choose_folds(times: Mapping[str, StepTimes], budget: float, labeled: int) -> int:
    """Return the largest number of folds up to the default with enough steps for every method, but at least two."""
    counts = range(min(labeled, DEFAULT_FOLDS), MIN_FOLDS, -1)
    shares = {count: budget / len(times) / count for count in counts}
    return next((n for n, share in shares.items() if min(_steps(times, share).values()) >= MIN_FOLD_STEPS), MIN_FOLDS)


def planned_seconds(plan: Recipe, seconds: Seconds) -> float:
    """Return the training time of a plan, with its baseline and all folds."""
    stages = [*plan.stages]
    if plan.baseline and uses_unlabeled(plan):
        baseline = baseline_of(plan)
        stages += baseline.stages[1:] if shares_first_stage(plan, baseline) else baseline.stages
    return (plan.folds or 1) * sum(stage.steps * seconds[stage.method] for stage in stages)


def step_seconds(plan: Recipe, methods: Sequence[str], timer: StepTimer) -> dict[str, float]:
    """Measure the seconds per step of the methods and of the stages of the plan."""
    stages = {stage.method: stage for stage in plan.stages}
    stages |= {name: method_recipe(plan, name, MIN_UNLABELED_STEPS).stages[-1] for name in methods}
    recipes = []
    for name, stage in stages.items():
        unlabeled = plan.batches.unlabeled if METHODS[name].uses_unlabeled else 0
        batches = plan.batches.model_copy(update={"unlabeled": unlabeled})
        recipes.append(plan.model_copy(update={"stages": (stage,), "batches": batches}))
    return dict(zip(stages, timer(recipes), strict=True))


def method_recipe(plan: Recipe, method: str, steps: int) -> Recipe:
    """Return a plan with stages for another method and number of steps, without folds and baseline.

    The stages are those that ``graftseg plan`` chooses for this method and length. Other settings are kept.
    """
    changes = {"name": f"{plan.name}-{method}", "about": f"{method} with the data settings of {plan.name}"}
    tree = plan.model_dump(mode="json") | changes | {"baseline": False, "folds": None, "published": None}
    return parse_recipe(tree | {"stages": _stages(plan, method, steps)}, f"recipe {plan.name} with {method}")


def _stages(plan: Recipe, method: str, steps: int) -> list[dict[str, Any]]:
    first = 0 if method == SUPERVISED else first_stage_steps(steps)
    lengths = [first, steps - first] if first else [steps]
    stages: list[dict[str, Any]] = tree_of(
        stage_choices(first, steps - first, "", method) | optimizer_choices(lengths)
    )["stages"]
    usual: list[dict[str, Any]] = tree_of(
        {name: one for name, one in method_choices(plan.data.dimensions, method).items() if name.startswith("stages.")}
    )["stages"]
    for index, stage in enumerate(stages):
        defaults = usual[index]["settings"] if index < len(usual) else {}
        stage["settings"] = defaults | _kept_settings(plan, stage["method"]) | stage.get("settings", {})
    if first and uses_unlabeled(plan):
        stages[-1]["check_teacher"] = plan.stages[-1].check_teacher
    return stages


def _kept_settings(plan: Recipe, method: str) -> dict[str, Any]:
    """Return the settings of a method in the plan. The rule for components is kept for all methods."""
    for stage in plan.stages:
        if stage.method == method:
            return stage.settings
    if "largest_component" not in METHODS[method].Config.model_fields:
        return {}
    rule = plan.stages[-1].settings.get("largest_component", plan.inference.largest_component)
    return {"largest_component": rule}


def _steps(times: Mapping[str, StepTimes], budget: float) -> dict[str, int]:
    """Return the steps of every method in ``budget`` seconds."""
    return {name: min(one.steps_in(budget), MAX_STEPS) for name, one in times.items()}
