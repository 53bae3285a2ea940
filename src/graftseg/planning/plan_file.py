"""A plan as a YAML file: the settings of the recipe with their reasons as comments."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

import yaml

from graftseg.planning.choices import Choices
from graftseg.planning.reasons import IMPLIED_BY_FAST, default_reason
from graftseg.recipes.recipe import Recipe

WIDTH = 120
NOT_WRITTEN = {"published"}


def plan_text(recipe: Recipe, choices: Choices, head: Sequence[str]) -> str:
    """Return the text of a plan: the summary, then all settings with the reasons of the choices or of defaults."""
    lines = [line for part in head for line in _comment(part, 0)]
    for name, value in recipe.model_dump(mode="json", exclude=NOT_WRITTEN).items():
        lines += _entry(name, value, name, 0, choices)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, name: str, depth: int, choices: Choices, dash: str = "") -> Iterator[str]:
    """Yield the lines of a setting; ``dash`` begins an item of a list."""
    lead = " " * depth + dash
    inside = depth + len(dash)
    if isinstance(value, dict) and value:
        yield f"{lead}{key}:"
        for part, inner in value.items():
            yield from _entry(part, inner, f"{name}.{part}", inside + 2, choices)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{lead}{key}:"
        for number, item in enumerate(value):
            for place, (part, inner) in enumerate(item.items()):
                begin, own = (inside + 2, "- ") if place == 0 else (inside + 4, "")
                yield from _entry(part, inner, f"{name}.{number}.{part}", begin, choices, own)
    elif (reason := _reason(name, choices)) != IMPLIED_BY_FAST:
        # a setting implied by `fast` is not written, so that it follows later changes of `fast`
        yield from _leaf(f"{lead}{key}: {_flow(value)}", depth, reason)


def _leaf(line: str, depth: int, reason: str) -> Iterator[str]:
    commented = f"{line}  # {reason}"
    if len(commented) <= WIDTH:
        yield commented
        return
    yield from _comment(reason, depth)
    yield line


def _comment(text: str, depth: int) -> list[str]:
    lead = " " * depth + "# "
    return wrap(text, WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False) or [lead.rstrip()]


def _reason(name: str, choices: Choices) -> str:
    return " ".join((choices[name].reason if name in choices else default_reason(name)).split())


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").rstrip("\n")
