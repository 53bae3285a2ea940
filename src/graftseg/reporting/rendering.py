"""Pages and their sections from the Jinja2 templates of this package. Every value is escaped."""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graftseg.core.colors import color_of
from graftseg.core.files import write_text
from graftseg.core.phrases import duration
from graftseg.evaluation.table_metrics import DEVIATION
from graftseg.recipes.baseline import SUPERVISED
from graftseg.recipes.recipe import PLANNED
from graftseg.reporting import text
from graftseg.reporting.missing import Missing
from graftseg.reporting.run_files import class_names

ENVIRONMENT = Environment(
    loader=PackageLoader("graftseg.reporting"),
    autoescape=True,
    finalize=text.visible_value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals |= {"color_of": color_of, "deviation": DEVIATION}
FORMATS = (text.fixed, text.percent, text.metric_text, text.with_commas, text.joined, text.typeset, text.shown_text)
ENVIRONMENT.filters |= {function.__name__: function for function in (*FORMATS, duration)}
SELF_CONTAINED = "This page is self-contained and loads no other files."
SECTION = re.compile(r'<section id="([\w-]+)" data-contents="([^"]+)">')
"""The start of a section, with its name in the table of contents."""
PLANNED_NAMES = ("", PLANNED, f"{PLANNED}-{SUPERVISED}")
"""Names that many recipes share: the empty name, the name of all planned recipes, and that of their baselines."""


def render(template: str, *, empty: Missing | None = None, **view: object) -> Markup:
    """Fill a template with values. ``empty`` is the reason why a section has no content."""
    return Markup(ENVIRONMENT.get_template(f"{template}.html").render(view, empty=empty))  # noqa: S704 - escaped


def write_page(path: Path, kicker: str, title: str, summary: Markup, sections: Sequence[Markup], footer: str) -> Path:
    """Write a page and return its path. ``kicker`` is the line above the title. A script is added for sliders."""
    contents = [found.groups() for section in sections if (found := SECTION.search(section))]
    script = slider_script() if any('class="slider"' in section for section in sections) else None
    view: dict[str, Any] = {"kicker": kicker, "title": title, "summary": summary, "footer": footer, "script": script}
    page = render("page", contents=contents, sections=sections, **view)
    write_text(path, page + "\n")
    return path


def slider_script() -> dict[str, Markup]:
    """Return the source of the script, and the digest by which the page allows the browser to run it."""
    source = files("graftseg.reporting").joinpath("templates", "slices.js").read_text(encoding="utf-8")
    digest = "sha256-" + b64encode(sha256(source.encode()).digest()).decode()
    return {"source": Markup(source), "digest": Markup(digest)}  # noqa: S704 - part of this package


def run_title(facts: dict[str, Any], data: str = "") -> str:
    """Return the name of the recipe, or the classes, data and method if many recipes share the name."""
    recipe, method = str(facts.get("recipe") or ""), str(facts.get("method") or "")
    classes = class_names(facts)[1:]
    if classes and method and recipe in PLANNED_NAMES:
        return f"{text.listed(classes)} in {data}, by {method}" if data else f"{text.listed(classes)} by {method}"
    return text.shown_text(recipe or method or "run")
