"""Numbers, names and paths as a page writes them."""

import math
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from graftseg.evaluation.table_metrics import OVERLAPS

MINUS = re.compile(r"(?:(?<![\w.])|(?<=\de))-(?=\d)")
HOMES = ("home", "Users", "")
"""Folders whose subfolders are named after people."""
LISTED_NAMES = 3


def typeset(text: str) -> str:
    """Return a text with real minus signs in its numbers; hyphens in names stay."""
    return "–" if text == "-" else MINUS.sub("−", text)


def fixed(value: float) -> str:
    """Return a value with two decimals, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def percent(value: float) -> str:
    """Return a fraction in percent with two decimals."""
    return fixed(value * 100)


def figure(value: float, name: str) -> str:
    """Return the value of a metric, in percent if it is a share."""
    return percent(value) if name in OVERLAPS else fixed(value)


def counted(number: int | None) -> str:
    """Return a number with thousands separators; empty if unknown."""
    return "" if number is None else f"{number:,}"


def listed(names: Sequence[str]) -> str:
    """Return names as a phrase; of many names the first few and the number of the others."""
    many = len(names) > LISTED_NAMES + 1
    return joined([*names[:LISTED_NAMES], f"{len(names) - LISTED_NAMES} more"] if many else names)


def joined(names: Sequence[str]) -> str:
    """Return all names as a phrase."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def short_path(path: str) -> str:
    """Return the last two parts of a path, which do not reveal a home folder."""
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    parts = [part for part in pure.parts if part != pure.anchor]
    return "/".join(parts[-2:])


def shown_text(text: str) -> str:
    """Return a text, shortened if it is an absolute path or starts at a home folder."""
    return short_path(text) if looks_like_path(text) else text


def looks_like_path(text: str) -> bool:
    """Return whether a text is an absolute path or starts at a home folder."""
    return text.startswith(("/", "~", "\\\\")) or bool(PureWindowsPath(text).drive)


def folder_name(folder: Path) -> str:
    """Return the name of a folder, or nothing if it is the name of a person's home."""
    return "" if folder.parent.name in HOMES else folder.name
