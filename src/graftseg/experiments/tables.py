"""The paper's tables: recorded and published scores of each row, as Markdown."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.evaluation.statistics import bootstrap, paired
from graftseg.evaluation.table_metrics import (
    METRIC_NAMES,
    NO_VALUE,
    format_difference,
    format_interval,
    format_value,
    mean_metrics,
    spreads,
)
from graftseg.experiments.paper import ALL, TABLES, Row, benchmark_of
from graftseg.experiments.recording import check_same_cases, check_same_settings
from graftseg.experiments.records import Record, Scored, read_records
from graftseg.recipes.baseline import SUPERVISED
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import Published, load_recipe

HEAD = (
    "row", "recipe", "variant", "seeds", "checkpoint", *METRIC_NAMES.values(),
    "published", "published checkpoint selected on", "our best on test (oracle)",
)  # fmt: skip
INTRODUCTION = """\
# Tables

`make docs` generates this page from the records in `results/` and the published results in the recipes. Rows are in the
order of the BCP paper, followed by recipes that are not in this paper. [Run a table](../how-to/run-a-table.md) explains
how to add results.
"""
LEGEND = """\
- Dice and Jaccard are in percent, 95HD and ASD in voxels. Each value is averaged over the test cases and the classes of
  a run. With several seeds, a cell shows mean ± standard deviation over the seeds. A dash means that there is no value.
  In the column "variant", a dash means that the run has no difference from the recipe.
- "variant" names a difference from the recipe, such as fewer steps. `results/README.md` explains all variants.
- "checkpoint" says how our checkpoint was selected. `last` is the last checkpoint of training. If a run reports its
  last checkpoint and also scored the validation cases during training, another row shows `best on validation`, the
  checkpoint with the best Dice on these cases.
- "published checkpoint selected on" names the cases on which the published checkpoint was selected as the best. `last`
  means that the last checkpoint was published. `unknown` means that the selection is not known.
- "published" and "our best on test (oracle)" contain Dice / Jaccard / 95HD / ASD. The oracle is our checkpoint with the
  best Dice on the test cases during training, so its scores are optimistic. Compare it only with results selected on
  test cases. Scores during training are less exact than the final test, so the oracle can be worse than `last`.
- If a prediction misses a class completely, 95HD and ASD of this class are the diagonal of the image. The public code
  uses 0, which makes published distances smaller. Where we use 0, too, the column "checkpoint" says so.
