"""Plans as YAML files: the settings of a recipe, with their reasons as comments."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import Any

import yaml
from pydantic import BaseModel

from graftseg.core.errors import Code, UserError
from graftseg.planning.choices import Choices
from graftseg.recipes.recipe import Recipe

WIDTH = 120
NOT_WRITTEN = {"published"}  # published scores, which a plan does not have
IMPLIED_BY_FAST = {"loop.precision", "settings.joint"}
"""Settings that follow from ``fast``. They are not written, so that users need to change only ``fast``."""


def plan_text(recipe: Recipe, choices: Choices, head: Sequence[str]) -> str:
    """Return the text of a plan: the summary ``head``, then all settings with the reasons for their values."""
    lines = [line for paragraph in head for line in _comment(paragraph, "")]
    for name, value in recipe.model_dump(mode="json", exclude=NOT_WRITTEN).items():
        lines += _entry("", name, value, name, choices)
    return "\n".join(lines) + "\n"


def _entry(lead: str, key: str, value: Any, name: str, choices: Choices) -> Iterator[str]:
    """Yield the lines of a setting with this dotted name.

    ``lead`` is the text before the key: spaces, followed by a dash for the first setting of an item in a list.
    """
    indent = " " * (len(lead) + 2)
    if isinstance(value, dict) and value:
        yield f"{lead}{key}:"
        for part, inner in value.items():
            yield from _entry(indent, part, inner, f"{name}.{part}", choices)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{lead}{key}:"
        for number, item in enumerate(value):
            item_lead = f"{indent}- "
            for part, inner in item.items():
                yield from _entry(item_lead, part, inner, f"{name}.{number}.{part}", choices)
                item_lead = f"{indent}  "
    elif _without_stage(name) not in IMPLIED_BY_FAST:
        reason = " ".join((choices[name].reason if name in choices else default_reason(name)).split())
        line = f"{lead}{key}: {_flow(value)}"
        commented = f"{line}  # {reason}"
        yield from [commented] if len(commented) <= WIDTH else [*_comment(reason, lead.removesuffix("- ")), line]


def _comment(text: str, indent: str) -> list[str]:
    lead = f"{indent}# "
    return wrap(text, WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False) or [lead.rstrip()]


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").rstrip("\n")


def default_reason(name: str) -> str:
    """Return the reason in ``reasons.yaml`` for the setting with this dotted name, or else its description."""
    return _default_reasons().get(_without_stage(name)) or _description(name.split(".")) or "the default"


@cache
def _default_reasons() -> dict[str, str]:
    text = files("graftseg.planning").joinpath("reasons.yaml").read_text(encoding="utf-8")
    reasons: dict[str, str] = yaml.safe_load(text)
    return reasons


def _without_stage(name: str) -> str:
    return re.sub(r"^stages\.\d+\.", "", name)


def _description(parts: list[str]) -> str:
    """Return the description of a setting in its model."""
    model: Any = Recipe
    for part in parts:
        field = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        if field is None:
            return ""
        model, description = field.annotation, field.description or ""
    return description.rstrip(".")


def check_plan_target(target: Path) -> None:
    """Raise a UserError if something exists where a plan is to be written."""
    if target.is_dir():
        remedy = f"name a file, such as --out {quote(str(target / 'plan.yaml'))}"
        raise UserError(Code.TARGET_EXISTS, target, "this is a folder", remedy)
    if target.exists():
        remedy = f"run `rm {quote(str(target))}` and plan again to replace it, or name another file with --out"
        raise UserError(Code.TARGET_EXISTS, target, "the file exists", remedy)
