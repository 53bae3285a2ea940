"""What is known of the runs of all folds together: what they share, and from where to where the rest goes."""

from collections.abc import Iterator, Sequence
from typing import Any

from graftseg.reporting.markup import short_path
from graftseg.reporting.notes import channels_of, counted, duration
from graftseg.reporting.provenance import Provenance


def fold_facts(
    folds: Sequence[dict[str, Any]], parts: Sequence[Sequence[str]], named: Provenance
) -> Iterator[tuple[str, str]]:
    """Names and values for a table; what is that of one fold, or of all of them, says so."""
    stores = [facts.get("store", {}) for facts in folds]
    yield "Folds", str(len(folds))
    yield "Method", _shared(facts.get("method", "") for facts in folds)
    yield "Recipe", _shared(facts.get("recipe", "") for facts in folds)
    yield "Status", _shared(facts.get("status", "") for facts in folds)
    yield "Checkpoint in each fold", _shared(facts.get("checkpoint", "") for facts in folds)
    yield "Classes", ", ".join(map(str, stores[0].get("classes", [])[1:]))
    yield "Labeled cases in all folds", counted(sum(map(len, parts)))
    yield "Labeled cases that a fold trains on", span([len(store.get("labeled", [])) for store in stores])
    yield "Unlabeled cases in each fold", span([len(store.get("unlabeled", [])) for store in stores])
    yield "Channels", counted(channels_of(folds[0]))
    yield "Data", named.data or _shared(short_path(str(store.get("path", ""))) for store in stores)
    yield "Test scans", named.scans
    yield "Data identity", _shared(str(store.get("identity", ""))[:16] for store in stores)
    yield "Seed", _shared(facts.get("seed", "") for facts in folds)
    yield "Steps in each fold", span([int(facts["steps"]) for facts in folds if facts.get("steps") is not None])
    yield from _times([float(facts["wall_seconds"]) for facts in folds if facts.get("wall_seconds") is not None])
    yield "Parameters of each network", _shared(counted(facts.get("parameters")) for facts in folds)
    yield "Device", _shared(facts.get("device", "") for facts in folds)
    yield (
        "Versions",
        _shared(", ".join(f"{name} {number}" for name, number in facts.get("versions", {}).items()) for facts in folds),
    )
    yield "First fold started", min((str(facts["started"]) for facts in folds if facts.get("started")), default="")


def span(numbers: Sequence[int]) -> str:
    """One number where all are the same, or from which to which they go."""
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return counted(low) if low == high else f"{counted(low)} to {counted(high)}"


def _times(seconds: Sequence[float]) -> Iterator[tuple[str, str]]:
    if seconds:
        low, high = duration(min(seconds)), duration(max(seconds))
        yield "Time of all folds", duration(sum(seconds))
        yield "Time of a fold", low if low == high else f"{low} to {high}"


def _shared(values: Iterator[Any]) -> str:
    """What all folds have, or all that there is among them, in order."""
    return "; ".join(dict.fromkeys(str(value) for value in values if str(value)))
