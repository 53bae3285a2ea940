"""Text tables that fit a terminal: if a table is too wide, some of its cells are printed below their row."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from graftseg.core.errors import visible

LAYOUTS = ((False, 2), (True, 2), (True, 1))
"""Layouts in the order in which they are tried: whether column names are broken into lines, and the column gap."""
MAX_INDENT = 12  # cells below a row are indented by the width of the first column, unless it is wider than this
MISSING = "-"  # a cell without a value


@dataclass(frozen=True)
class TextTable:
    """Lines of the header and of the rows."""

    head: list[str]
    body: list[str]


class _Column:
    def __init__(self, name: str, cells: list[str]) -> None:
        self.name, self.cells = name, cells
        self.widest_cell = max(map(_width, cells), default=0)
        self.is_numeric = bool(cells) and all(map(_is_number, cells))
        # a name that is wider than its cells may also be broken after slashes
        self.breakable_name = name if _width(name) <= self.widest_cell else name.replace("/", "/ ")

    def width(self, broken: bool) -> int:
        """Return the width in characters. A broken name needs the width of its longest word."""
        return max(1, self.widest_cell, *map(_width, self.breakable_name.split() if broken else [self.name]))


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> TextTable:
    """Format a table for a terminal that is ``width`` characters wide.

    While the table is too wide, the column with the widest cell, except the first column, is removed. Its cells are
    printed below their rows. Paths and other words that are wider than the terminal are not broken.
    """
    cells = [[_printable(cell) for cell in row] for row in rows]
    columns = [_Column(_printable(name), [row[index] for row in cells]) for index, name in enumerate(head)]
    shown = list(range(len(columns)))
    while (layout := _fitting_layout([columns[index] for index in shown], width)) is None:
        shown.remove(max(shown[1:], key=lambda index: (columns[index].widest_cell, index)))
    broken, gap = layout
    lines = _render([columns[index] for index in shown], broken, gap)
    heading, row_lines = lines[: len(lines) - len(rows)], lines[len(lines) - len(rows) :]
    first = columns[0].width(broken)
    indent = " " * (first + gap if first <= MAX_INDENT else gap)
    body = []
    for row, line in enumerate(row_lines):
        body.append(line)
        for index, column in enumerate(columns):
            if index not in shown:
                body += _wrap(column.name, column.cells[row], indent, width)
    return TextTable(heading, body)


def _fitting_layout(columns: Sequence[_Column], width: int) -> tuple[bool, int] | None:
    """Return the first layout in which the columns fit, or None. A single column may be wider than the terminal."""
    for broken, gap in LAYOUTS:
        if len(columns) == 1 or sum(column.width(broken) + gap for column in columns) - gap <= width:
            return broken, gap
    return None


def _render(columns: Sequence[_Column], broken: bool, gap: int) -> list[str]:
    """Return the lines of the header, then one line per row."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for column in columns:
        name = Text(column.breakable_name if broken else column.name)
        table.add_column(name, width=column.width(broken), justify="right" if column.is_numeric else "left")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    table_width = sum(column.width(broken) + gap for column in columns)
    console = Console(file=io.StringIO(), width=table_width, color_system=None)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(table, pad=False)]


def _wrap(name: str, cell: str, indent: str, width: int) -> list[str]:
    """Return indented lines with the name and the cell, broken at spaces."""
    lines: list[str] = []
    for word in re.findall(" *[^ ]+", f"{name}: {cell}" if name else cell) if cell else []:
        if lines and _width(lines[-1] + word) <= width:
            lines[-1] += word
        else:
            lines.append(indent + word.lstrip())
    return lines


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell == MISSING
    return True


def _printable(text: str) -> str:
    """Return the text in one line, with control characters as escapes."""
    return visible(re.sub(r"[\n\t]", " ", text)).strip()


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
