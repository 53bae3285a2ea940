"""What no table of metrics can hold: overlaps beyond 0 and 1, endless distances, rows or values twice or not at all."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftseg.core.files import read_json
from graftseg.evaluation.figures import SHARES
from graftseg.evaluation.metrics import Protocol

if TYPE_CHECKING:
    from graftseg.evaluation.scores import Row

ROUNDING = 1e-9
DISTANCES = tuple(f"{name}{end}" for end in ("", "_mm") for name in ("hd95", "hd95_max", "asd", "assd"))
VOLUMES = ("volume_prediction_ml", "volume_reference_ml")
VALUES = (*SHARES, *DISTANCES, *VOLUMES)


def told_beside(table: Path) -> Mapping[str, Any]:
    """What the file beside a table tells of it; nothing where there is none, or one about something else."""
    path = table.with_suffix(".json")
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) and "protocol" in content else {}


def miscounted(rows: "Sequence[Row]", about: Mapping[str, Any]) -> str | None:
    """The first figure of a class that has not as many values as the description of the table tells, in words."""
    for label, figure, count in _counts(about):
        values = {row.case: getattr(row, figure) for row in rows if row.label == label}
        empty = [case for case, value in values.items() if math.isnan(value)]
        if (there := len(values) - len(empty)) != count:
            where = f" (none for {empty[0]})" if empty and there < count else ""
            return f"{figure} of class {label} has {there} values where {count} were written{where}"
    return None


def _counts(about: Mapping[str, Any]) -> Iterator[tuple[int, str, int]]:
    """Label, figure and number of values, as far as a description tells them."""
    classes = about.get("classes")
    for one in classes if isinstance(classes, list) else ():
        for figure in VALUES if isinstance(one, dict) and isinstance(one.get("label"), int) else ():
            told = one.get(figure)
            if isinstance(told, dict) and isinstance(told.get("count"), int):
                yield one["label"], figure, told["count"]


def implausible(rows: "Sequence[Row]", protocol: Protocol) -> str | None:
    """The first thing in some rows that cannot be so, in words."""
    counts = Counter((row.case, row.label) for row in rows)
    labels = {row.label: row.name for row in rows}
    for (case, label), count in counts.items():
        if count > 1:
            return f"class {label} of {case} is there {count} times"
    for case in dict.fromkeys(row.case for row in rows):
        for label in sorted(labels):
            if (case, label) not in counts:
                return f"class {label} of {case} is missing"
    found = (words for row in rows for words in (_misnamed(row, labels), _impossible(row), _emptied(row, protocol)))
    return next((words for words in found if words), None)


def _misnamed(row: "Row", names: dict[int, str]) -> str | None:
    name = names[row.label]
    return None if row.name == name else f"class {row.label} is called {row.name} and {name}"


def _impossible(row: "Row") -> str | None:
    for name in VALUES:
        value = getattr(row, name)
        most = 1 + ROUNDING if name in SHARES else math.inf
        if not math.isnan(value) and not (0 <= value <= most and math.isfinite(value)):
            return f"{name} of class {row.label} of {row.case} is {value:g}"
    return None


def _emptied(row: "Row", protocol: Protocol) -> str | None:
    lost = _lost(row, protocol)
    return None if lost is None else f"{lost} of class {row.label} of {row.case} is empty"


def _lost(row: "Row", protocol: Protocol) -> str | None:
    """The first value that is not there and was there to be had.

    A class that no reference shows has neither overlaps nor distances; in the paper's protocol there is no distance to
    an empty reference; and a 2-D image has no volumes.
    """
    for kind in (SHARES, DISTANCES, VOLUMES):
        empty = [name for name in kind if math.isnan(getattr(row, name))]
        if empty and len(empty) < len(kind):
            return empty[0]
    has_reference = row.volume_reference_ml > 0
    if math.isnan(row.dice):
        return SHARES[0] if has_reference or not math.isnan(row.hd95) else None
    was_there = has_reference or row.dice > 0 or protocol != "paper"
    return DISTANCES[0] if math.isnan(row.hd95) and was_there else None
