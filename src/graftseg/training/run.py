"""Train a recipe on a store into a run folder."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch

from graftseg.core import ranks
from graftseg.core.devices import hardware_name
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import write_text
from graftseg.core.memory import free_memory
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import SINGLE_RUN, RunFolder, read_log
from graftseg.core.software import versions
from graftseg.data.batches import Batches, training_cases
from graftseg.data.disk_batches import DiskBatches
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import link_cases, prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.inference.model import build_method, load_weights, save_weights
from graftseg.methods import METHODS
from graftseg.networks import parameter_count
from graftseg.recipes.baseline import baseline_of, require_unlabeled, shares_first_stage, uses_unlabeled
from graftseg.recipes.recipe import RECIPE_REMEDY, Recipe, first_few, load_recipe, training_differences
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint, save_checkpoint
from graftseg.training.learning_check import check_learned, warnings_of
from graftseg.training.loop import Outcome, Stage, fit
from graftseg.training.recorder import ONLY_RUN, ProgressLabel
from graftseg.training.resumed_scans import check_resumed_scans
from graftseg.training.selection import (
    Selector,
    build_selector,
    build_training_dice,
    check_scored,
    check_training_dice,
    scored_cases,
)
from graftseg.training.several_ranks import check_batches
from graftseg.training.step import effective_precision, reporting_out_of_memory
from graftseg.training.unlabeled_predictions import UnlabeledPredictions
from graftseg.training.warm_start import WarmStart, save_start

MEMORY_SHARE = {"cpu": 1.0, "cuda": 0.6}
"""Share of free device memory that scans may use; on a GPU the rest is for networks and activations."""
logger = logging.getLogger(__name__)


def train_run(
    recipe: Recipe,
    data: Data,
    run: RunFolder,
    device: torch.device,
    *,
    resume: bool,
    label: ProgressLabel = ONLY_RUN,
    after: RunFolder | None = None,
    before_baseline: bool = False,
    start: WarmStart | None = None,
) -> Outcome:
    """Train into a run folder, which is locked meanwhile. Raise a UserError before the first step if anything is wrong.

    A new run continues from the first stage of the run ``after``, if both have the same first stage.
    ``before_baseline`` keeps the checkpoint after the first stage for the baseline. ``start`` is the trained network
    to start from. ``label`` names the run in progress messages.
    """
    ranks.on_main(partial(check_batches, recipe, ranks.count()))
    store = _shared_store(partial(_checked_store, recipe, data, run, start, resume=resume))
    with reporting_out_of_memory(device), ExitStack() as lock:
        batches = _batches(store, recipe, device)
        build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=device)
        stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
        selector, training_dice = build_selector(recipe, store, device), build_training_dice(recipe, store, device)
        facts = _facts(recipe, store, batches, device) | {"with_baseline": before_baseline}

        def begin() -> tuple[str | None, bool] | None:
            lock.enter_context(run.lock())
            return _begin(recipe, store, run, facts, stages[0], device, resume=resume, after=after, start=start)

        if (begun := ranks.on_main(begin)) is None:
            return _finished_outcome(run, stages)
        identity, resume = begun
        try:
            torch.manual_seed(recipe.seed)
            outcome = fit(
                stages,
                batches,
                run,
                recipe.loop,
                device=device,
                resume=resume,
                selector=selector,
                predictions=UnlabeledPredictions(recipe, store, batches, run),
                training_dice=training_dice,
                identity=identity,
                label=label,
                keep_first_stage=before_baseline and shares_first_stage(recipe, baseline_of(recipe)),
            )
        except BaseException:
            if ranks.is_main():
                run.update_manifest({"status": "failed"})
            raise
        if ranks.count() == 1:
            return _finish(recipe, store, run, device, outcome, selector)
        ranks.on_main(lambda: _finish(recipe, store, run, device, outcome, selector) and None)
        return replace(outcome, warnings=warnings_of(run))


def _shared_store(checked: Callable[[], Store]) -> Store:
    """Return a checked store. Of several ranks, rank 0 checks or prepares the store, and the others open it."""
    if ranks.count() == 1:
        return checked()
    return open_store(Path(ranks.on_main(lambda: str(checked().path.absolute()))))


def _checked_store(recipe: Recipe, data: Data, run: RunFolder, start: WarmStart | None, *, resume: bool) -> Store:
    """Open or prepare the store, and raise a UserError if recipe, store and run folder do not fit."""
    _check_folder(run, recipe, resume)
    store = _store(recipe, data, run, None if start is None else start.store)
    if start is not None:
        start.check(store, recipe)
    _check_store(store, recipe, run)
    check_training_dice(recipe, store, store.path)
    _check_classes(recipe, len(store.classes))
    return store


def _begin(
    recipe: Recipe,
    store: Store,
    run: RunFolder,
    facts: dict[str, Any],
    stage: Stage,
    device: torch.device,
    *,
    resume: bool,
    after: RunFolder | None,
    start: WarmStart | None,
) -> tuple[str | None, bool] | None:
    """Start the run; return its identity and whether to resume, or None if it has finished."""
    _check_folder(run, recipe, resume)
    identity = _identity(recipe, store, run, start)
    if is_finished(run):
        return None
    begun_from = {} if start is None or run.exists else start.facts
    _write_manifest(run, facts | {"identity": identity} | begun_from)
    recipe.save(run.recipe_file)
    if "continued_from" in run.manifest() and not checkpoints_in(run.checkpoints):
        torch.manual_seed(recipe.seed)
        save_start(run, start, stage, device, identity)
        return identity, True
    return identity, resume or (after is not None and _take_first_stage(after, run, recipe, identity))


def is_finished(run: RunFolder) -> bool:
    """Return whether a run exists and has finished."""
    return run.exists and run.manifest().get("status") == "finished"


def _finish(
    recipe: Recipe, store: Store, run: RunFolder, device: torch.device, outcome: Outcome, selector: Selector | None
) -> Outcome:
    """Save the result. If training finished, score the labeled scans and warn if a class was not learned."""
    is_complete = outcome.stopped_by is None
    facts = _save_weights(run, outcome, selector) if is_complete else {}
    facts |= {"status": "finished" if is_complete else "stopped", "steps": outcome.steps}
    facts |= {"wall_seconds": round(outcome.seconds, 1), "seconds_per_step": outcome.seconds_per_step}
    run.update_manifest(facts)
    if not is_complete:
        return outcome
    return replace(outcome, warnings=check_learned(recipe, store, outcome.method, run, device))


def _take_first_stage(source: RunFolder, run: RunFolder, recipe: Recipe, identity: str | None) -> bool:
    """Copy checkpoint and log of the first stage of another run if its settings are equal. Return whether they are."""
    if not source.first_stage_file.is_file() or not shares_first_stage(load_recipe(source.recipe_file), recipe):
        return False
    state = load_checkpoint(source.first_stage_file)
    lines = [line for line in read_log(source.log_file) if line["global_step"] <= state["done"]]
    # the checkpoint is written last, because a resumed run with a checkpoint does not copy the log again
    write_text(run.log_file, "".join(json.dumps(line) + "\n" for line in lines))
    save_checkpoint(run.checkpoints, state["done"], state | {"run": identity})
    return True


def _store(recipe: Recipe, data: Data, run: RunFolder, earlier: Path | None) -> Store:
    """Open the store ``data``. For scans, open the store of a resumed run, or prepare a store for a new run.

    A new store reuses unchanged cases of the store ``earlier``.
    """
    if is_store(data):
        return open_store(data)
    if run.exists:
        store = _own_store(run)
        check_resumed_scans(recipe, data, run, store)
        return store
    layout = read_layout(data)
    check_scored(recipe, layout)
    check_training_dice(recipe, None, layout.root)
    dataset = layout.for_training(*recipe.batches.role_limits)
    if not dataset.problems:
        require_unlabeled(recipe, len(dataset.of("unlabeled")), dataset.root)
    if recipe.selection.reads_test_labels:
        dataset = replace(dataset, cases=dataset.cases + layout.of("test"))
    with run.lock():
        if earlier is not None and not is_store(run.store):
            link_cases(earlier, run.store)
        # a folder without a run may contain the store of an earlier attempt that failed: replace the store
        return prepare(dataset, run.store, recipe.data, overwrite=run.is_free)


def _own_store(run: RunFolder) -> Store:
    if not is_store(run.store):
        finding = "the run folder contains no store"
        raise UserError(Code.RUN_MISMATCH, run.path, finding, "pass the store that the run was started with as --data")
    return open_store(run.store)


def count_unlabeled(recipe: Recipe, data: Data, run: RunFolder) -> int:
    """Return the number of unlabeled scans that training would use, without preparing anything."""
    if is_store(data) or run.exists:
        return len(training_cases(open_store(data) if is_store(data) else _own_store(run), recipe.batches).unlabeled)
    return len(read_layout(data).for_training(*recipe.batches.role_limits).of("unlabeled"))


def _check_folder(run: RunFolder, recipe: Recipe, resume: bool) -> None:
    """Raise a UserError instead of overwriting a run or resuming it with other settings."""
    run.check_target(SINGLE_RUN, resume=resume)
    if run.exists and (changed := training_differences(recipe, load_recipe(run.recipe_file))):
        finding = f"the run was started with other settings ({first_few(changed)})"
        raise UserError(Code.RUN_MISMATCH, run.recipe_file, finding, RECIPE_REMEDY)


def check_settings(store: Store, recipe: Recipe) -> None:
    """Raise a UserError if a store was prepared with other settings than those of a recipe."""
    if other := store.settings_difference(recipe.data.model_dump(mode="json")):
        finding = f"the prepare settings of the store differ from recipe {recipe.name} ({other})"
        remedy = "prepare the scans into another folder with this recipe"
        raise UserError(Code.STORE_MISMATCH, store.path, finding, remedy)


def _check_store(store: Store, recipe: Recipe, run: RunFolder) -> None:
    check_settings(store, recipe)
    if run.exists and store.identity != run.training_manifest()["store"]["identity"]:
        finding, remedy = f"the run {run.path} was started with another store", "pass the same --data or another --out"
        raise UserError(Code.RUN_MISMATCH, store.path, finding, remedy)
    require_unlabeled(recipe, len(training_cases(store, recipe.batches).unlabeled), store.path)


def _check_classes(recipe: Recipe, classes: int) -> None:
    """Raise a UserError if ``decision`` or a list of classes does not fit the number of classes."""
    decisions = [recipe.inference.decision, *(stage.settings.get("decision") for stage in recipe.stages)]
    if "threshold" in decisions and classes != 2:
        finding = f"decision is threshold, which needs 2 classes, but the data have {classes}"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "set decision to argmax")
    listed: list[Any] = [recipe.inference.largest_component, recipe.inference.filtered_classes]
    listed += [stage.settings.get(key) for stage in recipe.stages for key in ("largest_component", "ignored_classes")]
    if unknown := [number for rule in listed if isinstance(rule, tuple | list) for number in rule if number >= classes]:
        finding = f"a setting lists class {unknown[0]}, but the data have classes 1 to {classes - 1}"
        raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "list only classes of the data")


def _batches(store: Store, recipe: Recipe, device: torch.device) -> Batches:
    """Return batches gathered from device memory, or read from disk if the scans do not fit."""
    cases, scored = training_cases(store, recipe.batches), scored_cases(recipe, store).values()
    used = [*cases.labeled, *(cases.unlabeled if uses_unlabeled(recipe) else ()), *chain(*scored)]
    needed = sum(prod(case.shape) * (2 * case.channels + 1) for case in used)  # bytes: float16 image, uint8 label
    free = free_memory(device) // (ranks.local_count() if device.type == "cpu" else 1)
    kind = Batches
    if needed > MEMORY_SHARE[device.type] * free:
        finding = "the scans need %.1f GiB and %s has %.1f GiB free for scans and training; reading batches from disk"
        logger.warning(f"%s: {finding}", store.path, needed / 2**30, device, free / 2**30)
        kind = DiskBatches
    return kind(store, recipe.batches, seed=recipe.seed, device=device, unlabeled=uses_unlabeled(recipe))


def _identity(recipe: Recipe, store: Store, run: RunFolder, start: WarmStart | None) -> str | None:
    """Return the hash of recipe, store and starting weights that ties checkpoints to this run.

    The hash is computed once when the run starts, because a later version may format the recipe differently. Runs of
    early versions have no identity.
    """
    if run.exists:
        known: str | None = run.training_manifest().get("identity")
        return known
    weights = "" if start is None else f"\n{start.weights_sha256}"
    return hashlib.sha256(f"{store.identity}\n{recipe.to_yaml()}{weights}".encode()).hexdigest()


def _facts(recipe: Recipe, store: Store, batches: Batches, device: torch.device) -> dict[str, Any]:
    network = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), torch.device("meta")).student
    return {
        "status": "running",
        "method": recipe.method,
        "recipe": recipe.name,
        "seed": recipe.seed,
        "store": {
            "path": str(store.path),
            "identity": store.identity,
            "classes": list(store.classes),
            "channels": store.channels,
            "labeled": batches.labeled.names,
            "unlabeled": batches.unlabeled.names if batches.unlabeled else [],
            "held_out": list(recipe.batches.held_out),
            "scored": {on: [case.name for case in cases] for on, cases in scored_cases(recipe, store).items()},
        },
        "versions": versions(),
        "device": str(device),
        "hardware": hardware_name(device),
        "precision": [
            effective_precision(recipe.loop.precision, METHODS[stage.method], device) for stage in recipe.stages
        ],
        "parameters": parameter_count(network),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": recipe.selection.protocol,
        **({"ranks": ranks.count()} if ranks.count() > 1 else {}),
    }


def _write_manifest(run: RunFolder, facts: dict[str, Any]) -> None:
    """Write the manifest; warn if device or versions changed since the run started."""
    before = run.training_manifest() if run.exists else facts
    current = {"device": facts["device"], **facts["versions"]}
    for name, old in {"device": before["device"], **before["versions"]}.items():
        if current.get(name) != old:
            logger.warning("%s: %s was %s and is now %s", run.path, name, old, current.get(name, "unknown"))
    was, now = before.get("precision"), facts["precision"]
    if not isinstance(was, list) or len(was) != len(now):
        # early versions did not record the precision
        was = ["unknown"] * len(now)
    precision = [
        old if old.split(", then ")[-1] == new else f"{old}, then {new}" for old, new in zip(was, now, strict=True)
    ]
    run.update_manifest({**facts, "started": before["started"], "precision": precision})


def _finished_outcome(run: RunFolder, stages: Sequence[Stage]) -> Outcome:
    """Return the outcome of a run that has finished, with its network loaded from disk."""
    facts, method = run.manifest(), stages[run.teacher_checks().trained_stage].build()
    load_weights(method, run.weights_file, facts.get("weights"))
    return Outcome(method, facts["steps"], None, facts["wall_seconds"], facts["seconds_per_step"], warnings_of(run))


def _save_weights(run: RunFolder, outcome: Outcome, selector: Selector | None) -> dict[str, Any]:
    """Save the reported student, and the best student if students were scored; return entries for the manifest."""
    save_weights(outcome.method.student.state_dict(), run.trained_file)
    facts: dict[str, Any] = {"weights": sha256_of(run.trained_file), "checkpoint": "last"}
    if selector is not None and selector.chosen is not None:
        facts |= {"checkpoint": selector.checkpoint, "selected_on": selector.chosen.on}
    best = None if selector is None else selector.best_to_save
    if best is None:
        return facts
    save_weights(best.student, run.best_file)
    return {**facts, "best": {**best.to_json(), "sha256": sha256_of(run.best_file)}}


def complete(
    recipe: Recipe,
    store: Store,
    run: RunFolder,
    device: torch.device,
    label: ProgressLabel = ONLY_RUN,
    after: RunFolder | None = None,
    before_baseline: bool = False,
) -> None:
    """Start or resume a run; do nothing if the run has finished with the same recipe and store.

    ``label`` appears in progress messages and in the message of a stopped run. A new run continues from the first
    stage of the run ``after``, if both have the same first stage. ``before_baseline`` keeps the first stage for the
    baseline.
    """
    if is_complete(recipe, store, run):
        return
    outcome = train_run(
        recipe, store.path, run, device, resume=run.exists, label=label, after=after, before_baseline=before_baseline
    )
    if after is not None:
        after.first_stage_file.unlink(missing_ok=True)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps, where=label.name)


def is_complete(recipe: Recipe, store: Store, run: RunFolder) -> bool:
    """Return whether a run has finished and has weights; raise a UserError if it used another recipe or store."""
    if not is_finished(run):
        return False
    _check_folder(run, recipe, resume=True)
    _check_store(store, recipe, run)
    return run.weights_file.is_file()
