"""Facts and settings of a run, or of all folds, as rows of a table."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from graftseg.core.durations import duration
from graftseg.core.errors import UserError
from graftseg.recipes.changes import changes_of
from graftseg.recipes.recipe import first_few, parse_recipe
from graftseg.reporting.provenance import Provenance
from graftseg.reporting.text import counted, short_path, shown_text


def case_counts(facts: dict[str, Any]) -> str:
    """Return the number of labeled and, if it used any, unlabeled cases of a run as a phrase."""
    store = facts.get("store", {})
    labeled, unlabeled = len(store.get("labeled", [])), len(store.get("unlabeled", []))
    used = f"{labeled:,} labeled" + (f" and {unlabeled:,} unlabeled" if unlabeled else "")
    return f"{used} {'case' if (unlabeled or labeled) == 1 else 'cases'}"


def run_facts(facts: dict[str, Any], data: str = "", scans: str = "") -> Iterator[tuple[str, str]]:
    """Yield the facts of a run by name; ``data`` and ``scans`` are the names of the data and the test scans."""
    store, versions = facts.get("store", {}), facts.get("versions", {})
    yield "Method", str(facts.get("method", ""))
    yield "Recipe", _value_text(facts.get("recipe", ""))
    yield "Status", str(facts.get("status", ""))
    yield "Protocol", str(facts.get("protocol", ""))
    yield "Checkpoint", str(facts.get("checkpoint", ""))
    yield "Classes", ", ".join(map(str, store.get("classes", [])[1:]))
    yield "Labeled cases", f"{len(store.get('labeled', [])):,}"
    yield "Unlabeled cases", f"{len(store.get('unlabeled', [])):,}" if store.get("unlabeled") else "none"
    yield "Channels", counted(channels_of(facts))
    yield "Data", data or short_path(str(store.get("path", "")))
    yield "Test scans", scans
    yield "Data identity", str(store.get("identity", ""))[:16]
    yield "Seed", str(facts.get("seed", ""))
    yield "Steps", counted(facts.get("steps"))
    yield "Time", "" if facts.get("wall_seconds") is None else duration(float(facts["wall_seconds"]))
    yield "Parameters", counted(facts.get("parameters"))
    yield "Device", str(facts.get("device", ""))
    yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "Started", str(facts.get("started", ""))


def channels_of(facts: dict[str, Any]) -> int | None:
    """Return the number of channels of a scan, if known."""
    count = facts.get("store", {}).get("channels")
    return count if isinstance(count, int) else None


def fold_facts(
    folds: Sequence[dict[str, Any]], parts: Sequence[Sequence[str]], names: Provenance
) -> Iterator[tuple[str, str]]:
    """Yield the facts of all folds by name."""
    stores = [facts.get("store", {}) for facts in folds]
    yield "Folds", str(len(folds))
    yield "Method", _distinct(facts.get("method", "") for facts in folds)
    yield "Recipe", _distinct(facts.get("recipe", "") for facts in folds)
    yield "Status", _distinct(facts.get("status", "") for facts in folds)
    yield "Checkpoint in each fold", _distinct(facts.get("checkpoint", "") for facts in folds)
    yield "Classes", ", ".join(map(str, stores[0].get("classes", [])[1:]))
    yield "Labeled cases in all folds", counted(sum(map(len, parts)))
    yield "Labeled training cases in each fold", span([len(store.get("labeled", [])) for store in stores])
    yield "Unlabeled cases in each fold", span([len(store.get("unlabeled", [])) for store in stores])
    yield "Channels", counted(channels_of(folds[0]))
    yield "Data", names.data or _distinct(short_path(str(store.get("path", ""))) for store in stores)
    yield "Test scans", names.scans
    yield "Data identity", _distinct(str(store.get("identity", ""))[:16] for store in stores)
    yield "Seed", _distinct(facts.get("seed", "") for facts in folds)
    yield "Steps in each fold", span([int(facts["steps"]) for facts in folds if facts.get("steps") is not None])
    yield from _times([float(facts["wall_seconds"]) for facts in folds if facts.get("wall_seconds") is not None])
    yield "Parameters of each network", _distinct(counted(facts.get("parameters")) for facts in folds)
    yield "Device", _distinct(facts.get("device", "") for facts in folds)
    yield (
        "Versions",
        _distinct(
            ", ".join(f"{name} {number}" for name, number in facts.get("versions", {}).items()) for facts in folds
        ),
    )
    yield "First fold started", min((str(facts["started"]) for facts in folds if facts.get("started")), default="")


def span(numbers: Sequence[int]) -> str:
    """Return the range of some numbers, or the number if all are equal."""
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return counted(low) if low == high else f"{counted(low)} to {counted(high)}"


def _times(seconds: Sequence[float]) -> Iterator[tuple[str, str]]:
    if seconds:
        low, high = duration(min(seconds)), duration(max(seconds))
        yield "Time of all folds", duration(sum(seconds))
        yield "Time of a fold", low if low == high else f"{low} to {high}"


def _distinct(values: Iterator[Any]) -> str:
    """Return the different values of all folds, in order."""
    return "; ".join(dict.fromkeys(str(value) for value in values if str(value)))


def with_variation(rows: Iterable[tuple[str, str]], recipe: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield rows, with the settings that differ from the shipped recipe after the row of the recipe."""
    for name, value in rows:
        yield name, value
        if name == "Recipe":
            yield "Settings changed from this recipe", variation_of(recipe)


def variation_of(recipe: dict[str, Any] | None) -> str:
    """Return the settings that differ from the shipped recipe of the same name; empty if there is no such recipe."""
    try:
        return first_few(changes_of(parse_recipe(recipe or {}, "recipe.yaml")))
    except UserError:
        # recipes of runs of an older version may be invalid today
        return ""


def flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted keys with their values as text, in the order of the recipe."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from flatten({str(place): item for place, item in enumerate(value)}, f"{name}.")
        else:
            yield name, _value_text(value)


def _value_text(value: Any) -> str:
    """Return the value of a setting as text; a path is shortened."""
    if isinstance(value, list):
        return ", ".join(_value_text(item) for item in value) or "none"
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value not in (None, {}) else "none"
