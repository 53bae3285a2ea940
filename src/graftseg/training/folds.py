"""Cross-validation: train one network per fold, so that every labeled case is scored by a network that never saw it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from graftseg.core import ranks
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_checked
from graftseg.core.names import same_names
from graftseg.core.phrases import counted
from graftseg.core.run_folder import FOLDS, RunFolder, held_out_by_fold
from graftseg.core.tasks import LOCAL, Executor, Work, main_first_with_help
from graftseg.data.batches import training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import format_value, mean_metrics
from graftseg.inference.predict_tasks import forget_networks
from graftseg.recipes.baseline import adapt_to_data, baseline_of, require_unlabeled
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.clock import baseline_work, run_work
from graftseg.training.cross_validation import CrossValidation, References, held_out_scores, references_of, write_scores
from graftseg.training.recorder import ProgressLabel, fold_labels
from graftseg.training.run import complete
from graftseg.training.several_ranks import begin_or_detect_restart
from graftseg.training.shipping import shipped_after_folds

LEAVE_ONE_OUT: Literal["loo"] = "loo"
FoldCount = int | Literal["loo"]
Parts = Sequence[tuple[str, ...]]
Report = Callable[[str], None]
FORMAT = {"format": "graftseg folds", "version": 1}
RULE = "a fold's network sees neither the labels nor the images of its held-out cases"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Shared:
    """Everything that the training runs of all folds share."""

    store: Store
    parts: Parts
    references: References
    device: torch.device
    report: Report
    executor: Executor


def fold_recipe(recipe: Recipe, held_out: Sequence[str]) -> Recipe:
    """Return the recipe of the fold that holds out these cases."""
    batches = recipe.batches
    limit = None if batches.labeled_cases is None else batches.labeled_cases - len(held_out)
    changes = {"held_out": [*batches.held_out, *held_out], "labeled_cases": limit}
    tree = recipe.model_dump(mode="json") | {"folds": None, "baseline": False}
    return parse_recipe(tree | {"batches": tree["batches"] | changes}, f"recipe {recipe.name}")


def train_folds(
    recipe: Recipe,
    data: Data,
    run: RunFolder,
    device: torch.device,
    *,
    count: FoldCount,
    baseline: bool,
    resume: bool = False,
    report: Report = logger.info,
    store: Store | None = None,
    executor: Executor = LOCAL,
) -> CrossValidation:
    """Train every fold into ``run/fold-N`` and score its held-out cases. With ``baseline``, also train baseline folds.

    ``store`` contains the prepared scans of ``data``. Without it, the scans are prepared into ``run/store``. ``resume``
    keeps finished folds and continues a stopped fold. ``run/metrics.csv`` contains the scores of all cases.
    ``run/folds.json`` lists the cases of each fold, and the means of all scores. The baseline is in ``run/baseline``.
    Each fold is a task of ``executor``.
    """
    with ranks.joined(device):
        resume, report = resume or begin_or_detect_restart(run), report if ranks.is_main() else logger.debug
        ranks.on_main(partial(_check_target, recipe, run, data, resume))
        if store is None:
            is_started = run.folds_file.is_file() or not ranks.is_main()
            opened = partial(store_of_folds, recipe, data, run, count, baseline=baseline, is_started=is_started)
            store = ranks.main_first(opened)
        unlabeled = training_cases(store, recipe.batches).unlabeled
        recipe, baseline = adapt_to_data(recipe, unlabeled=len(unlabeled), baseline=baseline)
        require_unlabeled(recipe, len(unlabeled), store.path)
        cases = [case.name for case in training_cases(store, recipe.batches).labeled]
        parts = divide(cases, count, recipe.seed)
        _refuse_duplicates(store, recipe, cases)
        shared = _Shared(store, parts, references_of(data, store, cases), device, report, executor)
        report(f"{len(cases)} labeled cases in {len(parts)} folds; {RULE}")
        work, other_work = run_work(recipe), baseline_work(recipe) if baseline else ()
        labels = fold_labels(len(parts), baseline=baseline, work=work, baseline_work=other_work)
        evaluation = _train_all(recipe, run, shared, labels[: len(parts)], before_baseline=baseline)
        if not baseline:
            return CrossValidation(run.path, tuple(parts), evaluation)
        other = _train_all(baseline_of(recipe), run.baseline, shared, labels[len(parts) :], run)
        result = CrossValidation(run.path, tuple(parts), evaluation, other)
        if ranks.is_main():
            write_checked(run.folds_file, _fold_list(recipe, shared) | result.to_json())
            run.ship(shipped_after_folds(evaluation, other, both_supervised=run.is_supervised_only))
        return result


def _check_target(recipe: Recipe, run: RunFolder, data: Data, resume: bool) -> None:
    """Raise a UserError if the folds cannot be trained into this folder. The folder is not changed."""
    if recipe.selection.reads_test_labels:
        finding = "this recipe selects checkpoints on test cases, which cross-validation does not have"
        remedy = "set selection.protocol to last, or train with --folds 0"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, remedy)
    run.check_not_data(data.resolve())
    run.check_target(FOLDS, resume=resume)


def store_of_folds(
    recipe: Recipe, data: Data, run: RunFolder, count: FoldCount, *, baseline: bool, is_started: bool
) -> Store:
    """Open the store ``data``. For scans, open the store of started folds, or prepare a store for new folds."""
    if is_store(data):
        return open_store(data)
    if is_started:
        return open_store(run.store)
    batches, dataset = recipe.batches, read_layout(data).for_training(*recipe.batches.role_limits)
    labeled = [case.name for case in dataset.of("labeled") if not same_names([case.name], batches.held_out)]
    # check the number of folds before the preparation of scans, which may take long
    divide(labeled[: len(labeled) - batches.validation_cases], count, recipe.seed)
    if not (baseline or recipe.baseline or dataset.problems):
        require_unlabeled(recipe, len(dataset.of("unlabeled")), dataset.root)
    with run.lock():
        # a folder without folds may contain the store of an earlier attempt that failed: replace the store
        return prepare(dataset, run.store, recipe.data, overwrite=run.is_free)


def _refuse_duplicates(store: Store, recipe: Recipe, labeled: Sequence[str]) -> None:
    """Raise a UserError if a labeled scan is also an unlabeled scan: the fold that holds it out would train on it."""
    known = {case.sha256[case.image]: case.name for case in store.of("labeled") if case.name in labeled}
    for case in training_cases(store, recipe.batches).unlabeled:
        if twin := known.get(case.sha256[case.image]):
            finding = f"the unlabeled case {case.name} is the same scan as {twin}, which therefore cannot be held out"
            raise UserError(Code.CASE_DUPLICATE, store.path, finding, "remove one of the two cases")


def _train_all(
    recipe: Recipe,
    run: RunFolder,
    shared: _Shared,
    labels: Sequence[ProgressLabel],
    after: RunFolder | None = None,
    *,
    before_baseline: bool = False,
) -> Evaluation:
    """Train all unfinished folds. Return the scores of every case, from the fold that held it out."""
    ranks.on_main(partial(_start, recipe, run, shared))
    task = partial(_train_fold, recipe, run, shared.store, shared.references, shared.device, after, before_baseline)
    items = list(zip(range(len(labels)), shared.parts, labels, strict=True))
    reads = (shared.store.path, shared.references.source, shared.references.images)
    work = Work(f"Training folds in {run.path}", reads, (run.path,), shared.device)
    scores = []
    with shared.executor.running(task, items, work) as finished:
        for (number, part, _), wait in zip(items, finished, strict=True):
            scores.append(wait())
            dice = format_value(mean_metrics(scores[-1])["dice"])
            shared.report(f"{run.fold(number).path}: Dice {dice} % on {', '.join(part)}")
    rows = sorted((row for score in scores for row in score.rows), key=lambda row: (row.case, row.label))
    evaluation = Evaluation(tuple(rows), scores[0].protocol)
    checkpoint = str(run.fold(0).manifest().get("checkpoint", "last"))
    if ranks.is_main():
        write_scores(evaluation, run.path, shared.references, f"{checkpoint} of each of {len(shared.parts)} folds")
        result = CrossValidation(run.path, tuple(shared.parts), evaluation)
        write_checked(run.folds_file, _fold_list(recipe, shared) | result.to_json())
    return evaluation


def _train_fold(
    recipe: Recipe,
    run: RunFolder,
    store: Store,
    references: References,
    device: torch.device,
    after: RunFolder | None,
    before_baseline: bool,
    item: tuple[int, tuple[str, ...], ProgressLabel],
) -> Evaluation:
    """Train or finish a fold. Return the scores of its held-out cases."""
    number, part, label = item
    earlier, fold = None if after is None else after.fold(number), run.fold(number)
    complete(fold_recipe(recipe, part), store, fold, device, label, earlier, before_baseline)
    try:
        return main_first_with_help(partial(held_out_scores, fold, store, part, references, device))
    finally:
        forget_networks()


def _start(recipe: Recipe, run: RunFolder, shared: _Shared) -> None:
    """Write the fold list; raise a UserError if the folder was started with other folds."""
    if not run.folds_file.is_file():
        write_checked(run.folds_file, _fold_list(recipe, shared))
    elif held_out_by_fold(run) != list(shared.parts):
        finding = "the folds were started with other cases, another number of folds or another seed"
        remedy = "resume with the same command, or pass another --out"
        raise UserError(Code.RUN_MISMATCH, run.folds_file, finding, remedy)
    if not run.recipe_file.is_file():
        recipe.model_copy(update={"folds": len(shared.parts)}).save(run.recipe_file)


def _fold_list(recipe: Recipe, shared: _Shared) -> dict[str, object]:
    """Return the entries of ``folds.json`` that are known before training."""
    labeled = {case for part in shared.parts for case in part}
    return FORMAT | {
        "recipe": recipe.name,
        "method": recipe.method,
        "seed": recipe.seed,
        "rule": RULE,
        "classes": list(shared.store.classes),
        "unlabeled": len(training_cases(shared.store, recipe.batches).unlabeled),
        "folds": [
            {"fold": number, "labeled": sorted(labeled - set(part)), "held_out": list(part)}
            for number, part in enumerate(shared.parts)
        ],
    }


DEFAULT_FOLDS = 5
MIN_FOLDS = 2
_STREAM = 0xF01D
"""A constant that keeps the shuffle independent of other random numbers with the same seed."""


def suggested_folds(labeled: int, *, has_test: bool) -> int | None:
    """Return the suggested number of folds, or None if there is a test set or only one labeled case.

    With up to five cases, each fold holds out only one case and trains on all others.
    """
    if has_test or labeled < MIN_FOLDS:
        return None
    return min(labeled, DEFAULT_FOLDS)


def divide(cases: Sequence[str], folds: FoldCount, seed: int) -> list[tuple[str, ...]]:
    """Shuffle the cases by seed and split them into ``folds`` parts whose sizes differ by at most one.

    The result does not depend on the order of ``cases``.
    """
    names = sorted(cases)
    count = len(names) if folds == LEAVE_ONE_OUT else folds
    if not MIN_FOLDS <= count <= len(names):
        finding = f"{counted(len(names), 'labeled case')} cannot be divided into {count} folds"
        remedy = f"choose from {MIN_FOLDS} to {len(names)}"
        if len(names) < MIN_FOLDS:
            remedy = "label at least one more scan, or train a single network with --folds 0"
        raise UserError(Code.TOO_FEW_CASES, f"--folds {count}", finding, remedy)
    order = np.random.default_rng((seed, _STREAM)).permutation(len(names))
    return [tuple(sorted(names[index] for index in part)) for part in np.array_split(order, count)]
