"""A recipe trained once for each part of the labeled cases, so that every one of them is scored unseen."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import make_folder, write_json, write_text
from graftseg.core.names import same_names
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.data.batches import training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.figures import figures_of, format_value
from graftseg.evaluation.scores import Evaluation
from graftseg.recipes.baseline import baseline_of, fitting, require_unlabeled
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.cross_validation import CrossValidation, References, held_out_scores, keep_scores, references_of
from graftseg.training.recorder import Leg, fold_legs
from graftseg.training.run import complete

LEAVE_ONE_OUT: Literal["loo"] = "loo"
Count = int | Literal["loo"]
Parts = Sequence[tuple[str, ...]]
Tell = Callable[[str], None]
FORMAT = {"format": "graftseg folds", "version": 1}
RULE = "a fold's network sees neither the labels nor the images of its held-out cases"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Course:
    """What the trainings of a folder have in common."""

    store: Store
    parts: Parts
    references: References
    device: torch.device
    tell: Tell


def fold_recipe(recipe: Recipe, held_out: Sequence[str]) -> Recipe:
    """The recipe of a fold: these cases are held out, all else is as it was."""
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
    count: Count,
    baseline: bool,
    resume: bool = False,
    tell: Tell = logger.info,
) -> CrossValidation:
    """Train every fold into ``run/fold-N`` and score its held-out cases; then the same for the baseline.

    Folds that have ended are kept and one that was stopped goes on with ``resume``. ``run/metrics.csv`` has every
    labeled case once, ``run/folds.json`` what was held out where and what came of it; the baseline's stand in
    ``run/baseline``.
    """
    _check_target(recipe, run, data, resume)
    store = _store(recipe, data, run, count, baseline=baseline)
    unlabeled = training_cases(store, recipe.batches).unlabeled
    recipe, baseline = fitting(recipe, unlabeled=len(unlabeled), baseline=baseline)
    require_unlabeled(recipe, len(unlabeled), store.path)
    cases = [case.name for case in training_cases(store, recipe.batches).labeled]
    parts = _divided(cases, count, recipe)
    _refuse_twins(store, recipe, cases)
    course = _Course(store, parts, references_of(data, store, cases), device, tell)
    tell(f"{len(cases)} labeled cases in {len(parts)} folds; {RULE}")
    legs = fold_legs(len(parts), baseline=baseline)
    own, theirs = legs[: len(parts)], legs[len(parts) :]
    evaluation = _trained(recipe, run, course, own)
    other = _trained(baseline_of(recipe), run.baseline, course, theirs) if baseline else None
    result = CrossValidation(run.path, tuple(parts), evaluation, other)
    write_json(run.folds_file, _told(recipe, course) | result.to_json())
    return result


def _check_target(recipe: Recipe, run: RunFolder, data: Data, resume: bool) -> None:
    """Refuse what cannot be trained before anything is touched."""
    if recipe.selection.opens_test:
        finding = "it scores test cases while it trains, and folds are there for want of them"
        raise UserError(
            Code.RECIPE_MISMATCH,
            f"recipe {recipe.name}",
            finding,
            "set selection.protocol to last, or train with --folds 0",
        )
    if run.path.resolve() == data.resolve():
        raise UserError(Code.UNSAFE_TARGET, run.path, "is the data itself", "name another --out")
    if run.exists:
        raise UserError(
            Code.TARGET_EXISTS, run.path, "holds a single run", "name another --out for folds, or add --folds 0"
        )
    if run.folds_file.is_file() and not resume:
        raise UserError(
            Code.TARGET_EXISTS, run.path, "holds folds already", "add --resume to go on with them or name another --out"
        )
    if not run.folds_file.is_file() and not run.is_free:
        raise UserError(
            Code.TARGET_EXISTS, run.path, "exists and holds no folds", "name an empty or new folder as --out"
        )
    if not run.folds_file.is_file() and resume:
        raise UserError(Code.RUN_UNFINISHED, run.path, "there are no folds to resume", "leave out --resume to begin")


def _divided(cases: Sequence[str], count: Count, recipe: Recipe) -> Parts:
    return divide(cases, len(cases) if count == LEAVE_ONE_OUT else count, recipe.seed)


def _store(recipe: Recipe, data: Data, run: RunFolder, count: Count, *, baseline: bool) -> Store:
    """The prepared store: given, or made from scans; folds that go on keep the one that they began with."""
    if is_store(data):
        return open_store(data)
    if run.folds_file.is_file():
        return open_store(run.store)
    batches = recipe.batches
    dataset = read_layout(data).for_training(batches.labeled_cases, batches.validation_cases, batches.held_out)
    seen = [case.name for case in dataset.of("labeled") if not same_names([case.name], batches.held_out)]
    # refused before scans are prepared, which may take long
    _divided(seen[: len(seen) - batches.validation_cases], count, recipe)
    if not (baseline or recipe.baseline or dataset.problems):
        require_unlabeled(recipe, len(dataset.of("unlabeled")), dataset.root)
    make_folder(run.path)
    with run.lock():
        # what an attempt left that was refused is nobody's
        return prepare(dataset, run.store, recipe.data, anew=run.is_free)


def _refuse_twins(store: Store, recipe: Recipe, labeled: Sequence[str]) -> None:
    """A labeled scan that is among the unlabeled ones too would be seen in the fold that holds it out."""
    known = {case.sha256[case.image]: case.name for case in store.of("labeled") if case.name in labeled}
    for case in training_cases(store, recipe.batches).unlabeled:
        if twin := known.get(case.sha256[case.image]):
            finding = f"the unlabeled case {case.name} is the same scan as the labeled case {twin}"
            raise UserError(
                Code.RECIPE_MISMATCH,
                store.path,
                f"{finding}, which could then not be held out",
                "remove one of the two",
            )


def _trained(recipe: Recipe, run: RunFolder, course: _Course, legs: Sequence[Leg]) -> Evaluation:
    """The scores of all cases, each by the network of the fold that held it out; what is there is not made again."""
    _begin(recipe, run, course)
    scores = []
    for number, (part, leg) in enumerate(zip(course.parts, legs, strict=True)):
        complete(fold_recipe(recipe, part), course.store, run.fold(number), course.device, leg)
        scores.append(held_out_scores(run.fold(number), course.store, part, course.references, course.device))
        dice = format_value(figures_of(scores[-1])["dice"])
        course.tell(f"{run.fold(number).path}: Dice {dice} % on {', '.join(part)}")
    rows = sorted((row for score in scores for row in score.rows), key=lambda row: (row.case, row.label))
    evaluation = Evaluation(tuple(rows), scores[0].protocol)
    checkpoint = str(run.fold(0).manifest().get("checkpoint", "last"))
    keep_scores(evaluation, run.path, course.references, f"{checkpoint} of each of {len(course.parts)} folds")
    result = CrossValidation(run.path, tuple(course.parts), evaluation)
    write_json(run.folds_file, _told(recipe, course) | result.to_json())
    return evaluation


def _begin(recipe: Recipe, run: RunFolder, course: _Course) -> None:
    """Write down how the cases are divided; a folder that was begun otherwise is refused."""
    make_folder(run.path)
    if not run.folds_file.is_file():
        write_json(run.folds_file, _told(recipe, course))
    elif held_out_by_fold(run) != list(course.parts):
        finding = "the folds were begun with other cases, another number or another seed"
        raise UserError(
            Code.RECIPE_MISMATCH, run.folds_file, finding, "resume with the same command or name another --out"
        )
    if not run.recipe_file.is_file():
        write_text(run.recipe_file, recipe.model_copy(update={"folds": len(course.parts)}).to_yaml())


def _told(recipe: Recipe, course: _Course) -> dict[str, object]:
    """What the list of folds says before any of them is trained."""
    labeled = {case for part in course.parts for case in part}
    return FORMAT | {
        "recipe": recipe.name,
        "method": recipe.method,
        "seed": recipe.seed,
        "rule": RULE,
        "classes": list(course.store.classes),
        "unlabeled": len(training_cases(course.store, recipe.batches).unlabeled),
        "folds": [
            {"fold": number, "labeled": sorted(labeled - set(part)), "held_out": list(part)}
            for number, part in enumerate(course.parts)
        ],
    }


USUAL = 5
LEAST = 2
_STREAM = 0xF01D
"""Keeps the shuffle apart from whatever else the same seed draws."""


def suggested_folds(labeled: int, *, has_test: bool) -> int | None:
    """Into how many folds so many labeled cases should be divided; None where a test set says more, or one case less.

    Fewer than five cases are left out one by one, since every one of them is needed for training.
    """
    if has_test or labeled < LEAST:
        return None
    return min(labeled, USUAL)


def divide(cases: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """The cases, shuffled by the seed, in ``count`` parts whose sizes differ by one at most; each part by name.

    The order in which the cases are given plays no part.
    """
    names = sorted(cases)
    if not LEAST <= count <= len(names):
        finding = f"{len(names)} labeled {'case' if len(names) == 1 else 'cases'} cannot be divided into {count} folds"
        raise UserError(Code.TOO_FEW_CASES, f"--folds {count}", finding, _remedy(len(names)))
    order = np.random.default_rng((seed, _STREAM)).permutation(len(names))
    return [tuple(sorted(names[place] for place in part)) for part in np.array_split(order, count)]


def _remedy(cases: int) -> str:
    if cases < LEAST:
        return "label at least one more scan, or train a single network with --folds 0"
    return f"choose from {LEAST} to {cases}" + ("" if cases == LEAST else f", where {cases} leaves out one at a time")
