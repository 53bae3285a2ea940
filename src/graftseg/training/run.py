"""A recipe and a store -> a run."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graftseg.core.devices import free_memory, hardware_name, versions
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import sha256_of, write_bytes, write_text
from graftseg.core.run_folder import RunFolder, fold_count
from graftseg.data.batches import Batches, training_cases
from graftseg.data.disk_batches import DiskBatches
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.inference.model import build_method, load_weights, save_student, save_weights, student_bytes
from graftseg.methods import METHODS, Method
from graftseg.networks import parameter_count
from graftseg.recipes.baseline import require_unlabeled, uses_unlabeled
from graftseg.recipes.recipe import SAME, Recipe, differences, first_few, load_recipe
from graftseg.training.checkpoint import Saved, saved_last
from graftseg.training.loop import Outcome, Stage, fit
from graftseg.training.recorder import ALONE, Leg
from graftseg.training.selection import Selector, build_selector, check_scored, scored_cases
from graftseg.training.step import precise
from graftseg.training.unlabeled_foreground import Sightings

SHARE = {"cpu": 1.0, "cuda": 0.6}
"""Part of the free memory of a device that scans may take; on a GPU the rest is for networks and activations."""
FULL = ("can't allocate memory", "out of memory", "Storage size calculation overflowed", "Overflow when unpacking long")
"""What PyTorch says where there is too little memory, or where no machine could have as much."""
logger = logging.getLogger(__name__)
Student = Mapping[str, Tensor]


def train_run(
    recipe: Recipe, data: Data, run: RunFolder, device: torch.device, *, resume: bool, leg: Leg = ALONE
) -> Outcome:
    """Train into a folder that this process holds alone; what can be refused is refused before it is touched."""
    _check_folder(run, recipe, resume)
    store = _store(recipe, data, run)
    _check_store(store, recipe, run)
    _check_classes(recipe, len(store.classes))
    with _told_of_full_memory(device):
        return _trained(recipe, store, run, device, resume=resume, leg=leg)


def _trained(recipe: Recipe, store: Store, run: RunFolder, device: torch.device, *, resume: bool, leg: Leg) -> Outcome:
    batches = _batches(store, recipe, device)
    build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=device)
    stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
    selector = build_selector(recipe, store, device)
    facts = _facts(recipe, store, batches, device)
    with run.lock():
        _check_folder(run, recipe, resume)
        identity = _identity(recipe, store, run)
        if run.exists and run.manifest().get("status") == "finished":
            return _as_it_ended(run, stages, selector, device, identity)
        _begin(run, recipe, facts | {"identity": identity})
        try:
            torch.manual_seed(recipe.seed)
            scout = Sightings(recipe, store, batches, run)
            outcome = fit(
                stages,
                batches,
                run,
                recipe.loop,
                device=device,
                resume=resume,
                selector=selector,
                scout=scout,
                identity=identity,
                leg=leg,
            )
        except BaseException:
            run.update_manifest({"status": "failed"})
            raise
        _finish(run, outcome, selector)
    return outcome


@contextmanager
def _told_of_full_memory(device: torch.device) -> Iterator[None]:
    """Networks, scans or activations that the device cannot hold become a sentence."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        is_full = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(sign in str(error) for sign in FULL)
        if not is_full:
            raise
        remedy = "lower batches.labeled, batches.unlabeled, batches.patch or network.width in a new run"
        raise UserError(Code.OUT_OF_MEMORY, device.type, "the memory of the device is full", remedy) from None


def _store(recipe: Recipe, data: Data, run: RunFolder) -> Store:
    """The prepared store: given, or made from scans; a run that goes on keeps the store that it began with."""
    if is_store(data):
        return open_store(data)
    if run.exists:
        return _own_store(run)
    layout = read_layout(data)
    check_scored(recipe, layout)
    dataset = layout.for_training(*_limits(recipe))
    if not dataset.problems:
        require_unlabeled(recipe, len(dataset.of("unlabeled")), dataset.root)
    if recipe.selection.opens_test:
        dataset = replace(dataset, cases=dataset.cases + layout.of("test"))
    with run.lock():
        # what an attempt left that was refused is nobody's
        return prepare(dataset, run.store, recipe.data, anew=run.is_free)


def _own_store(run: RunFolder) -> Store:
    if not is_store(run.store):
        raise UserError(
            Code.RUN_MISMATCH,
            run.path,
            "the run has no store of its own",
            "give it the store that it began with as --data",
        )
    return open_store(run.store)


def unlabeled_cases(recipe: Recipe, data: Data, run: RunFolder) -> int:
    """How many scans a training would use without labels; nothing is prepared for the answer."""
    if is_store(data) or run.exists:
        return len(training_cases(open_store(data) if is_store(data) else _own_store(run), recipe.batches).unlabeled)
    return len(read_layout(data).for_training(*_limits(recipe)).of("unlabeled"))


def _limits(recipe: Recipe) -> tuple[int | None, int, tuple[str, ...]]:
    return recipe.batches.labeled_cases, recipe.batches.validation_cases, recipe.batches.held_out


