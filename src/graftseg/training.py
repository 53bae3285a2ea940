"""A recipe and a store -> a run."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from graftseg.data.batches import Batches
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store, is_store, open_store
from graftseg.engine import Outcome, Stage, fit
from graftseg.environment import versions
from graftseg.errors import UserError
from graftseg.files import write_text
from graftseg.models import build_method, save_weights
from graftseg.networks import parameter_count
from graftseg.recipe import Recipe, differences, load_recipe
from graftseg.runs import RunFolder
from graftseg.validation import validator


def train_run(recipe: Recipe, data: Path, run: RunFolder, device: torch.device, *, resume: bool) -> Outcome:
    """Train into a folder that this process holds alone; what can be refused is refused before it is touched."""
    _check_folder(run, recipe, resume)
    store = open_store(data) if is_store(data) else prepare(read_layout(data), run.path / "store", recipe.data)
    _check_store(store, recipe, run)
    batches = Batches(store, recipe.batches, seed=recipe.seed, device=device)
    build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=device)
    stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
    validate = validator(recipe, store, device)
    with run.lock():
        _check_folder(run, recipe, resume)
        write_text(run.recipe_file, recipe.to_yaml())
        run.update_manifest(_facts(recipe, store, batches, device))
        began = monotonic()
        try:
            torch.manual_seed(recipe.seed)
            outcome = fit(stages, batches, run, recipe.loop, device=device, resume=resume, validate=validate)
        except BaseException:
            run.update_manifest({"status": "failed"})
            raise
        _finish(run, outcome, monotonic() - began)
    return outcome


def _check_folder(run: RunFolder, recipe: Recipe, resume: bool) -> None:
    """Neither overwrite a run by accident nor resume one with other settings."""
    if not run.exists:
        if not run.is_free:
            raise UserError(run.path, "exists and is not a run", "name an empty or new folder as --out")
        if resume:
            raise UserError(run.path, "there is no run to resume", "leave out --resume to begin one")
        return
    if not resume:
        raise UserError(run.path, "holds a run already", "add --resume to go on with it or name another --out")
    if changed := differences(recipe, load_recipe(run.recipe_file)):
        raise UserError(
            run.recipe_file,
            f"the run was begun with other settings ({', '.join(changed)})",
            "resume with the same recipe or name another --out",
        )


def _check_store(store: Store, recipe: Recipe, run: RunFolder) -> None:
    if store.settings != recipe.data.model_dump(mode="json"):
        raise UserError(
            store.path,
            f"the store was prepared otherwise than recipe {recipe.name} asks for",
            "prepare the scans into another folder with this recipe",
        )
    before = run.manifest()["store"]["identity"] if run.exists else store.identity
    if store.identity != before:
        raise UserError(store.path, "the store is not the one that the run began with", "give the same --data")


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
        },
        "versions": versions(),
        "device": str(device),
        "parameters": parameter_count(network),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "checkpoint": "last",
    }


def _finish(run: RunFolder, outcome: Outcome, seconds: float) -> None:
    finished = outcome.stopped_by is None
    if finished:
        save_weights(outcome.method, run.weights_file)
    before = run.manifest().get("wall_seconds", 0.0)
    run.update_manifest(
        {
            "status": "finished" if finished else "stopped",
            "steps": outcome.steps,
            "wall_seconds": round(before + seconds, 1),
            "seconds_per_step": outcome.seconds_per_step,
        }
    )
