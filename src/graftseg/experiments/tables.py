"""The paper's tables: for each of its rows what we recorded, beside what was published."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.evaluation.figures import FIGURES, NO_VALUE, figures_of, format_value, spreads
from graftseg.evaluation.statistics import Pairs, bootstrap, paired
from graftseg.experiments.paper import ALL, TABLES, Row, benchmark_of
from graftseg.experiments.records import Record, differ, read_records, refuse_unlike
from graftseg.recipes.changes import differing
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Published, load_recipe

HEAD = (
    "row",
    "recipe",
    "variant",
    "seeds",
    "checkpoint",
    *FIGURES.values(),
    "published",
    "theirs chosen on",
    "our best on test (oracle)",
)
INTRODUCTION = """\
# Tables

Made by `graftseg table all --markdown docs/reference/tables.md` from the folders under `results/` and the published
figures in the recipes; nothing here is written by hand. Rows are those of the paper, in its order; recipes that it has
no row for follow after them. [Run a table](../how-to/run-a-table.md) says how to fill one.
"""
LEGEND = """\
Dice and Jaccard are in percent, 95HD and ASD in voxels: means over the test cases (and over the classes), then mean ±
standard deviation over the seeds. "variant" names what differs from the recipe, such as a shorter training.
"checkpoint" is how ours was chosen: `last` looks at no score; where empty predictions were scored by the paper's rule,
it says so. By ours, a class that a prediction misses altogether has the diagonal of the image as its distances; by the
public code's they are 0, so that published distances are smaller where classes are missed. Published figures and those
of the oracle are Dice / Jaccard / 95HD / ASD. The oracle is the checkpoint that happened to be best on the test cases,
an optimistic figure that only compares with published ones chosen in the same way; it is chosen by scores taken during
the training, which may be coarser than the test, so that it may lie below the last. A dash: not recorded, or no recipe
yet.
"""
LEGEND_BESIDE = """\
Where a supervised run and another one of the same setting and variant were recorded with the same seed, a second table
sets the two side by side: the difference in Dice, averaged over the shared seeds, with a 95 % interval over the test
cases. None is told where the two are not the same part of their recipes' steps.
"""
BESIDE = "Beside the supervised baseline of the same setting and variant:"
Lines = Sequence[Sequence[str]]


def tables_page(results: Path) -> str:
    """All tables with an explanation, as Markdown."""
    parts = [f"## {one.title}\n\n{table(name, results)}" for name, one in TABLES.items()]
    return "\n".join([INTRODUCTION, LEGEND, LEGEND_BESIDE, *parts])


def table_page(name: str, results: Path) -> str:
    """One table under its title, with what is needed to read it below, as Markdown."""
    text = table(name, results)
    legends = [LEGEND, *([LEGEND_BESIDE] if BESIDE in text else [])]
    return "\n".join([f"## {TABLES[name].title}\n", text, *legends])


def table(name: str, results: Path) -> str:
    """One table as Markdown: a line for each row, and for each variant of it that was recorded.

    A table of methods is followed by one that sets them beside the supervised runs, where such were recorded.
    """
    rows = rows_of(name)
    records = {row.recipe: read_records(results, row.recipe) for row in rows}
    lines = [line for row in rows for line in _lines(row, records[row.recipe])]
    text = markdown([HEAD, *lines]) + _warnings(list(records.values()))
    beside = gains(records) if TABLES[name].compares else []
    return f"{text}\n{BESIDE}\n\n{markdown(beside)}" if beside else text


def rows_of(name: str) -> list[Row]:
    """The rows of a table of the paper; one of methods ends with the recipes that are shipped and in no table."""
    if name not in TABLES:
        raise UserError(Code.RECORD_INVALID, f"table {name}", "unknown", f"choose one of {', '.join([*TABLES, ALL])}")
    rows = list(TABLES[name].rows)
    if not TABLES[name].compares:
        return rows
    named = {row.recipe for one in TABLES.values() for row in one.rows}
    extra = [recipe for recipe in shipped_recipes() if benchmark_of(recipe) == name and recipe not in named]
    return [*rows, *(Row(recipe.partition("/")[2], recipe) for recipe in sorted(extra, key=_labels))]


def _labels(recipe: str) -> tuple[int, str]:
    """By the number of labels, then by name."""
    setting, _, method = recipe.partition("/")
    count = setting.rpartition("-")[2]
    return int(count) if count.isdigit() else 0, method


def markdown(lines: Lines) -> str:
    """A head and lines as a table in Markdown."""
    head, *rest = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rest))


def _warnings(recipes: Iterable[Sequence[Record]]) -> str:
    """What the records below each line must be read with: a line for those that were not trained on the same data."""
    found = [members for records in recipes for members in lines_of(records) if differ(members)]
    return "".join(f"\n{_of_other_stores(members)}\n" for members in found)


def _of_other_stores(members: Sequence[Record]) -> str:
    *others, last = (str(record.seed) for record in members)
    variant = f", {members[0].variant}," if members[0].variant else ""
    return f"Seeds {', '.join(others)} and {last} of {members[0].recipe}{variant} were trained on stores that differ."


def _lines(row: Row, records: Sequence[Record]) -> list[list[str]]:
    shipped = row.recipe in shipped_recipes()
    theirs = _published(load_recipe(row.recipe).published if shipped else None)
    if not records:
        return [[row.name, row.recipe, *[NO_VALUE] * 7, *theirs, NO_VALUE]]
    return [[row.name, row.recipe, *ours(members), *theirs, _oracle(members)] for members in lines_of(records)]


def lines_of(records: Sequence[Record]) -> list[list[Record]]:
    """Records of one recipe by the line of a table that they share, in order.

    All of a line are of the same cases and settings.
    """
    alike = groupby(sorted(records, key=lambda record: (*_group(record), record.seed)), key=_group)
    lines = [list(members) for _, members in alike]
    for first, *others in lines:
        for other in others:
            refuse_unlike(first, other)
            _refuse_other_settings(first, other)
    return lines


def _refuse_other_settings(first: Record, second: Record) -> None:
    """Seeds of one line are averaged, so they must have been trained alike."""
    names = differing(first.settings, second.settings) if first.settings and second.settings else []
    if not names and first.steps and second.steps and first.steps != second.steps:
        names = ["steps"]
    if names:
        finding = f"{first.name} has the same variant and other settings ({', '.join(names)})"
        raise UserError(
            Code.VARIANT_NEEDED,
            second.name,
            finding,
            "move one of the two elsewhere, or record it under another --variant",
        )


def _group(record: Record) -> tuple[str, str]:
    """Runs of one line: the same variant, checkpoints chosen and empty masks scored in the same way."""
    return record.variant, record.reported.chosen


def ours(records: Sequence[Record]) -> list[str]:
    """Variant, seeds, checkpoint and figures of records that share a line."""
    variant, choice = _group(records[0])
    over = spreads([figures_of(record.reported.evaluation) for record in records])
    seeds = ", ".join(str(record.seed) for record in records)
    figures = [format_value(over[name].mean, over[name].std) for name in FIGURES]
    return [variant or NO_VALUE, seeds, choice, *figures]


def _oracle(records: Sequence[Record]) -> str:
    """The best checkpoints on the test cases, where every run of the line recorded one."""
    best = [record.best for record in records if record.best and record.best.checkpoint.startswith("best on test")]
    if len(best) < len(records):
        return NO_VALUE
    over = spreads([figures_of(scored.evaluation) for scored in best])
    return " / ".join(format_value(over[name].mean) for name in FIGURES)


def _published(theirs: Published | None) -> list[str]:
    if theirs is None:
        return [NO_VALUE, NO_VALUE]
    figures = " / ".join(format_value(getattr(theirs, name)) for name in FIGURES)
    return [figures, theirs.selection + (f" ({theirs.note})" if theirs.note else "")]


BASELINE = "supervised"
FIGURE = "dice"
UNLIKE = "shortened otherwise"
GAINS_HEAD = (
    "recipe",
    "variant",
    "seeds",
    "steps",
    "steps of the baseline",
    f"{FIGURES[FIGURE]} of the baseline",
    FIGURES[FIGURE],
    "difference",
    "95 % interval",
)


def gains(records: Mapping[str, Sequence[Record]]) -> list[tuple[str, ...]]:
    """A head and a line for each recipe and variant that shares a seed with its baseline; nothing where none does.

    ``records`` are by recipe. Runs whose checkpoints were chosen, or whose empty label maps were scored, by different
    rules are not set side by side; those that were scored on other cases or references are refused. No difference is
    told of two that are not the same part of their recipes' steps: one variant may stand for two lengths.
    """
    lines = []
    for recipe, own in records.items():
        setting, _, method = recipe.partition("/")
        baseline = records.get(f"{setting}/{BASELINE}", ())
        if method == BASELINE:
            continue
        for variant in sorted({record.variant for record in own}):
            couples = _couples(baseline, own, variant)
            for couple in couples:
                refuse_unlike(*couple)
            if couples:
                lines.append(_line(recipe, variant, couples))
    return [GAINS_HEAD, *lines] if lines else []


def _couples(baseline: Sequence[Record], own: Sequence[Record], variant: str) -> list[tuple[Record, Record]]:
    """Records of the same variant, seed, and rules for checkpoints and empty label maps, the baseline's first."""
    known = {(one.seed, one.reported.chosen): one for one in baseline if one.variant == variant}
    keys = [((one.seed, one.reported.chosen), one) for one in own if one.variant == variant]
    return [(known[key], one) for key, one in keys if key in known]


