"""Facts and settings of a run or of all folds, as a section of a page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from graftseg.core.errors import UserError
from graftseg.core.phrases import duration
from graftseg.core.predictions import read_manifest
from graftseg.data.store import Store, is_store
from graftseg.evaluation.testset import IMAGES
from graftseg.recipes.recipe import changes_of, first_few, parse_recipe
from graftseg.reporting.missing import TRAIN_COMMAND, Missing
from graftseg.reporting.rendering import render
from graftseg.reporting.results import Results
from graftseg.reporting.text import folder_name, short_path, shown_text, with_commas


@dataclass(frozen=True)
class Provenance:
    """The folder names of training data and test scans, without full paths. Unknown names are empty."""

    data: str = ""
    scans: str = ""


FOLD_NAMES = {
    "Checkpoint": "Checkpoint in each fold",
    "Labeled cases": "Labeled training cases in each fold",
    "Unlabeled cases": "Unlabeled cases in each fold",
    "Steps": "Steps in each fold",
    "Time": "Time of all folds",
    "Parameters": "Parameters of each network",
    "Started": "First fold started",
}
"""Names of facts on the page of a cross-validation, by their names on the page of a run."""


def provenance_of(store: Store | None, results: Results | None) -> Provenance:
    """Return the names from the store of the run and the manifest of its predictions."""
    name = "" if store is None else folder_name(Path(store.root))
    manifest = None if results is None else read_manifest(results.folder, "predict again")
    if results is None or manifest is None:
        return Provenance(name)
    files = [results.folder / path for case in manifest.cases for path in case.images]
    folders = {file.parent.parent if is_store(file.parent.parent) else file.parent for file in files}
    if len(folders) != 1:
        return Provenance(name)
    (folder,) = folders
    if is_store(folder):
        return Provenance(name, f"test cases of {name or 'the store'}")
    data = folder_name(folder.parent) if folder.name == IMAGES else ""
    return Provenance(name, f"{data}/{folder.name}" if data else folder_name(folder))


def run_section(recipe: dict[str, Any] | None, rows: Iterable[tuple[str, str]]) -> Markup:
    """Render the facts of a run, and its settings in a collapsed table."""
    facts = []
    for name, value in rows:
        facts.append((name, value))
        if name == "Recipe":
            facts.append(("Settings changed from this recipe", changed_settings(recipe)))
    facts = [(name, value) for name, value in facts if value]
    if recipe is None:
        return render("run", empty=Missing("The run folder has no recipe.yaml.", *TRAIN_COMMAND), facts=facts)
    return render("run", facts=facts, settings=[*flatten(recipe)])


def case_counts(facts: dict[str, Any]) -> str:
    """Return a phrase with the number of labeled cases of a run, and of unlabeled cases if it used any."""
    store = facts.get("store", {})
    labeled, unlabeled = len(store.get("labeled", [])), len(store.get("unlabeled", []))
    used = f"{labeled:,} labeled" + (f" and {unlabeled:,} unlabeled" if unlabeled else "")
    return f"{used} {'case' if (unlabeled or labeled) == 1 else 'cases'}"


def run_facts(runs: Sequence[dict[str, Any]], names: Provenance) -> Iterator[tuple[str, str]]:
    """Yield the facts of a run by name. For several runs, the values contain those of all runs."""
    stores = [facts.get("store", {}) for facts in runs]
    yield "Method", _distinct(runs, "method")
    yield "Recipe", _joined(_value_text(facts.get("recipe", "")) for facts in runs)
    yield "Status", _distinct(runs, "status")
    yield "Selection protocol", _distinct(runs, "protocol")
    yield "Checkpoint", _distinct(runs, "checkpoint")
    yield "Classes", ", ".join(map(str, stores[0].get("classes", [])[1:]))
    yield "Labeled cases", case_span(runs, "labeled")
    unlabeled = case_span(runs, "unlabeled")
    yield "Unlabeled cases", "none" if unlabeled == "0" else unlabeled
    yield "Channels", with_commas(channels_of(runs[0]))
    yield "Data", names.data or _joined(short_path(str(store.get("path", ""))) for store in stores)
    yield "Test scans", names.scans
    yield "Data identity", _joined(str(store.get("identity", ""))[:16] for store in stores)
    yield "Seed", _distinct(runs, "seed")
    yield "Steps", _span([int(facts["steps"]) for facts in runs if facts.get("steps") is not None])
    seconds = _seconds(runs)
    yield "Time", duration(sum(seconds)) if seconds else ""
    yield "Parameters", _joined(with_commas(facts.get("parameters")) for facts in runs)
    yield "Device", _distinct(runs, "device")
    versions = [facts.get("versions", {}).items() for facts in runs]
    yield "Versions", _joined(", ".join(f"{name} {number}" for name, number in items) for items in versions)
    yield "Started", min((str(facts["started"]) for facts in runs if facts.get("started")), default="")


def fold_facts(
    folds: Sequence[dict[str, Any]], names: Provenance, held_out: Sequence[Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the facts of a cross-validation by name. ``held_out`` are the held-out cases of each fold."""
    yield "Folds", str(len(held_out))
    for name, value in run_facts(folds, names):
        if name == "Labeled cases":
            yield "Labeled cases in all folds", with_commas(sum(map(len, held_out)))
        if name != "Selection protocol":
            yield FOLD_NAMES.get(name, name), value
        if name == "Time" and (seconds := _seconds(folds)):
            shortest, longest = duration(min(seconds)), duration(max(seconds))
            yield "Time of a fold", shortest if shortest == longest else f"{shortest} to {longest}"


def _seconds(runs: Sequence[dict[str, Any]]) -> list[float]:
    return [float(facts["wall_seconds"]) for facts in runs if facts.get("wall_seconds") is not None]


def channels_of(facts: dict[str, Any]) -> int | None:
    """Return the number of channels of a scan, if known."""
    count: int | None = facts.get("store", {}).get("channels")
    return count


def case_span(runs: Sequence[dict[str, Any]], kind: str) -> str:
    """Return the number of labeled or unlabeled cases per run. It is a range if the runs differ."""
    return _span([len(facts.get("store", {}).get(kind, [])) for facts in runs])


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return with_commas(low) if low == high else f"{with_commas(low)} to {with_commas(high)}"


def _distinct(runs: Sequence[dict[str, Any]], name: str) -> str:
    return _joined(str(facts.get(name, "")) for facts in runs)


def _joined(values: Iterable[str]) -> str:
    """Join the distinct values of all runs, in order."""
    return "; ".join(dict.fromkeys(value for value in values if value))


def changed_settings(recipe: dict[str, Any] | None) -> str:
    """Return the settings that differ from the shipped recipe of the same name, or an empty string."""
    try:
        return first_few(changes_of(parse_recipe(recipe or {}, "recipe.yaml")))
    except UserError:
        return ""  # an older version may have written a recipe that is invalid now


def flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted keys with their values as text, in the order of the recipe."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from flatten({str(index): item for index, item in enumerate(value)}, f"{name}.")
        else:
            yield name, _value_text(value)


def _value_text(value: Any) -> str:
    """Return the value of a setting as text. A path is shortened."""
    if isinstance(value, list):
        return ", ".join(_value_text(item) for item in value) or "none"
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value not in (None, {}) else "none"