def _check_folder(run: RunFolder, recipe: Recipe, resume: bool) -> None:
    """Neither overwrite a run by accident nor resume one with other settings."""
    if not run.exists:
        _refuse_several(run)
        if not run.is_free:
            raise UserError(
                Code.TARGET_EXISTS, run.path, "exists and is not a run", "name an empty or new folder as --out"
            )
        if resume:
            raise UserError(
                Code.RUN_UNFINISHED, run.path, "there is no run to resume", "leave out --resume to begin one"
            )
        return
    if not resume:
        raise UserError(
            Code.TARGET_EXISTS, run.path, "holds a run already", "add --resume to go on with it or name another --out"
        )
    if changed := differences(recipe, load_recipe(run.recipe_file)):
        raise UserError(
            Code.RUN_MISMATCH,
            run.recipe_file,
            f"the run was begun with other settings ({first_few(changed)})",
            SAME,
        )


def _refuse_several(run: RunFolder) -> None:
    """Folds and seeds are gone on with in their own way."""
    if count := fold_count(run):
        more = f"add --folds {count} --resume to go on with them, or name another --out"
        raise UserError(Code.TARGET_EXISTS, run.path, "holds folds, not a single run", more)
    if run.seeds:
        more = "add --seeds to go on with them, or name another --out"
        raise UserError(Code.TARGET_EXISTS, run.path, "holds runs with several seeds, not a single run", more)


def _check_store(store: Store, recipe: Recipe, run: RunFolder) -> None:
    if other := store.settings_difference(recipe.data.model_dump(mode="json")):
        raise UserError(
            Code.STORE_MISMATCH,
            store.path,
            f"the store was prepared otherwise than recipe {recipe.name} asks for ({other})",
            "prepare the scans into another folder with this recipe",
        )
    before = run.begun()["store"]["identity"] if run.exists else store.identity
    if store.identity != before:
        raise UserError(
            Code.RUN_MISMATCH, store.path, "the store is not the one that the run began with", "give the same --data"
        )
    require_unlabeled(recipe, len(training_cases(store, recipe.batches).unlabeled), store.path)


def _check_classes(recipe: Recipe, classes: int) -> None:
    """A threshold decides between two classes, and components are those of classes that there are."""
    decisions = [recipe.inference.decision, *(stage.settings.get("decision") for stage in recipe.stages)]
    if "threshold" in decisions and classes != 2:
        raise UserError(
            Code.RECIPE_MISMATCH,
            f"recipe {recipe.name}",
            f"decision is threshold and there are {classes} classes",
            "use decision: argmax",
        )
    rules = [recipe.inference.largest_component, *(stage.settings.get("largest_component") for stage in recipe.stages)]
    if unknown := [number for rule in rules if isinstance(rule, tuple | list) for number in rule if number >= classes]:
        finding = f"largest_component names class {unknown[0]} and there are the classes 1 to {classes - 1}"
        raise UserError(Code.RUN_MISMATCH, f"recipe {recipe.name}", finding, "name classes of the data")


def _batches(store: Store, recipe: Recipe, device: torch.device) -> Batches:
    """Batches out of the memory of the device, or off the disk where the scans would leave too little of it."""
    cases, scored = training_cases(store, recipe.batches), scored_cases(recipe, store).values()
    used = [*cases.labeled, *(cases.unlabeled if uses_unlabeled(recipe) else ()), *chain(*scored)]
    needed, free = sum(prod(case.shape) * (2 * case.channels + 1) for case in used), free_memory(device)
    kind = Batches
    if needed > SHARE[device.type] * free:
        finding = "the scans need %.1f GiB and %s has %.1f GiB free; batches are read from disk as they are needed"
        logger.warning(f"%s: {finding}", store.path, needed / 2**30, device, free / 2**30)
        kind = DiskBatches
    return kind(store, recipe.batches, seed=recipe.seed, device=device, unlabeled=uses_unlabeled(recipe))


def _identity(recipe: Recipe, store: Store, run: RunFolder) -> str | None:
    """What tells the checkpoints of this run from another's: a hash of its recipe and store as they were at its start.

    It is kept and not made again, since a later version may write the same recipe otherwise. A run that is older than
    that has none.
    """
    if run.exists:
        known: str | None = run.begun().get("identity")
        return known
    return hashlib.sha256(f"{store.identity}\n{recipe.to_yaml()}".encode()).hexdigest()


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
        "precision": [precise(recipe.loop.precision, METHODS[stage.method], device) for stage in recipe.stages],
        "parameters": parameter_count(network),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": recipe.selection.protocol,
    }


def _begin(run: RunFolder, recipe: Recipe, facts: dict[str, Any]) -> None:
    """Write down what is run; a run that goes on elsewhere than it began says so."""
    before = run.begun() if run.exists else facts
    for key in ("device", "versions"):
        if before[key] != facts[key]:
            logger.warning("%s: %s was %s and is now %s", run.path, key, before[key], facts[key])
    was, now = before.get("precision"), facts["precision"]
    if not isinstance(was, list) or len(was) != len(now):
        # begun before runs told it
        was = ["unknown"] * len(now)
    precision = [_one_after_another(str(one), two) for one, two in zip(was, now, strict=True)]
    run.update_manifest({**facts, "started": before["started"], "precision": precision})
    write_text(run.recipe_file, recipe.to_yaml())


