"""Our figures of a method, kept in its page of the reference."""

import re
from collections.abc import Sequence
from pathlib import Path

from graftseg.errors import UserError
from graftseg.figures import FIGURES
from graftseg.files import write_text
from graftseg.paper import TABLES, benchmark_of
from graftseg.recipe import shipped_recipes
from graftseg.records import Record, read_records
from graftseg.supervision import BASELINE, gains
from graftseg.tables import BESIDE, lines_of, markdown, ours

PART = re.compile(r"(?<=^## Our number\n\n).*?(?=^## )", re.MULTILINE | re.DOTALL)
HEAD = ("recipe", "variant", "seeds", "checkpoint", *FIGURES.values())
MADE = (
    "Made by `graftseg table all --pages docs/reference/methods` from `results/`; [tables](../tables.md) explains it."
)
NONE = "Nothing is recorded yet."


def fill_pages(folder: Path, results: Path) -> list[Path]:
    """Write the part "Our number" of every method's page in a folder anew; returns the pages."""
    pages = [page for page in sorted(folder.glob("*.md")) if PART.search(page.read_text("utf-8"))]
    if not pages:
        raise UserError(folder, "holds no page with a part named Our number", "name the folder of the methods' pages")
    for page in pages:
        write_text(page, filled(page.read_text("utf-8"), page.stem, results))
    return pages


def filled(page: str, method: str, results: Path) -> str:
    """The page of a method with our figures of today."""
    return PART.sub(lambda _: our_number(method, results) + "\n", page)


def our_number(method: str, results: Path) -> str:
    """What was recorded of a method and its variations on the paper's benchmarks, as Markdown."""
    recipes = [name for name in shipped_recipes() if _is_of(name, method)]
    records = {name: read_records(results, name) for name in recipes}
    lines = [[name, *ours(members)] for name in recipes for members in lines_of(records[name])]
    if not lines:
        return f"{NONE}\n"
    beside = gains(records | _baselines(recipes, results))
    table = f"{MADE}\n\n{markdown([HEAD, *lines])}"
    return f"{table}\n{BESIDE}\n\n{markdown(beside)}" if beside else table


def _is_of(recipe: str, method: str) -> bool:
    name = recipe.partition("/")[2]
    return benchmark_of(recipe) in TABLES and (name == method or name.startswith(f"{method}-"))


def _baselines(recipes: Sequence[str], results: Path) -> dict[str, list[Record]]:
    settings = dict.fromkeys(name.partition("/")[0] for name in recipes)
    return {f"{setting}/{BASELINE}": read_records(results, f"{setting}/{BASELINE}") for setting in settings}