"""
BASELINE_LEGEND = """\
A second table compares methods with supervised runs of the same setting (data set and number of labeled scans), variant
and seed. The difference in Dice is averaged over the seeds that both have. Its 95 % interval is computed over the test
cases. No difference is given if method and baseline were trained with different fractions of their recipes' steps.
"""
BASELINE_TITLE = "Compared with the supervised baseline of the same setting and variant:"
Lines = Sequence[Sequence[str]]


def tables_page(results: Path) -> str:
    """Return all tables with an explanation, as Markdown."""
    parts = [f"## {entry.title}\n\n{table(name, results)}" for name, entry in TABLES.items()]
    return "\n".join([INTRODUCTION, LEGEND, BASELINE_LEGEND, *parts])


def table_page(name: str, results: Path) -> str:
    """Return one table with its title and legend, as Markdown."""
    text = table(name, results)
    legends = [LEGEND, *([BASELINE_LEGEND] if BASELINE_TITLE in text else [])]
    return "\n".join([f"## {TABLES[name].title}\n", text, *legends])


def table(name: str, results: Path) -> str:
    """Return a table as Markdown. A table of methods is followed by a comparison with supervised runs."""
    rows = rows_of(name)
    records = {row.recipe: read_records(results, row.recipe) for row in rows}
    lines = [line for row in rows for line in _lines(row, records[row.recipe])]
    text = markdown([HEAD, *lines]) + "".join(
        _store_warning(line) for recorded in records.values() for line in lines_of(recorded)
    )
    compared = gains(records) if TABLES[name].of_methods else []
    return f"{text}\n{BASELINE_TITLE}\n\n{markdown(compared)}" if compared else text


def rows_of(name: str) -> list[Row]:
    """Return the rows of a table. A table of methods ends with shipped recipes that the paper does not contain."""
    if name not in TABLES:
        raise UserError(Code.UNKNOWN_NAME, f"table {name}", "unknown", f"choose one of {', '.join([*TABLES, ALL])}")
    rows = list(TABLES[name].rows)
    if not TABLES[name].of_methods:
        return rows
    in_paper = {row.recipe for entry in TABLES.values() for row in entry.rows}
    extra = [recipe for recipe in shipped_recipes() if benchmark_of(recipe) == name and recipe not in in_paper]

    def labels_and_method(row: Row) -> tuple[int, str]:
        count = row.recipe.partition("/")[0].rpartition("-")[2]
        return int(count) if count.isdigit() else 0, row.name

    return rows + sorted((Row(recipe.partition("/")[2], recipe) for recipe in extra), key=labels_and_method)


def markdown(lines: Lines) -> str:
    """Return lines of cells as a Markdown table. The first line is the head."""
    head, *rest = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rest))


def _store_warning(members: Sequence[Record]) -> str:
    """Return a warning if the records of a line were trained on different stores, or an empty string."""
    if len({record.identity for record in members} - {None}) < 2:
        return ""
    *others, last = (str(record.seed) for record in members)
    variant = f", {members[0].variant}," if members[0].variant else ""
    seeds = f"Seeds {', '.join(others)} and {last} of {members[0].recipe}{variant}"
    return f"\n{seeds} were trained on stores that differ.\n"


def _lines(row: Row, records: Sequence[Record]) -> list[list[str]]:
    shipped = row.recipe in shipped_recipes()
    published = _published(load_recipe(row.recipe).published if shipped else None)
    if not records:
        return [[row.name, row.recipe, *[NO_VALUE] * 7, *published, NO_VALUE]]
    lines = []
    for members in lines_of(records):
        first, *others = result_lines(members)
        lines.append([row.name, row.recipe, *first, *published, _oracle(members)])
        lines += [[row.name, row.recipe, *other, *published, NO_VALUE] for other in others]
    return lines


def lines_of(records: Sequence[Record]) -> list[list[Record]]:
    """Group the records of a recipe into the lines of a table. Raise if a line mixes different settings or cases."""
    ordered = sorted(records, key=lambda record: (*_group(record), record.seed))
    lines = [list(members) for _, members in groupby(ordered, key=_group)]
    for first, *others in lines:
        for other in others:
            check_same_cases(first, other)
            check_same_settings(first, other.settings, other.name)
    return lines


def _group(record: Record) -> tuple[str, str]:
    """Return the variant and the rules for checkpoints and empty masks, which all records of a line share."""
    return record.variant, record.reported.chosen


def result_lines(records: Sequence[Record]) -> list[list[str]]:
    """Return the cells of the reported checkpoints and, in a second line, of the best checkpoints on validation cases.

    The second line exists if every run reports its last checkpoint and recorded its best checkpoint on validation.
    """
    best = _best_on("validation", records)
    report_last = best and all(record.reported.selected_on is None for record in records)
    return [_cells(records, [record.reported for record in records]), *([_cells(records, best)] if report_last else [])]


def _cells(records: Sequence[Record], scored: Sequence[Scored]) -> list[str]:
    statistics = spreads([mean_metrics(checkpoint.evaluation) for checkpoint in scored])
    seeds = ", ".join(str(record.seed) for record in records)
    return [records[0].variant or NO_VALUE, seeds, scored[0].chosen, *(str(statistics[name]) for name in METRIC_NAMES)]


def _best_on(split: str, records: Sequence[Record]) -> list[Scored]:
    """Return the best checkpoint of every run on a split, or an empty list if a run did not record it."""
    checkpoints = [record.best_checkpoint for record in records]
    best = [scored for scored in checkpoints if scored and scored.selected_on == split]
    return best if len(best) == len(records) else []


def _oracle(records: Sequence[Record]) -> str:
    """Return the mean scores of the best checkpoints on the test cases, if every run of the line recorded them."""
    best = _best_on("test", records)
    if not best:
        return NO_VALUE
    statistics = spreads([mean_metrics(scored.evaluation) for scored in best])
    return " / ".join(format_value(statistics[name].mean) for name in METRIC_NAMES)


def _published(published: Published | None) -> list[str]:
    if published is None:
        return [NO_VALUE, NO_VALUE]
    scores = " / ".join(format_value(getattr(published, name)) for name in METRIC_NAMES)
    return [scores, published.selection + (f" ({published.note})" if published.note else "")]


COMPARED_METRIC = "dice"
DIFFERENT_FACTORS = "not comparable: shortened by different factors"
GAINS_HEAD = (
    "recipe", "variant", "seeds", "steps", "steps of the baseline", f"{METRIC_NAMES[COMPARED_METRIC]} of the baseline",
    METRIC_NAMES[COMPARED_METRIC], "difference", "95 % interval",
)  # fmt: skip


def gains(records: Mapping[str, Sequence[Record]]) -> list[tuple[str, ...]]:
    """Return a head and one line for each recipe and variant that has a seed in common with its supervised baseline.

    The keys of ``records`` are recipes. Pairs with different rules for checkpoints or empty masks are skipped. No
    difference is printed for pairs that were shortened by different factors. Raise if a pair was scored on different
    cases or references.
    """
    lines = []
    for recipe, recorded in records.items():
        setting, _, method = recipe.partition("/")
        baseline = records.get(f"{setting}/{SUPERVISED}", ())
        if method == SUPERVISED:
            continue
        for variant in sorted({record.variant for record in recorded}):
            pairs = _pairs(baseline, recorded, variant)
            for pair in pairs:
                check_same_cases(*pair)
            if pairs:
                lines.append(_gain(recipe, variant, pairs))
    return [GAINS_HEAD, *lines] if lines else []


def _pairs(baseline: Sequence[Record], records: Sequence[Record], variant: str) -> list[tuple[Record, Record]]:
    """Pair records with baselines of the same variant, seed, and rules for checkpoints and empty masks."""
    baselines = {(record.seed, record.reported.chosen): record for record in baseline if record.variant == variant}
    keys = [((record.seed, record.reported.chosen), record) for record in records if record.variant == variant]
    return [(baselines[key], record) for key, record in keys if key in baselines]


def _gain(recipe: str, variant: str, pairs: Sequence[tuple[Record, Record]]) -> tuple[str, ...]:
    """Return the line of a recipe: Dice of recipe and baseline, the difference and its interval over the test cases."""
    # `paired` returns items for each class and, if there are several classes, a last item for their mean
    paired_by_seed = [paired(baseline.evaluation, record.evaluation) for baseline, record in pairs]
    by_seed = [[item for item in items if item.metric == COMPARED_METRIC][-1] for items in paired_by_seed]
    shared = sorted(set.intersection(*(set(seed.cases) for seed in by_seed)))
    indices = [[seed.cases.index(case) for case in shared] for seed in by_seed]
    first = np.array([seed.first[index] for seed, index in zip(by_seed, indices, strict=True)])
    second = np.array([seed.second[index] for seed, index in zip(by_seed, indices, strict=True)])
    differences = (second - first).mean(axis=0)
    low, high = bootstrap(differences) if len(shared) else (np.nan, np.nan)
    factors = [(_possible_factors(baseline), _possible_factors(record)) for baseline, record in pairs]
    comparable = all(low <= other_high and other_low <= high for (low, high), (other_low, other_high) in factors)
    return (
        recipe,
        variant or NO_VALUE,
        ", ".join(str(record.seed) for _, record in pairs),
        _steps([record for _, record in pairs]),
        _steps([baseline for baseline, _ in pairs]),
        format_value(float(first.mean()) if shared else np.nan),
        format_value(float(second.mean()) if shared else np.nan),
        format_difference(differences.mean()) if shared and comparable else NO_VALUE,
        format_interval(low, high) if comparable else DIFFERENT_FACTORS,
    )


def _possible_factors(record: Record) -> tuple[float, float]:
    """Return the lowest and the highest factor of ``--shorter`` that may have given the recorded number of steps.

    Several factors are possible, because the steps of each stage are rounded down.
    """
    if not record.steps or record.recipe not in shipped_recipes():
        return 0.0, np.inf
    stages = load_recipe(record.recipe).stages
    steps = sum(stage.steps for stage in stages)
    return steps / (record.steps + len(stages)), steps / record.steps


def _steps(records: Sequence[Record]) -> str:
    counts = sorted({record.steps for record in records if record.steps is not None})
    return ", ".join(str(steps) for steps in counts) or NO_VALUE
