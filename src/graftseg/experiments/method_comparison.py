"""Comparison of methods: cross-validate each method on the same folds, and compare it with supervised training."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from graftseg.core.csv_tables import csv_text
from graftseg.core.errors import Code, UserError
from graftseg.core.files import checked_text, read_object, write_checked, write_group, write_text
from graftseg.core.run_folder import METHODS, RunFolder
from graftseg.data.batches import training_cases
from graftseg.data.sources import Data
from graftseg.data.store import Store
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import Effect
from graftseg.evaluation.table_metrics import format_difference, format_interval, format_value, plain_values
from graftseg.evaluation.verdicts import SEVERAL_RUNS, dice_effect, verdict_between
from graftseg.recipes.baseline import SUPERVISED, require_unlabeled
from graftseg.recipes.recipe import RECIPE_REMEDY, Recipe, first_few, load_recipe, training_differences
from graftseg.training.folds import MIN_FOLDS, Report, divide, store_of_folds, train_folds
from graftseg.training.unlabeled_use import unlabeled_use

FORMAT = {"format": "graftseg compare", "version": 1}
HEAD = ("method", "steps per fold", "mean Dice %", "difference from supervised", "95 % interval", "minutes")
OPTIMISTIC = "The best of several methods was chosen on these cases, so its score is optimistic."
RecipesFor = Callable[[Store, int], Mapping[str, tuple[Recipe, Recipe]]]
"""Function of the store and the number of labeled cases.

It returns two recipes per method: one for the comparison, which sets ``folds``, and one to train on all labeled cases.
"""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MethodResult:
    """The held-out scores of a method."""

    method: str
    steps: int  # of one fold
    seconds: float  # training time of all folds
    evaluation: Evaluation
    effect: Effect  # compares supervised training (first) with the method (second)

    def cells(self) -> tuple[str, ...]:
        """Return the row of the printed table."""
        effect, is_compared = self.effect, self.method != SUPERVISED
        difference = format_difference(effect.difference) if is_compared else "-"
        interval = format_interval(effect.low, effect.high) if is_compared else "-"
        minutes = f"{self.seconds / 60:.1f}"
        return self.method, str(self.steps), format_value(effect.second), difference, interval, minutes

    def to_json(self) -> dict[str, Any]:
        """Return plain values; undefined values are None."""
        about = {"method": self.method, "steps": self.steps, "minutes": round(self.seconds / 60, 2)}
        return about | plain_values({"dice": self.effect.second} | asdict(self.effect))


@dataclass(frozen=True)
class MethodComparison:
    """The results of all methods, supervised training first."""

    folder: RunFolder
    folds: int
    results: tuple[MethodResult, ...]

    @property
    def best(self) -> MethodResult:
        """The method with the highest mean Dice on held-out cases, or the first of several equal methods."""
        return max(self.results, key=lambda result: result.effect.second)

    @property
    def final_recipe(self) -> Path:
        """The recipe that trains the best method on all labeled cases."""
        return _recipe_file(self.folder, f"{self.best.method}-final")

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return column titles and one row per method."""
        return HEAD, [result.cells() for result in self.results]

    def verdict(self) -> list[str]:
        """Return sentences about the best method."""
        best = self.best
        first = f"best on held-out labels: {best.method}, {format_value(best.effect.second)} % mean Dice"
        if best.method == SUPERVISED:
            return [f"{first}; no method that uses unlabeled scans was better"]
        use = unlabeled_use(RunFolder(self.folder.path / best.method))
        gain = verdict_between(self.results[0].evaluation, best.evaluation, SEVERAL_RUNS, use)
        return [first, f"{best.method} and supervised training: {gain}.", OPTIMISTIC]

    def write(self) -> None:
        """Write ``compare.json`` and ``compare.csv``."""
        rows = [result.to_json() for result in self.results]
        write_checked(self.folder.compare_file, read_object(self.folder.compare_file) | {"results": rows})
        lines = [list(rows[0]), *([*row.values()] for row in rows)]
        write_text(self.folder.compare_file.with_suffix(".csv"), csv_text(lines))


