"""CSV tables whose cells a spreadsheet never runs as formulas."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graftseg.core.reading import open_regular

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE | re.ASCII)


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV. Texts that could be formulas get an apostrophe, which ``read_csv_rows`` removes."""
    return "".join(_csv_line([_with_apostrophe(cell) for cell in row]) for row in rows)


def _csv_line(cells: Sequence[Any]) -> str:
    stream = io.StringIO()
    # with "\r\n" as line end, the writer quotes cells that contain \r or \n
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n") + "\n"


def _with_apostrophe(cell: Any) -> Any:
    may_be_formula = isinstance(cell, str) and cell.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if may_be_formula else cell


def read_csv_rows(path: Path) -> list[dict[Any, Any]]:
    """Read the rows of a table that ``csv_text`` wrote, by column name. Raise OSError, ValueError or csv.Error."""
    with io.TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    return [{name: _without_apostrophe(cell) for name, cell in row.items()} for row in rows]


def _without_apostrophe(cell: Any) -> Any:
    has_apostrophe = isinstance(cell, str) and cell[:1] == "'" and cell[1:].startswith(FORMULA_STARTS)
    return cell[1:] if has_apostrophe else cell
