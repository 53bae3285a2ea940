"""Descriptions of runs, stores, folders of scans, recipes and this machine: all facts, or a shorter version."""

import shutil
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import Any

from graftseg.core.devices import devices
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_object
from graftseg.core.run_folder import RESUMABLE, RESUME, RunFolder, fold_states
from graftseg.core.software import installed_extras, installed_packages
from graftseg.data.layouts import read_layout
from graftseg.data.scans import is_scan
from graftseg.data.sources import Sources
from graftseg.data.store import find_store, is_store, open_store
from graftseg.experiments.records import is_record, read_record
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.training.checkpoint import checkpoints_in, step_of

CASE_LISTS = ("labeled", "unlabeled", "held_out", "validation", "test")
LINE_WIDTH = 80
CLEARER_KEYS = {"labeled_dice": "dice_on_labeled_training_scans"}
"""Clearer names for keys of ``run.json``, for the shorter description."""


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
    if run.manifest_file.is_file():
        facts, progress = run.manifest() | {"status": run.status}, _progress(run)
        others = {key: value for key, value in facts.items() if key not in progress}
        return {"kind": "run", **others, **_how_to_resume([run.status]), **progress}
    if path.is_dir():
        return read_layout(path).description()
    if path.is_file() and is_scan(path):
        remedy = "pass a run, a store, a recipe, or a folder with imagesTr/ and labelsTr/"
        raise UserError(Code.NOT_A_FOLDER, path, "a single scan", remedy)
    return {"kind": "recipe", **load_recipe(what).model_dump(mode="json")}


def doctor() -> dict[str, Any]:
    """Return installed software, devices, free disk space and shipped recipes."""
    return {
        "versions": installed_packages(),
        "extras": installed_extras(),
        "devices": devices(),
        "disk_free_gib": round(shutil.disk_usage(Path.cwd()).free / 2**30, 1),
        "recipes": shipped_recipes(),
    }


def _how_to_resume(states: Collection[str]) -> dict[str, str]:
    """Return a hint for ``info`` if training was interrupted or stopped and does not run now."""
    return {"resume": RESUME} if "running" not in states and set(RESUMABLE) & set(states) else {}


def _progress(run: RunFolder) -> dict[str, Any]:
    """Return saved and planned steps of a single run that was interrupted or stopped, and the command to resume it.

    The command is left out for a fold, a seed, a baseline or a compared method, whose parent folder is resumed instead.
    It is also left out for a continued run and if the store is missing. If the recipe is damaged, nothing is returned.
    """
    if run.status not in RESUMABLE:
        return {}
    try:
        recipe = load_recipe(run.recipe_file)
        planned = sum(stage.steps for stage in recipe.stages) + sum(check.added for check in run.teacher_checks())
    except UserError:
        return {}
    saved = max(map(step_of, checkpoints_in(run.checkpoints)), default=0)
    progress: dict[str, Any] = {"steps": saved, "planned_steps": planned}
    parent = RunFolder(run.path.resolve().parent)
    is_part = parent.exists or parent.folds_file.is_file() or parent.compare_file.is_file() or bool(parent.seeds)
    if is_part or "continued_from" in run.manifest():
        return progress
    try:
        return progress | {"resume_command": _resume_command(run, recipe, find_store(run))}
    except UserError:
        return progress


def _resume_command(run: RunFolder, recipe: Recipe, store: Path) -> str:
    facts = run.manifest()
    words = ["graftseg", "train", str(run.recipe_file), "--data", str(store), "--out", str(run.path), "--resume"]
    with_baseline = facts.get("with_baseline", recipe.baseline)
    if with_baseline != recipe.baseline:
        words.append("--baseline" if with_baseline else "--no-baseline")
    if recipe.folds:
        words += ["--folds", "0"]
    if (count := facts.get("ranks", 1)) > 1:
        words += ["--devices", str(count)]
    if str(facts.get("device")) == "cpu":
        words += ["--device", "cpu"]
    return " ".join(map(quote, words))


def brief(facts: dict[str, Any]) -> dict[str, Any]:
    """Return a shorter version of a description."""
    if facts.get("kind") == "recipe":
        # a recipe stays complete, so that users can save and train it
        return {key: value for key, value in facts.items() if key != "kind"}
    if facts.get("kind") != "folds":
        # without dataset.json, the classes of a folder of scans have no names
        known = {key: value for key, value in facts.items() if (key, value) != ("classes", {})}
        return {CLEARER_KEYS.get(key, key): _with_counts(key, value) for key, value in known.items()}
    left_out = ("format", "version", "figures", "baseline", "beside_baseline", "folds")
    short = {key: value for key, value in facts.items() if key not in left_out}
    sizes = [len(fold["held_out"]) for fold in facts["folds"]]
    return short | {"folds": len(sizes), "held_out_by_fold": sizes} | _dice(facts)


def machine_lines(facts: dict[str, Any]) -> list[str]:
    """Return the output of ``doctor`` as short lines. Recipes are counted by folder."""
    counts = Counter(name.partition("/")[0] for name in facts["recipes"])
    texts = {
        "versions": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        **{f"extra {name}": installed for name, installed in facts["extras"].items()},
        "devices": ", ".join(facts["devices"]).replace(" 1 threads", " 1 thread"),
        "free disk": f"{facts['disk_free_gib']} GiB",
        "recipes": ", ".join(f"{folder} ({count})" for folder, count in counts.items()),
        "all recipes": "graftseg doctor --recipes",
    }
    return [
        line for name, text in texts.items() for line in wrap(f"{name}: {text}", LINE_WIDTH, subsequent_indent="  ")
    ]


def _with_counts(key: str, value: Any) -> Any:
    """Replace lists of cases by their lengths, also in nested values."""
    if isinstance(value, dict):
        return {inner_key: _with_counts(inner_key, inner) for inner_key, inner in value.items()}
    return len(value) if key in CASE_LISTS and isinstance(value, list) else value


def _dice(facts: dict[str, Any]) -> dict[str, Any]:
    """Return Dice of the run and its baseline in percent by class, and the difference with its interval."""
    dice: dict[str, Any] = {}
    for title, part in (("dice_percent", "figures"), ("dice_percent_of_baseline", "baseline")):
        if part in facts:
            means = {name: statistic["mean"] for name, statistic in facts[part]["dice"].items()}
            dice[title] = {name: None if mean is None else round(mean, 2) for name, mean in means.items()}
    if "beside_baseline" in facts:
        dice["dice_difference"] = {
            name: f"{effect['difference']:+.2f}"
            + ("" if effect["low"] is None else f" ({effect['low']:+.2f} to {effect['high']:+.2f})")
            for name, effect in facts["beside_baseline"]["dice"].items()
        }
    return dice
