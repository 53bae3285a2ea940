"""What no table of metrics can hold: overlaps beyond 0 and 1, endless distances, rows twice or not at all."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from graftseg.figures import SHARES

if TYPE_CHECKING:
    from graftseg.evaluation import Row

ROUNDING = 1e-9


def implausible(rows: "Sequence[Row]") -> str | None:
    """The first thing in some rows that cannot be so, in words; a value that is NaN was not there to be had."""
    counts = Counter((row.case, row.label) for row in rows)
    labels = {row.label: row.name for row in rows}
    for (case, label), count in counts.items():
        if count > 1:
            return f"class {label} of {case} is there {count} times"
    for case in dict.fromkeys(row.case for row in rows):
        for label in sorted(labels):
            if (case, label) not in counts:
                return f"class {label} of {case} is missing"
    return next((words for row in rows for words in (_misnamed(row, labels), _impossible(row)) if words), None)


def _misnamed(row: "Row", names: dict[int, str]) -> str | None:
    name = names[row.label]
    return None if row.name == name else f"class {row.label} is called {row.name} and {name}"


def _impossible(row: "Row") -> str | None:
    for name in (field.name for field in fields(row) if field.name not in ("case", "label", "name")):
        value = getattr(row, name)
        most = 1 + ROUNDING if name in SHARES else math.inf
        if not math.isnan(value) and not (0 <= value <= most and math.isfinite(value)):
            return f"{name} of class {row.label} of {row.case} is {value:g}"
    return None
