"""The page around the sections: head, style, title, contents."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from graftseg.recipes.baseline import SUPERVISED
from graftseg.recipes.recipe import PLANNED
from graftseg.reporting.folder import class_names
from graftseg.reporting.markup import Html, join, looks_like_path, short_path, tag, typeset
from graftseg.reporting.notes import case_counts, duration

CONTENTS = {
    "results": "Results",
    "cases": "Cases",
    "comparison": "Baseline",
    "training": "Training",
    "mixed": "Mixed images",
    "pseudo-labels": "Pseudo-labels",
    "run": "Run",
    "notes": "Notes",
}
STATES = {
    "running": "This run is still going on; the page shows it up to now.",
    "stopped": "This run was stopped before its end.",
    "failed": "This run failed before its end.",
}
# what a plan, and the baseline beside it, are always called
UNTOLD = (PLANNED, f"{PLANNED}-{SUPERVISED}")
NAMED = 3
# Nothing may be fetched or run, whatever a case or a class is named.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(facts: dict[str, Any], sections: Sequence[Html], found: Sequence[str | None] = (), data: str = "") -> str:
    """The whole document about a run, on data of that name, as one text; what was found, if anything, comes first."""
    about = [
        *verdicts(found),
        tag("p", _subtitle(facts), class_="subtitle"),
        *_state(str(facts.get("status", ""))),
    ]
    return document("graftseg report", run_title(facts, data), about, CONTENTS, sections, _footer(facts))


def document(
    kicker: str, title: str, about: Sequence[Html], contents: dict[str, str], sections: Sequence[Html], footer: str
) -> str:
    """A document as one text: a title, what it is about, links to its sections by identity, the sections."""
    style = files("graftseg.reporting").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"{title} – graftseg"),
        tag("style", Html(style)),
    )
    links = [tag("a", name, href=f"#{identity}") for identity, name in contents.items()]
    header = tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", title),
        *about,
        tag("nav", *links, aria_label="Contents"),
    )
    body = tag("body", header, tag("main", *(join(["\n", part]) for part in sections)), tag("footer", footer))
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def verdicts(sentences: Iterable[str | None]) -> list[Html]:
    """What was found, to stand under the title."""
    return [tag("p", typeset(sentence), class_="verdict") for sentence in sentences if sentence]


def run_title(facts: dict[str, Any], data: str = "") -> str:
    """The recipe's name, or where that is any plan's, what was trained to be found in which data by which method."""
    recipe, method = str(facts.get("recipe") or ""), str(facts.get("method") or "")
    classes = class_names(facts)[1:]
    if classes and method and recipe in ("", *UNTOLD):
        return f"{listed(classes)} in {data}, by {method}" if data else f"{listed(classes)} by {method}"
    title = recipe or method or "run"
    return short_path(title) if looks_like_path(title) else title


def listed(names: Sequence[str]) -> str:
    """Names in a phrase; of many the first few and how many more."""
    shown, more = (names, 0) if len(names) <= NAMED + 1 else (names[:NAMED], len(names) - NAMED)
    *first, last = [*shown, f"{more} more"] if more else shown
    return f"{', '.join(first)} and {last}" if first else last


def _subtitle(facts: dict[str, Any]) -> Html:
    parts = [case_counts(facts)]
    if facts.get("steps") is not None:
        parts.append(f"{facts['steps']:,} steps")
    if facts.get("wall_seconds") is not None:
        parts.append(f"{duration(float(facts['wall_seconds']))} on {facts.get('device', 'an unknown device')}")
    parts.append(f"seed {facts.get('seed', 'unknown')}")
    return join([", ".join(parts)])


def _state(status: str) -> list[Html]:
    return [tag("p", STATES[status], class_="state")] if status in STATES else []


def _footer(facts: dict[str, Any]) -> str:
    version = facts.get("versions", {}).get("graftseg", "")
    return f"Trained with graftseg {version}. This page holds everything it shows and loads nothing."
