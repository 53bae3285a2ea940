"""Write our figures into the pages of the methods and the list of methods: ``python docs/method_pages.py``."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from graftseg.core.files import write_text
from graftseg.evaluation.figures import FIGURES, NO_VALUE
from graftseg.experiments.paper import TABLES, benchmark_of
from graftseg.experiments.records import Record, read_records
from graftseg.experiments.tables import BASELINE, BASELINE_TITLE, gains, lines_of, markdown, ours
from graftseg.methods import METHODS
from graftseg.recipes.reading import shipped_recipes

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference" / "methods"
TITLE = "## Our number"
SECTION = re.compile(rf"^{TITLE}\n.*?(?=^##? |\Z)", re.MULTILINE | re.DOTALL)
HEAD = ("recipe", "variant", "seeds", "checkpoint", *FIGURES.values())
ORIGIN = "Made by `make docs` from `results/`; [tables](../tables.md) explains it."
NO_RECORD = "Nothing is recorded yet."

LIST = re.compile(r"^\| method \| what it does .*?(?:\n(?!\|)|\Z)", re.MULTILINE | re.DOTALL)
SUMMARY = re.compile(r"^On unlabeled scans: (.*)\.$", re.MULTILINE)
SHORT, LAST = "short", "last"
"""The variant and the checkpoint that all methods have in common."""
SETTINGS = {"acdc-3": "Dice, ACDC-3", "la-4": "Dice, LA-4"}
LIST_HEAD = ("method", "what it does with unlabeled scans", "rows in", *SETTINGS.values())


def filled(page: str, method: str, results: Path) -> str:
    """Return the page of a method with the section "Our number" made from the records."""
    section = f"{TITLE}\n\n{our_number(method, results)}"
    return SECTION.sub(lambda found: section if found.end() == len(page) else f"{section}\n", page)


def our_number(method: str, results: Path) -> str:
    """Return the recorded figures of a method and its variations on the paper's benchmarks, as Markdown."""
    recipes = [name for name in shipped_recipes() if _is_of(name, method)]
    records = {name: read_records(results, name) for name in recipes}
    lines = [[name, *ours(members)] for name in recipes for members in lines_of(records[name])]
    if not lines:
        return f"{NO_RECORD}\n"
    compared = gains(records | _baselines(recipes, results))
    table = f"{ORIGIN}\n\n{markdown([HEAD, *lines])}"
    return f"{table}\n{BASELINE_TITLE}\n\n{markdown(compared)}" if compared else table


def _is_of(recipe: str, method: str) -> bool:
    name = recipe.partition("/")[2]
    return benchmark_of(recipe) in TABLES and (name == method or name.startswith(f"{method}-"))


def _baselines(recipes: Sequence[str], results: Path) -> dict[str, list[Record]]:
    settings = dict.fromkeys(name.partition("/")[0] for name in recipes)
    return {f"{setting}/{BASELINE}": read_records(results, f"{setting}/{BASELINE}") for setting in settings}


def listed(page: str, pages: Mapping[str, str], results: Path) -> str:
    """Return a page with its list of methods made from the pages of the methods."""
    rows = [
        (_links(name, pages), _summary(pages[name]), _tables(name), *_dices(name, results))
        for name in METHODS
        if name in pages
    ]
    return LIST.sub(lambda _: markdown([LIST_HEAD, *rows]), page)


def _links(name: str, pages: Mapping[str, str]) -> str:
    """Return a link to the page of a method, and the names of the other methods on that page."""
    others = [other for other in METHODS if other.startswith(f"{name}-") and other not in pages]
    return ", ".join([f"[`{name}`]({name}.md)", *(f"`{other}`" for other in others)])


def _summary(page: str) -> str:
    found = SUMMARY.search(page)
    return found[1].replace("|", r"\|") if found else NO_VALUE


def _tables(name: str) -> str:
    """Return the names of the paper's tables that have a row of a method."""
    having = [key for key, table in TABLES.items() if any(row.recipe.endswith(f"/{name}") for row in table.rows)]
    return "all tables" if having == list(TABLES) else ", ".join(having) or "none"


def _dices(name: str, results: Path) -> list[str]:
    return [_dice(f"{setting}/{name}", results) for setting in SETTINGS]


def _dice(recipe: str, results: Path) -> str:
    lines = (ours(members) for members in lines_of(read_records(results, recipe)))
    return next((dice for variant, _, chosen, dice, *_ in lines if (variant, chosen) == (SHORT, LAST)), NO_VALUE)


def made_pages(folder: Path, results: Path) -> dict[Path, str]:
    """Return the text of each page of a method, and of the list of methods, made from the records."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md")) if page.stem in METHODS}
    made = {page: filled(text, page.stem, results) for page, text in pages.items()}
    index = folder / "README.md"
    texts = {page.stem: text for page, text in made.items()}
    return made | {index: listed(index.read_text(encoding="utf-8"), texts, results)}


if __name__ == "__main__":
    for target, content in made_pages(PAGES, ROOT / "results").items():
        if target.read_text(encoding="utf-8") != content:
            write_text(target, content)
            sys.stdout.write(f"{target.relative_to(ROOT)}\n")