def train_methods(
    plan: Recipe,
    methods: Sequence[str],
    data: Data,
    run: RunFolder,
    device: torch.device,
    *,
    recipes_for: RecipesFor,
    folds: int | None = None,
    resume: bool = False,
    report: Report = logger.info,
) -> MethodComparison:
    """Cross-validate each method into ``run/METHOD``, supervised training first. The scans are prepared once.

    ``resume`` keeps finished folds and continues a stopped fold, with the recipes of the first call. ``recipes_for``
    makes the recipes of a new comparison. ``folds`` is the requested number of folds, if any.
    """
    run.check_target(METHODS, resume=resume)
    run.check_not_data(data.resolve())
    without_baseline = plan.model_copy(update={"baseline": False})
    store = store_of_folds(without_baseline, data, run, MIN_FOLDS, baseline=False, is_started=resume)
    if resume:
        _check_same(plan, methods, folds, run)
    else:
        _write_recipes(plan, store, run, recipes_for)
    results: list[MethodResult] = []
    for number, name in enumerate(methods, start=1):
        report(f"method {number} of {len(methods)}: {name}")
        compared, folder = load_recipe(_recipe_file(run, name)), RunFolder(run.path / name)
        options: dict[str, Any] = {"count": compared.folds or MIN_FOLDS, "resume": folder.folds_file.is_file()}
        scored = train_folds(compared, data, folder, device, baseline=False, report=report, store=store, **options)
        manifests = [folder.fold(number).manifest() for number in range(len(scored.parts))]
        seconds = sum(manifest["wall_seconds"] for manifest in manifests)
        effect = dice_effect(results[0].evaluation if results else scored.evaluation, scored.evaluation)
        results.append(MethodResult(name, manifests[0]["steps"], seconds, scored.evaluation, effect))
        comparison = MethodComparison(run, len(scored.parts), tuple(results))
        comparison.write()
    return comparison


def _write_recipes(plan: Recipe, store: Store, run: RunFolder, recipes_for: RecipesFor) -> None:
    """Check that the store has enough cases for all methods, and write the recipes and the list of methods."""
    cases = training_cases(store, plan.batches)
    recipes = recipes_for(store, len(cases.labeled))
    for compared, _ in recipes.values():
        require_unlabeled(compared, len(cases.unlabeled), store.path)
        divide([case.name for case in cases.labeled], compared.folds or MIN_FOLDS, plan.seed)
    files = {run.recipe_file: plan.to_checked_yaml()}
    for name, (compared, final) in recipes.items():
        files[_recipe_file(run, name)] = compared.to_checked_yaml()
        files[_recipe_file(run, f"{name}-final")] = final.to_checked_yaml()
    about = FORMAT | {"recipe": plan.name, "seed": plan.seed, "methods": list(recipes)}
    write_group(files | {run.compare_file: checked_text(about)})


def _check_same(plan: Recipe, methods: Sequence[str], folds: int | None, run: RunFolder) -> None:
    """Raise a UserError if the comparison was started with another plan, other methods or another number of folds."""
    if changed := training_differences(plan, load_recipe(run.recipe_file)):
        finding = f"the comparison was started with other settings ({first_few(changed)})"
        raise UserError(Code.RUN_MISMATCH, run.recipe_file, finding, RECIPE_REMEDY)
    if (compared := read_object(run.compare_file).get("methods")) != list(methods):
        finding = f"the comparison was started with other methods ({', '.join(compared or ())})"
        raise UserError(Code.RUN_MISMATCH, run.compare_file, finding, "pass the same --methods, or another --out")
    count = load_recipe(_recipe_file(run, methods[0])).folds
    if folds is not None and folds != count:
        finding = f"the comparison was started with {count} folds"
        raise UserError(Code.RUN_MISMATCH, run.compare_file, finding, f"pass --folds {count}, or another --out")


def _recipe_file(run: RunFolder, name: str) -> Path:
    return run.path / "recipes" / f"{name}.yaml"
