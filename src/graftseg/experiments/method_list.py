"""The list of all methods in the reference, made from their pages, the paper's tables and the records of short runs."""

import re
from collections.abc import Mapping
from pathlib import Path

from graftseg.evaluation.figures import NO_VALUE
from graftseg.experiments.paper import TABLES
from graftseg.experiments.records import read_records
from graftseg.experiments.tables import lines_of, markdown, ours
from graftseg.methods import METHODS

BEGIN = "| method | what it does"
LIST = re.compile(rf"^{re.escape(BEGIN)} .*?(?:\n(?!\|)|\Z)", re.MULTILINE | re.DOTALL)
SUMMARY = re.compile(r"^On unlabeled scans: (.*)\.$", re.MULTILINE)
SHORT, LAST = "short", "last"
"""The variant under which all methods were trained alike, and the checkpoint that is reported of it."""
SETTINGS = {"acdc-3": "Dice, ACDC-3", "la-4": "Dice, LA-4"}
HEAD = ("method", "what it does with unlabeled scans", "rows in", *SETTINGS.values())


def has_list(page: str) -> bool:
    """Whether a page has a list of methods, by the first words of its head."""
    return LIST.search(page) is not None


def listed(page: str, pages: Mapping[str, str], results: Path) -> str:
    """The page with the list of methods, that list being of these pages by the name of their method."""
    rows = [
        (_names(name, pages), _summary(pages[name]), _tables(name), *_dices(name, results))
        for name in METHODS
        if name in pages
    ]
    return LIST.sub(lambda _: markdown([HEAD, *rows]), page)


def _names(name: str, pages: Mapping[str, str]) -> str:
    """A link to the page of a method, and the other methods that stand on it."""
    others = [one for one in METHODS if one.startswith(f"{name}-") and one not in pages]
    return ", ".join([f"[`{name}`]({name}.md)", *(f"`{one}`" for one in others)])


def _summary(page: str) -> str:
    """What the page says first, in a few words."""
    found = SUMMARY.search(page)
    return found[1].replace("|", r"\|") if found else NO_VALUE


def _tables(name: str) -> str:
    """The tables of the paper that have a row of the method."""
    having = [key for key, one in TABLES.items() if any(row.recipe.endswith(f"/{name}") for row in one.rows)]
    return "all tables" if having == list(TABLES) else ", ".join(having) or "none"


def _dices(name: str, results: Path) -> list[str]:
    """The Dice of a method's short trainings, one for each setting."""
    return [_dice(f"{setting}/{name}", results) for setting in SETTINGS]


def _dice(recipe: str, results: Path) -> str:
    lines = (ours(members) for members in lines_of(read_records(results, recipe)))
    return next((dice for variant, _, chosen, dice, *_ in lines if (variant, chosen) == (SHORT, LAST)), NO_VALUE)