def _line(recipe: str, variant: str, couples: Sequence[tuple[Record, Record]]) -> tuple[str, ...]:
    of_seeds = [_over_classes(paired(*(one.reported.evaluation for one in couple))) for couple in couples]
    shared = sorted(set.intersection(*(set(pairs.cases) for pairs in of_seeds)))
    first, second = (np.array([[values(pairs)[case] for case in shared] for pairs in of_seeds]) for values in _SIDES)
    differences = (second - first).mean(axis=0)
    low, high = bootstrap(differences) if len(shared) else (np.nan, np.nan)
    alike = all(_same_part(*couple) for couple in couples)
    return (
        recipe,
        variant or NO_VALUE,
        ", ".join(str(one.seed) for _, one in couples),
        _steps([one for _, one in couples]),
        _steps([one for one, _ in couples]),
        format_value(float(first.mean()) if shared else np.nan),
        format_value(float(second.mean()) if shared else np.nan),
        f"{differences.mean():+.2f}" if shared and alike else NO_VALUE,
        _interval(low, high) if alike else UNLIKE,
    )


def _interval(low: float, high: float) -> str:
    return NO_VALUE if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def _same_part(first: Record, second: Record) -> bool:
    """Whether two records can have been shortened by the same number, as far as their shipped recipes tell."""
    (least, most), (other_least, other_most) = map(_divisors, (first, second))
    return least <= other_most and other_least <= most


def _divisors(record: Record) -> tuple[float, float]:
    """The least and the greatest number that the shipped steps may have been divided by; stages are rounded down."""
    if not record.steps or record.recipe not in shipped_recipes():
        return 0.0, np.inf
    stages = load_recipe(record.recipe).stages
    steps = sum(stage.steps for stage in stages)
    return steps / (record.steps + len(stages)), steps / record.steps


def _over_classes(found: Sequence[Pairs]) -> Pairs:
    """The last pairs of the figure: those over the classes, or of the only class."""
    return [pairs for pairs in found if pairs.figure == FIGURE][-1]


def _first(pairs: Pairs) -> dict[str, float]:
    return dict(zip(pairs.cases, pairs.first.tolist(), strict=True))


def _second(pairs: Pairs) -> dict[str, float]:
    return dict(zip(pairs.cases, pairs.second.tolist(), strict=True))


_SIDES = (_first, _second)


def _steps(records: Sequence[Record]) -> str:
    known = sorted({record.steps for record in records if record.steps is not None})
    return ", ".join(str(steps) for steps in known) or NO_VALUE
