"""What was run, with which settings, and how the figures of the page are to be read."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graftseg.evaluation.scores import Evaluation
from graftseg.reporting.glossary import glossary
from graftseg.reporting.markup import Html, looks_like_path, missing, section, short_path, table, tag
from graftseg.reporting.variation import with_variation

MEANINGS = {
    "Dice": "twice the overlap of prediction and reference, divided by the sum of their sizes.",
    "Jaccard": "the overlap divided by the union of the two.",
    "95HD": (
        "95th percentile of the distances between the two surfaces, both directions pooled. Some programs "
        "take the larger of the two directed percentiles instead, which is another figure. In tables of files it is "
        "called hd95."
    ),
    "ASD": "mean distance from the surface of the prediction to that of the reference, one way only.",
}
VOLUME_ERROR = (
    "volume of the prediction less that of the reference, and as a share of the reference: below zero where too little "
    "was found."
)
EMPTY_RULES = {
    "standard": (
        "Standard protocol: both masks empty count as a perfect match. If one of them is empty, Dice and "
        "Jaccard are 0 and distances are the diagonal of the image, the worst possible."
    ),
    "paper": (
        "Paper protocol: an empty prediction scores 0 in every figure, distances included, which lowers the "
        "mean distances. A distance to an empty reference does not exist and is left out of the mean."
    ),
}


Rows = Iterable[tuple[str, str]]


def run_section(recipe: dict[str, Any] | None, rows: Rows) -> Html:
    """Facts of the run and its settings to unfold."""
    lines = [[name, value] for name, value in with_variation(rows, recipe) if value]
    settings = missing("The run folder holds no recipe.yaml.", "graftseg train RECIPE --data DATA --out RUN")
    if recipe is not None:
        values = [[key, value] for key, value in flatten(recipe)]
        settings = tag(
            "details",
            tag("summary", f"All {len(values)} settings of the recipe"),
            table(["Setting", "Value"], values, caption="The resolved recipe", class_="facts"),
        )
    return section(
        "run", "The run", table(["Fact", "Value"], lines, caption="Facts of the run", class_="facts"), settings
    )


def notes_section(
    facts: dict[str, Any],
    evaluation: Evaluation | None,
    checkpoint: str = "last",
    others: Mapping[str, str] | None = None,
) -> Html:
    """How each figure is defined, the rule for empty masks, the checkpoint and the data; ``others`` replace these."""
    seed = facts.get("seed", "unknown")
    rule = EMPTY_RULES[evaluation.protocol if evaluation is not None else "standard"]
    entries = {
        **MEANINGS,
        **_units(evaluation),
        "Empty masks": rule,
        "Checkpoint": _checkpoint(checkpoint),
        "Data": f"trained with {case_counts(facts)}, seed {seed}.",
        "One run": "a single seed; differences between runs smaller than those between seeds mean nothing.",
        **(others or {}),
    }
    items = [part for name, text in entries.items() for part in (tag("dt", name), tag("dd", text))]
    return section("notes", "How to read this page", tag("dl", *items, class_="notes"), glossary())


def _units(evaluation: Evaluation | None) -> dict[str, str]:
    """What distances and volumes are counted in; pictures have pixels and no volume."""
    has_volumes = evaluation is None or evaluation.has_volumes
    unit = "voxel" if has_volumes else "pixel"
    distances = f"distances in {unit}s ignore the spacing, as many published tables do; mm respects it."
    return {f"{unit.capitalize()} and mm": distances} | ({"Volume error": VOLUME_ERROR} if has_volumes else {})


def flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted keys with their values in words, in the order of the recipe."""
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from flatten({str(place): item for place, item in enumerate(value)}, f"{name}.")
        else:
            yield name, _written(value)


def case_counts(facts: dict[str, Any]) -> str:
    """How many cases the run learned from, in words; unlabeled ones only where it used any."""
    store = facts.get("store", {})
    labeled, unlabeled = len(store.get("labeled", [])), len(store.get("unlabeled", []))
    used = f"{labeled:,} labeled" + (f" and {unlabeled:,} unlabeled" if unlabeled else "")
    return f"{used} {'case' if (unlabeled or labeled) == 1 else 'cases'}"


def duration(seconds: float) -> str:
    """Seconds in the two largest units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def run_facts(facts: dict[str, Any], data: str = "", scans: str = "") -> Iterator[tuple[str, str]]:
    """Names and values for a table; ``data`` and ``scans`` are what the data and the test scans are called."""
    store, versions = facts.get("store", {}), facts.get("versions", {})
    yield "Method", str(facts.get("method", ""))
    yield "Recipe", _written(facts.get("recipe", ""))
    yield "Status", str(facts.get("status", ""))
    yield "Protocol", str(facts.get("protocol", ""))
    yield "Checkpoint", str(facts.get("checkpoint", ""))
    yield "Classes", ", ".join(map(str, store.get("classes", [])[1:]))
    yield "Labeled cases", f"{len(store.get('labeled', [])):,}"
    yield "Unlabeled cases", f"{len(store.get('unlabeled', [])):,}" if store.get("unlabeled") else "none used"
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
    """How many channels a scan of the run has, if that is told."""
    count = facts.get("store", {}).get("channels")
    return count if isinstance(count, int) else None


def counted(number: int | None) -> str:
    """A number with its thousands set apart; nothing where it is not known."""
    return "" if number is None else f"{number:,}"


def _checkpoint(name: str) -> str:
    if name == "last":
        return "the last one of training; none was selected by its score."
    if name.startswith("best on test"):
        return f"“{name}”: selected on the test cases, an optimistic figure."
    return f"“{name}”, not the last one: selected by its score, so the figures flatter if it was on these cases."


def _written(value: Any) -> str:
    """A setting's value in words; a path is shortened."""
    if isinstance(value, list):
        return ", ".join(_written(item) for item in value) or "none"
    if isinstance(value, str):
        return short_path(value) if looks_like_path(value) else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value not in (None, {}) else "none"
