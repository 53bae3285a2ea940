"""The list of all methods in the reference, made from their pages and the paper's tables."""

import re
from collections.abc import Mapping

from graftseg.methods import METHODS
from graftseg.paper import TABLES
from graftseg.tables import markdown

LIST = re.compile(r"^\| method \| what it does .*?(?:\n(?!\|)|\Z)", re.MULTILINE | re.DOTALL)
SUMMARY = re.compile(r"^On unlabeled scans: (.*)\.$", re.MULTILINE)
HEAD = ("method", "what it does with unlabeled scans", "rows in")


def listed(page: str, pages: Mapping[str, str]) -> str:
    """The page with the list of methods, that list being of these pages by the name of their method."""
    rows = [(_names(name, pages), _summary(pages[name]), _tables(name)) for name in METHODS if name in pages]
    return LIST.sub(lambda _: markdown([HEAD, *rows]), page)


def _names(name: str, pages: Mapping[str, str]) -> str:
    """A link to the page of a method, and the other methods that stand on it."""
    others = [one for one in METHODS if one.startswith(f"{name}-") and one not in pages]
    return ", ".join([f"[`{name}`]({name}.md)", *(f"`{one}`" for one in others)])


def _summary(page: str) -> str:
    """What the page says first, in a few words."""
    found = SUMMARY.search(page)
    return found[1].replace("|", r"\|") if found else "-"


def _tables(name: str) -> str:
    """The tables of the paper that have a row of the method."""
    having = [key for key, one in TABLES.items() if any(row.recipe.endswith(f"/{name}") for row in one.rows)]
    return "all tables" if having == list(TABLES) else ", ".join(having) or "none"
