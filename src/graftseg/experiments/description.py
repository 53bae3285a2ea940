"""Descriptions of runs, stores, folders of scans and recipes as plain values."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from graftseg.core.devices import describe_machine
from graftseg.core.files import read_object
from graftseg.core.run_folder import RESUMABLE, RESUME, RunFolder, fold_states
from graftseg.data.layouts import read_layout
from graftseg.data.sources import Sources
from graftseg.data.store import is_store, open_store
from graftseg.experiments.records import is_record, read_record
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import load_recipe


def describe(what: str | Path | Sources) -> dict[str, Any]:
    """Describe a run, folds, a comparison of methods, a store, a folder of scans or a recipe."""
    if isinstance(what, Sources):
        return read_layout(what).description()
    path = Path(what)
    if is_store(path):
        return open_store(path).description()
    if is_record(path):
        return {"kind": "run", **read_record(path).facts}
    run = RunFolder(path)
    if run.folds_file.is_file():
        states = fold_states(run)
        return {"kind": "folds", **read_object(run.folds_file), "state": states, **_how_to_resume(states.values())}
    if run.compare_file.is_file():
        return {"kind": "comparison", **read_object(run.compare_file)}
    if run.exists:
        return {"kind": "run", **run.manifest(), "status": run.status, **_how_to_resume([run.status])}
    if path.is_dir():
        return read_layout(path).description()
    return {"kind": "recipe", **load_recipe(what).model_dump(mode="json")}


def doctor() -> dict[str, Any]:
    """Return versions, devices, free disk space and shipped recipes."""
    return describe_machine(Path.cwd()) | {"recipes": shipped_recipes()}


def _how_to_resume(states: Collection[str]) -> dict[str, str]:
    """Return a hint for ``info`` if training was interrupted or stopped and does not run now."""
    return {"resume": RESUME} if "running" not in states and set(RESUMABLE) & set(states) else {}
