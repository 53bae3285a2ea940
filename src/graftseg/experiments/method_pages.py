"""Our figures of a method, kept in its page of the reference."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_text
from graftseg.evaluation.figures import FIGURES
from graftseg.experiments.method_list import BEGIN, has_list, listed
from graftseg.experiments.paper import TABLES, benchmark_of
from graftseg.experiments.records import Record, read_records
from graftseg.experiments.tables import BASELINE, BESIDE, gains, lines_of, markdown, ours
from graftseg.methods import METHODS
from graftseg.recipes.reading import shipped_recipes

TITLE = "## Our number"
PART = re.compile(rf"^{TITLE}[ \t]*(?:\n.*?)?(?=^##? |\Z)", re.MULTILINE | re.DOTALL)
HEAD = ("recipe", "variant", "seeds", "checkpoint", *FIGURES.values())
MADE = (
    "Made by `graftseg table all --pages docs/reference/methods` from `results/`; [tables](../tables.md) explains it."
)
CRLF = "\r\n"
NONE = "Nothing is recorded yet."
logger = logging.getLogger(__name__)


def fill_pages(folder: Path, results: Path) -> list[Path]:
    """Write the part "Our number" of every method's page in a folder anew, once all are made; returns the pages.

    The list of methods in ``README.md`` is made anew from them, and from those without such a part. What is left as it
    is, is told. Any other page whose name is no method's is left alone.
    """
    texts = {page: _text_of(page) for page in sorted(folder.glob("*.md")) if page.stem in METHODS}
    pages = {page: text for page, text in texts.items() if _has_part(page, _plain(text))}
    if not pages:
        raise UserError(
            Code.RECORD_INVALID,
            folder,
            "holds no page with a part named Our number",
            "name the folder of the methods' pages",
        )
    written = {page: _filled_as_it_is(text, page.stem, results) for page, text in pages.items()}
    for page in (page for page in texts if page not in written):
        logger.warning('%s: left as it is, since it has no part for our figures; add a line "%s"', page, TITLE)
    new = {page.stem: _plain(text) for page, text in (texts | written).items()}
    written |= _filled_list(folder / "README.md", new, results)
    for page, text in written.items():
        # what a link leads to is the page
        write_text(page.resolve(), text)
    return list(written)


def _has_part(page: Path, text: str) -> bool:
    """Whether a page has a part for our figures; which of several is meant, nobody knows."""
    count = len(PART.findall(text))
    if count > 1:
        raise UserError(
            Code.RECORD_INVALID,
            page,
            f"has {count} parts named Our number",
            "keep one of them, or give the others other names",
        )
    return count == 1


def _filled_list(page: Path, pages: dict[str, str], results: Path) -> dict[Path, str]:
    """The page with the list of methods, where there is one."""
    if not page.is_file():
        return {}
    text = _text_of(page)
    if not has_list(_plain(text)):
        logger.warning("%s: left as it is, since it has no list of methods; begin one with the line %s |", page, BEGIN)
    new = _with_line_ends_of(text, listed(_plain(text), pages, results))
    return {} if new == text else {page: new}


def without_page(folder: Path, results: Path) -> list[str]:
    """Methods that something is recorded of and that have no page in a folder."""
    named = {page.stem for page in folder.glob("*.md")}
    return [method for method in METHODS if method not in named and our_number(method, results) != f"{NONE}\n"]


def _text_of(page: Path) -> str:
    try:
        return page.read_bytes().decode()
    except UnicodeDecodeError:
        raise UserError(Code.RECORD_INVALID, page, "not text in UTF-8", "save the page as UTF-8") from None
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, page, f"cannot be read ({error.strerror})", "mend the page or move it elsewhere"
        ) from None


def _plain(text: str) -> str:
    return text.replace(CRLF, "\n")


def _filled_as_it_is(text: str, method: str, results: Path) -> str:
    """The page of a method with our figures, and with line ends as they were."""
    return _with_line_ends_of(text, filled(_plain(text), method, results))


def _with_line_ends_of(text: str, new: str) -> str:
    return new.replace("\n", CRLF) if CRLF in text else new


def filled(page: str, method: str, results: Path) -> str:
    """The page of a method with our figures of today."""
    number = f"{TITLE}\n\n{our_number(method, results)}"
    return PART.sub(lambda found: number if found.end() == len(page) else f"{number}\n", page)


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
