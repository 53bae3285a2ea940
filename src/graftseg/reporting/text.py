"""Formatting of numbers, names and paths on a page."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from markupsafe import Markup

from graftseg.core.errors import visible
from graftseg.evaluation.table_metrics import OVERLAPS, format_value

MINUS = re.compile(r"(?:(?<![\w.])|(?<=\de))-(?=\d)")  # a hyphen before a number or in an exponent
HOMES = ("home", "Users", "")
"""Folders whose subfolders are named after people. The empty name is the root folder, which contains ``/root``."""
LISTED_NAMES = 3


def visible_value(value: Any) -> Any:
    """Escape hidden characters if the value is plain text. Return other values unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def typeset(text: str) -> str:
    """Replace hyphens in numbers by minus signs. Hyphens in names stay."""
    return "–" if text == "-" else MINUS.sub("−", text)


def fixed(value: float) -> str:
    """Return a value with two decimals, or a dash for NaN."""
    return typeset(format_value(value))


def percent(value: float) -> str:
    """Return a fraction in percent with two decimals."""
    return fixed(value * 100)


def metric_text(value: float, name: str) -> str:
    """Return the value of a metric, in percent if the metric is a fraction."""
    return percent(value) if name in OVERLAPS else fixed(value)


def with_commas(number: int | None) -> str:
    """Return a number with thousands separators, or an empty string for None."""
    return "" if number is None else f"{number:,}"


def listed(names: Sequence[str]) -> str:
    """Join names to a phrase. Of a long list, keep the first names and count the rest: ``a, b, c and 7 more``."""
    is_long = len(names) > LISTED_NAMES + 1
    return joined([*names[:LISTED_NAMES], f"{len(names) - LISTED_NAMES} more"] if is_long else names)


def joined(names: Sequence[str]) -> str:
    """Join all names to a phrase such as ``a, b and c``."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def short_path(path: str) -> str:
    """Return the last two parts of a path."""
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    parts = [part for part in pure.parts if part != pure.anchor]
    return "/".join(parts[-2:])


def shown_text(text: str) -> str:
    """Return a text. Shorten it if it looks like a path, because pages must not reveal home folders."""
    return short_path(text) if looks_like_path(text) else text


def looks_like_path(text: str) -> bool:
    """Return whether a text is an absolute path or starts at a home folder."""
    return text.startswith(("/", "~", "\\\\")) or bool(PureWindowsPath(text).drive)


def folder_name(folder: Path) -> str:
    """Return the name of a folder, or an empty string for a home folder, which is named after a person."""
    return "" if folder.parent.name in HOMES else folder.name
