"""The paper's tables: for each recipe what we recorded, beside what was published."""

import re
from collections.abc import Sequence
from pathlib import Path

from graftseg.errors import UserError
from graftseg.figures import FIGURES, NOTHING, figures_of, spreads, written
from graftseg.published import Published
from graftseg.recipe import load_recipe, shipped_recipes
from graftseg.records import Record, Scored, read_records

TABLES = {"la": "Left atrium (LA)", "acdc": "Heart (ACDC)", "pancreas": "Pancreas (NIH)"}
ALL = "all"
METHODS = ("supervised", "ua-mt", "sassnet", "dtc", "urpc", "mc-net", "ss-net", "dan", "advnet", "coranet", "bcp")
"""In the order of the paper's tables."""
HEAD = (
    "recipe",
    "variant",
    "seeds",
    "checkpoint",
    *FIGURES.values(),
    "published",
    "theirs chosen on",
    "our best on test (oracle)",
)
ABOUT = """\
# Tables

Made by `graftseg table all --markdown docs/reference/tables.md` from the folders under `results/` and the published
figures in the recipes; nothing here is written by hand.

Dice and Jaccard are in percent, 95HD and ASD in voxels: means over the test cases (and over the classes), then mean ±
standard deviation over the seeds. "checkpoint" is how ours was chosen: `last` looks at no score; where empty
predictions were scored by the paper's rule, it says so. Published figures and those of the oracle are Dice / Jaccard /
95HD / ASD. The oracle is the checkpoint that happened to be best on the test cases, an optimistic figure that only
compares with published ones chosen in the same way. A dash: not recorded.
"""


def tables_page(results: Path) -> str:
    """All tables with an explanation, as Markdown."""
    parts = [f"## {title}\n\n{table(name, results)}" for name, title in TABLES.items()]
    return "\n".join([ABOUT, *parts])


def table(name: str, results: Path) -> str:
    """One table as Markdown: a line for each shipped recipe, and for each variant that was recorded."""
    if name not in TABLES:
        raise UserError(f"table {name}", "unknown", f"choose one of {', '.join([*TABLES, ALL])}")
    recipes = recipes_of(name)
    if not recipes:
        return "No recipe of this table is shipped.\n"
    rows = [row for recipe in recipes for row in _rows(recipe, results)]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def recipes_of(name: str) -> list[str]:
    """The shipped recipes of a table: by number of labels, then in the paper's order."""
    chosen = [recipe for recipe in shipped_recipes() if re.fullmatch(rf"{name}(-\d+)?/.*", recipe)]
    return sorted(chosen, key=_order)


def _order(recipe: str) -> tuple[int, int, str]:
    setting, method = recipe.split("/")
    labels = int(setting.rpartition("-")[2]) if "-" in setting else 0
    return labels, METHODS.index(method) if method in METHODS else len(METHODS), method


def _rows(recipe: str, results: Path) -> list[list[str]]:
    theirs = _published(load_recipe(recipe).published)
    records = read_records(results, recipe)
    if not records:
        return [[recipe, *[NOTHING] * 7, *theirs, NOTHING]]
    lines: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        lines.setdefault(_group(record), []).append(record)
    return [[recipe, *_ours(members), *theirs, _oracle(members)] for _, members in sorted(lines.items())]


def _group(record: Record) -> tuple[str, str]:
    """Runs of one line: the same variant, checkpoints chosen and empty masks scored in the same way."""
    return record.variant, chosen(record.reported)


def chosen(scored: Scored) -> str:
    """How a checkpoint was chosen, without its step, and the rule for empty masks where it is not the usual one."""
    words = re.sub(r", step \d+", "", scored.checkpoint)
    return words if scored.evaluation.protocol == "standard" else f"{words}; an empty prediction scores 0"


def _ours(records: Sequence[Record]) -> list[str]:
    variant, choice = _group(records[0])
    over = spreads([figures_of(record.reported.evaluation) for record in records])
    seeds = ", ".join(str(record.seed) for record in records)
    figures = [written(over[name].mean, over[name].std) for name in FIGURES]
    return [variant or NOTHING, seeds, choice, *figures]


def _oracle(records: Sequence[Record]) -> str:
    """The best checkpoints on the test cases, where every run of the line recorded one."""
    best = [record.best for record in records if record.best and record.best.checkpoint.startswith("best on test")]
    if len(best) < len(records):
        return NOTHING
    over = spreads([figures_of(scored.evaluation) for scored in best])
    return " / ".join(written(over[name].mean) for name in FIGURES)


def _published(theirs: Published | None) -> list[str]:
    if theirs is None:
        return [NOTHING, NOTHING]
    figures = " / ".join(written(getattr(theirs, name)) for name in FIGURES)
    return [figures, theirs.selection + (f" ({theirs.note})" if theirs.note else "")]
