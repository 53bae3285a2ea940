"""HTML from the Jinja2 templates of this package; every value is escaped."""

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from graftseg.core.colors import color_of
from graftseg.reporting.text import fixed, percent, shown_text

ENVIRONMENT = Environment(
    loader=PackageLoader("graftseg.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals["color_of"] = color_of
ENVIRONMENT.filters |= {"fixed": fixed, "percent": percent, "shown_text": shown_text}


def render(template: str, **view: object) -> Markup:
    """Return a template filled with the values of a view."""
    return Markup(ENVIRONMENT.get_template(f"{template}.html").render(view))  # noqa: S704 - templates escape


def style() -> Markup:
    """Return the style sheet of all pages."""
    return Markup(files("graftseg.reporting").joinpath("style.css").read_text(encoding="utf-8"))  # noqa: S704 - ours
