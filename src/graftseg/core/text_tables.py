"""A table as lines of text that fit a terminal: plain columns, and what is too wide for them under its row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

WAYS = ((False, 2), (True, 2), (True, 1))
"""How columns are set, one way after the other: whether heads are broken into lines, and the space between columns."""
DEEP = 12
"""A first column that is wider than this is not left free under it."""
NOTHING = "-"


@dataclass(frozen=True)
class TextTable:
    """The lines of a table's head and of its rows."""

    head: list[str]
    body: list[str]


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> TextTable:
    """Set a table in so many columns of characters.

    While it is too wide, its widest column but the first is taken out and told under each row. Only words that are
    wider than the terminal, such as paths, and the first column may stand out.
    """
    names = [_printable(name) for name in head]
    cells = [[_printable(cell) for cell in row] for row in rows]
    columns = [_Column(name, [row[place] for row in cells]) for place, name in enumerate(names)]
    shown = list(range(len(columns)))
    while True:
        for broken, gap in WAYS:
            chosen = [columns[place] for place in shown]
            if len(shown) == 1 or sum(one.width(broken) for one in chosen) + gap * (len(shown) - 1) <= width:
                under = [place for place in range(len(columns)) if place not in shown]
                return _drawn(chosen, [columns[place] for place in under], broken, gap, width)
        shown.remove(max(shown[1:], key=lambda place: (columns[place].widest, place)))


@dataclass(frozen=True)
class _Column:
    """A name and a cell for each row."""

    name: str
    cells: list[str]

    @property
    def widest(self) -> int:
        return max(map(_width, self.cells), default=0)

    @property
    def is_numeric(self) -> bool:
        return bool(self.cells) and all(_is_number(cell) for cell in self.cells)

    def width(self, broken: bool) -> int:
        return max(self.widest, *map(_width, self.heads(broken)))

    def heads(self, broken: bool) -> list[str]:
        """The name in one line, or broken at spaces and strokes into lines as narrow as its words and the cells."""
        if not broken:
            return [self.name]
        words = [re.findall(r"[^/]*/|[^/]+", word) for word in self.name.split()]
        room = max([self.widest, *(_width(part) for word in words for part in word)])
        lines = [""]
        for word in words:
            for place, part in enumerate(word):
                space = " " if lines[-1] and not place else ""
                if _width(lines[-1] + space + part) <= room:
                    lines[-1] += space + part
                else:
                    lines.append(part)
        return lines

    def set(self, text: str, width: int) -> str:
        """The text in its column: numbers to the right, words to the left."""
        space = " " * (width - _width(text))
        return space + text if self.is_numeric else text + space


def _drawn(shown: Sequence[_Column], under: Sequence[_Column], broken: bool, gap: int, width: int) -> TextTable:
    widths = [column.width(broken) for column in shown]
    heads = [column.heads(broken) for column in shown]
    deepest = max(map(len, heads))
    head = _lines(shown, [[*[""] * (deepest - len(lines)), *lines] for lines in heads], widths, gap)
    rows = _lines(shown, [column.cells for column in shown], widths, gap)
    indent = " " * (widths[0] + gap if widths[0] <= DEEP else gap)
    body = []
    for place, row in enumerate(rows):
        body.append(row)
        for column in under:
            body += _folded(column.name, column.cells[place], indent, width)
    return TextTable(head, body)


def _lines(columns: Sequence[_Column], cells: Sequence[Sequence[str]], widths: Sequence[int], gap: int) -> list[str]:
    """The cells of each column, one below the other, as whole lines."""
    set_ = [[one.set(text, wide) for text in texts] for one, texts, wide in zip(columns, cells, widths, strict=True)]
    return [(" " * gap).join(line).rstrip() for line in zip(*set_, strict=True)]


def _folded(name: str, cell: str, indent: str, width: int) -> list[str]:
    """A cell under its row, broken at spaces; letters of some scripts take two columns of the terminal each."""
    if not cell:
        return []
    lines: list[str] = []
    for word in re.findall(" *[^ ]+", f"{name}: {cell}" if name else cell):
        if lines and _width(lines[-1] + word) <= width:
            lines[-1] += word
        else:
            lines.append(indent + word.lstrip())
    return lines


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell == NOTHING
    return True


def _printable(text: str) -> str:
    """The text in one line, without characters that would move the cursor."""
    return "".join(one if one.isprintable() else " " for one in text).strip()


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
