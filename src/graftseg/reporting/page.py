"""The page around the sections: title, summary, links to the sections, footer."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from graftseg.recipes.baseline import SUPERVISED
from graftseg.recipes.recipe import PLANNED
from graftseg.reporting.folder import class_names
from graftseg.reporting.rendering import render, style
from graftseg.reporting.text import listed, shown_text

PLANNED_NAMES = ("", PLANNED, f"{PLANNED}-{SUPERVISED}")
"""Recipe names that do not distinguish a run: no name, any plan, the baseline of any plan."""


def document(
    kicker: str, title: str, summary: Markup, contents: dict[str, str], sections: Sequence[Markup], footer: str
) -> str:
    """Return a page; ``contents`` are the titles of the sections by their HTML id."""
    view = {"kicker": kicker, "title": title, "summary": summary, "contents": contents, "footer": footer}
    return render("page", **view, sections=sections, style=style()) + "\n"


def run_title(facts: dict[str, Any], data: str = "") -> str:
    """Return the name of the recipe; for a planned recipe the classes, the data and the method."""
    recipe, method = str(facts.get("recipe") or ""), str(facts.get("method") or "")
    classes = class_names(facts)[1:]
    if classes and method and recipe in PLANNED_NAMES:
        return f"{listed(classes)} in {data}, by {method}" if data else f"{listed(classes)} by {method}"
    return shown_text(recipe or method or "run")