def _one_after_another(was: str, now: str) -> str:
    """What a run computed in, where it went on in another precision than it began with."""
    return was if was.split(", then ")[-1] == now else f"{was}, then {now}"


def _finish(run: RunFolder, outcome: Outcome, selector: Selector | None) -> None:
    kept = _keep_weights(run, outcome, selector) if outcome.stopped_by is None else {}
    run.update_manifest(
        {
            **kept,
            "status": "finished" if outcome.stopped_by is None else "stopped",
            "steps": outcome.steps,
            "wall_seconds": round(outcome.seconds, 1),
            "seconds_per_step": outcome.seconds_per_step,
        }
    )


def _as_it_ended(
    run: RunFolder, stages: Sequence[Stage], selector: Selector | None, device: torch.device, identity: str | None
) -> Outcome:
    """A run that has ended: nothing of it is trained again, and networks whose files are gone are written once more."""
    facts, method = run.manifest(), stages[-1].build()
    if not run.weights_file.is_file() or (facts.get("best") and not run.best_file.is_file()):
        try:
            saved = saved_last(run.checkpoints, device, [stage.settings.steps for stage in stages], identity)
            found = None if saved is None else _networks_of(saved, method, selector)
        except UserError as error:
            found, why = None, f"the last checkpoint cannot give it again ({error.finding})"
        else:
            why = "so is the last checkpoint, from which it could be written again"
        if found is not None:
            _write_missing(run, facts, found)
        elif not run.weights_file.is_file():
            remedy = "restore one of the two, or train anew into another --out"
            raise UserError(
                Code.WEIGHTS_MISSING, run.weights_file, f"the trained network is missing, and {why}", remedy
            )
    load_weights(method, run.weights_file, facts.get("weights"))
    return Outcome(
        method, facts.get("steps") or 0, None, facts.get("wall_seconds") or 0.0, facts.get("seconds_per_step") or {}
    )


def _networks_of(saved: Saved, method: Method, selector: Selector | None) -> tuple[Student, Student | None]:
    """The reported student and, where students were scored, the best one, as the last checkpoint has them."""
    with saved.loading():
        method.load_state_dict(saved.state["method"])
        if selector is None:
            return method.student.state_dict(), None
        selector.load_state(saved.state.get("selection") or {})
        selector.rewind(method, {}, saved.state["stage"])
    return method.student.state_dict(), None if selector.record is None else selector.record.student


def _write_missing(run: RunFolder, facts: Mapping[str, Any], networks: tuple[Student, Student | None]) -> None:
    """Write networks of a run that has ended once more where their files are gone; they are what they were."""
    reported, best = networks
    if not run.weights_file.is_file():
        _write_again(run.weights_file, reported, facts.get("weights"))
    if best is not None and facts.get("best") and not run.best_file.is_file():
        _write_again(run.best_file, best, facts["best"]["sha256"])


def _write_again(path: Path, student: Student, sha256: str | None) -> None:
    content = student_bytes(student)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        finding = "the file is missing, and the last checkpoint gives another network than the run had"
        raise UserError(Code.RECIPE_MISMATCH, path, finding, "restore it, or train anew into another --out")
    write_bytes(path, content)
    logger.warning("%s: was missing and is written again from the last checkpoint", path)


def _keep_weights(run: RunFolder, outcome: Outcome, selector: Selector | None) -> dict[str, Any]:
    """Write the reported student and, where students were scored, the best one; returns what the manifest says."""
    save_weights(outcome.method, run.weights_file)
    facts = {"weights": sha256_of(run.weights_file), "checkpoint": "last" if selector is None else selector.checkpoint}
    best = None if selector is None else selector.record
    if best is None:
        return facts
    save_student(best.student, run.best_file)
    return {**facts, "best": {**best.facts(), "sha256": sha256_of(run.best_file)}}


def complete(recipe: Recipe, store: Store, run: RunFolder, device: torch.device, leg: Leg = ALONE) -> None:
    """Train, or go on where the training was stopped; a run that has ended stays if it is what would be trained.

    ``leg`` is what a stop is said to have been in, and what its progress tells of.
    """
    if is_complete(recipe, store, run):
        return
    outcome = train_run(recipe, store.path, run, device, resume=run.exists, leg=leg)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps, where=leg.name)


def is_complete(recipe: Recipe, store: Store, run: RunFolder) -> bool:
    """Whether a run has ended and its network is there; one that is not what would be trained now is refused."""
    if not run.exists or run.manifest().get("status") != "finished":
        return False
    if other := differences(recipe, load_recipe(run.recipe_file)):
        finding = f"the run was trained with other settings ({first_few(other)})"
        raise UserError(Code.RUN_MISMATCH, run.recipe_file, finding, SAME)
    if run.begun()["store"]["identity"] != store.identity:
        raise UserError(
            Code.RUN_MISMATCH,
            run.path,
            f"the run was not trained on {store.path}",
            "give the same --data or another --out",
        )
    return run.weights_file.is_file()
