"""HTML from function calls: every text is escaped unless it was made here."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path, PurePosixPath, PureWindowsPath

MINUS = re.compile(r"(?:(?<![\w.])|(?<=\de))-(?=\d)")
HOMES = ("home", "Users", "")
"""What is in these folders is called after a person."""
VOID = frozenset({"meta"})


class Html(str):
    """Text that is already HTML and must not be escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element; plain strings among the children are escaped, and so is every attribute.

    An attribute's underscores become hyphens and a trailing one is dropped (``class_``, ``aria_label``); an
    attribute that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """The parts one after the other, plain strings escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def section(identity: str, title: str, *children: str) -> Html:
    """A titled part of the page that the contents can point to."""
    return tag("section", tag("h2", title), *children, id=identity)


def missing(sentence: str, command: str | None = None, note: str = "") -> Html:
    """What stands in the place of a part that has nothing to show: why, which command would fill it, what it needs."""
    children: list[str] = [sentence] if command is None else [f"{sentence} To fill this part: ", tag("code", command)]
    return tag("p", *children, *([f", {note}."] if note else []), class_="missing")


def told_above(sentence: str) -> Html:
    """The same where the part on results tells the command already."""
    link = tag("a", "Results", href="#results")
    return tag("p", f"{sentence} What fills this part stands under ", link, ".", class_="missing")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, class_: str = "figures") -> Html:
    """A captioned table whose first column names the row; it scrolls sideways where it is too wide."""
    heads = join(tag("th", cell, scope="col") for cell in head)
    lines = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    body = tag("table", tag("thead", tag("tr", heads)), tag("tbody", *lines), class_=class_)
    return tag("figure", tag("figcaption", caption), wide(body, caption), class_="table")


def wide(content: Html, label: str) -> Html:
    """A region that scrolls sideways, by keyboard too, where the page is narrower than its content."""
    return tag("div", content, class_="wide", tabindex=0, role="region", aria_label=label)


def typeset(text: str) -> str:
    """Signs of numbers as a page sets them; names that hold a hyphen stay as they are."""
    return "–" if text == "-" else MINUS.sub("−", text)


def short_path(path: str) -> str:
    """The last two parts of a path: enough to recognise it, without telling whose home it lies in."""
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    parts = [part for part in pure.parts if part != pure.anchor]
    return "/".join(parts[-2:])


def folder_name(folder: Path) -> str:
    """The folder's own name; nothing where that is the name of a person's home."""
    return "" if folder.parent.name in HOMES else folder.name


def looks_like_path(text: str) -> bool:
    """Whether a setting's value is an absolute path, or one below a home folder."""
    return text.startswith(("/", "~", "\\\\")) or bool(PureWindowsPath(text).drive)
