"""Paired comparison of two or more tested runs on the same cases."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graftseg.core.csv_tables import csv_text
from graftseg.core.errors import Code, UserError
from graftseg.core.files import json_text, read_object, write_group
from graftseg.core.predictions import find_manifest, precisions_of
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.references import TESTED_ON
from graftseg.evaluation.scores import Evaluation, Row, read_csv
from graftseg.evaluation.statistics import Effect, Pairs, effect_of, match_case_names, paired
from graftseg.evaluation.table_metrics import (
    METRIC_NAMES,
    OVERLAPS,
    format_difference,
    format_interval,
    format_value,
    plain_values,
)

HEAD = ("metric", "class", "cases", "first", "second", "difference", "95 % interval", "p", "better/worse/equal")
"""Header of the printed table."""
COLUMNS = ("first_run", "second_run", "figure", "unit", "label", "class", *Effect.__dataclass_fields__, "equal")
"""Header of ``comparison.csv``. The column ``figure`` contains the metric."""
VOLUME_TOLERANCE = 1e-6  # relative difference up to which two reference volumes count as equal


@dataclass(frozen=True)
class ScoredRun:
    """The scores of a run and their origin. Unknown values are None."""

    path: str  # folder of the run
    evaluation: Evaluation
    checkpoint: str  # how the checkpoint was selected, as text
    references: str | None  # folder or store with the reference label maps
    tested_on: str | None  # ``test_identity`` of the reference store
    trained_on: str | None  # ``identity`` of the training store
    weights_hash: str | None = None
    steps: int | None = None
    predictions: Path | None = None  # folder of the label maps

    @property
    def about(self) -> str:
        """Describe the checkpoint and, if known, the number of training steps."""
        return f"checkpoint: {self.checkpoint}" + ("" if self.steps is None else f", {self.steps:,} steps")

    @property
    def cases(self) -> set[str]:
        """Return the names of the scored cases."""
        return {row.case for row in self.evaluation.rows}


@dataclass(frozen=True)
class Comparison:
    """Paired statistics of two runs, and the cases that only one of the two runs has."""

    first: ScoredRun
    second: ScoredRun
    effects: tuple[tuple[Pairs, Effect], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    precisions: list[str] | None = None  # precision in which the label maps of each run were predicted, if it differs

    def notes(self) -> Iterator[str]:
        """Yield the paths of both runs, and notes on equal weights and on cases that are left out."""
        for position, run in (("first", self.first), ("second", self.second)):
            yield f"{position}: {run.path} ({run.about})"
        if self.first.weights_hash is not None and self.first.weights_hash == self.second.weights_hash:
            yield "both runs have the same weights"
        if self.precisions is not None:
            first, second = self.precisions
            yield f"the label maps were predicted in different precision: {first} (first) and {second} (second)"
        for position, cases in (("first", self.only_first), ("second", self.only_second)):
            if cases:
                yield f"cases left out, since only the {position} run has them: {', '.join(cases)}"

    def table_rows(self, metrics: Collection[str] = tuple(METRIC_NAMES)) -> list[tuple[str, ...]]:
        """Return the rows of the table with the header ``HEAD``, for these metrics."""
        return [_table_row(pairs, effect) for pairs, effect in self.effects if pairs.metric in metrics]


def read_scored_run(folder: Path) -> ScoredRun:
    """Read the scores in a run folder, a record or a folder of label maps."""
    run = RunFolder(folder)
    tables = (run.predictions / "metrics.csv", folder / "metrics.csv")
    table = next((table for table in tables if table.is_file()), None)
    if table is None:
        raise _not_scored(folder)
    description = _read_optional(table.with_suffix(".json"))
    manifest = find_manifest(table.parent)
    predictions = {} if manifest is None else {"checkpoint": manifest.checkpoint, "weights": manifest.weights}
    training = _read_optional(run.manifest_file) or _read_optional(folder.parent / run.manifest_file.name)
    store, sources = training.get("store"), (description, predictions, training)
    return ScoredRun(
        path=str(folder),
        evaluation=read_csv(table),
        checkpoint=str(next((source["checkpoint"] for source in sources if "checkpoint" in source), "not known")),
        references=description.get("references"),
        tested_on=description.get(TESTED_ON),
        trained_on=store.get("identity") if isinstance(store, dict) else None,
        weights_hash=next((source["weights"] for source in sources if isinstance(source.get("weights"), str)), None),
        steps=training["steps"] if isinstance(training.get("steps"), int) else None,
        predictions=table.parent,
    )


def _not_scored(folder: Path) -> UserError:
    finding, remedy = "neither a tested run nor a record (it has no metrics.csv)", "name a run or a record"
    if runs := sorted(folder.glob("seed-*")) or sorted(folder.glob("fold-*")):
        finding, remedy = "contains several runs", f"name one of them, such as {runs[0]}"
    elif RunFolder(folder).exists:
        finding, remedy = "the run has not been tested", "run graftseg test RUN"
    return UserError(Code.NOT_TESTED, folder, finding, remedy)


def _read_optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def compare_runs(folders: Sequence[Path], read: Callable[[Path], ScoredRun] = read_scored_run) -> list[Comparison]:
    """Compare the first run with every other run. Raise an error if they were scored against different references."""
    if len(folders) < 2:
        raise UserError(Code.OPTION_INVALID, "compare", "fewer than two runs given", "name two or more runs")
    for index, folder in enumerate(folders):
        if any(folder.resolve() == other.resolve() for other in folders[:index]):
            raise UserError(Code.OPTION_INVALID, folder, "given twice", "name each run once")
    first, *others = [read(folder) for folder in folders]
    return [_compare(first, other) for other in others]


def _compare(first: ScoredRun, second: ScoredRun) -> Comparison:
    second = replace(second, evaluation=match_case_names(first.evaluation, second.evaluation))
    check_comparable(first, second)
    shared = first.cases & second.cases
    if not shared:
        finding = f"no case in common with {first.path}"
        raise UserError(Code.NOT_COMPARABLE, second.path, finding, "compare runs on the same test cases")
    effects = [(pairs, effect_of(pairs)) for pairs in paired(first.evaluation, second.evaluation)]
    only_first, only_second = (tuple(sorted(run.cases - shared)) for run in (first, second))
    folders = [run.predictions for run in (first, second) if run.predictions is not None]
    precisions = precisions_of(folders, shared)
    return Comparison(first, second, tuple(effects), only_first, only_second, precisions)


def write_comparison(comparisons: Sequence[Comparison], folder: Path, picture: str) -> None:
    """Write ``comparison.csv``, ``comparison.json`` (with differences of all cases) and ``comparison.svg``, or none."""
    lines = [
        list(_entry(comparison, pairs, effect).values())
        for comparison in comparisons
        for pairs, effect in comparison.effects
    ]
    differences = json_text([_to_json(comparison) for comparison in comparisons])
    contents = {".csv": csv_text([COLUMNS, *lines]), ".json": differences, ".svg": picture}
    write_group({folder / f"comparison{suffix}": content for suffix, content in contents.items()})


def unit_of(metric: str) -> str:
    """Return the unit of one of the four compared metrics."""
    return "percent" if metric in OVERLAPS else "voxel"


def _table_row(pairs: Pairs, effect: Effect) -> tuple[str, ...]:
    return (
        f"{METRIC_NAMES[pairs.metric]} {'%' if pairs.metric in OVERLAPS else 'voxel'}",
        pairs.name,
        str(effect.count),
        format_value(effect.first),
        format_value(effect.second),
        format_difference(effect.difference),
        format_interval(effect.low, effect.high),
        "-" if math.isnan(effect.p) else f"{effect.p:.2g}",
        f"{effect.better}/{effect.worse}/{effect.equal}",
    )


def _entry(comparison: Comparison, pairs: Pairs, effect: Effect) -> dict[str, Any]:
    """Return the cells of a CSV line by column, with None for NaN."""
    runs = (comparison.first.path, comparison.second.path)
    metric = (pairs.metric, unit_of(pairs.metric), pairs.label, pairs.name)
    values = plain_values(asdict(effect)).values()
    return dict(zip(COLUMNS, (*runs, *metric, *values, effect.equal), strict=True))


def _to_json(comparison: Comparison) -> dict[str, Any]:
    runs = {"first": comparison.first, "second": comparison.second}
    return {
        **{name: {"run": run.path, "checkpoint": run.checkpoint, "steps": run.steps} for name, run in runs.items()},
        "protocol": comparison.first.evaluation.protocol,
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
        "figures": [
            {
                **_entry(comparison, pairs, effect),
                "differences": dict(zip(pairs.cases, pairs.differences.tolist(), strict=True)),
            }
            for pairs, effect in comparison.effects
        ],
    }


def check_comparable(first: ScoredRun, second: ScoredRun) -> None:
    """Raise an error if two runs differ in protocol, classes or references."""
    protocol, expected = second.evaluation.protocol, first.evaluation.protocol
    if protocol != expected:
        finding = f"scored with the protocol {protocol}, but {first.path} was scored with {expected}"
        raise UserError(Code.NOT_COMPARABLE, second.path, finding, "evaluate both with the same --protocol")
    classes = [{row.label: row.name for row in run.evaluation.rows} for run in (first, second)]
    if classes[0] != classes[1]:
        listed = [", ".join(f"{name} ({label})" for label, name in names.items()) for names in classes]
        finding = f"its classes are {listed[1]}, but the classes of {first.path} are {listed[0]}"
        raise UserError(Code.NOT_COMPARABLE, second.path, finding, "compare runs on the same data")
    pairs = _rows_with_volumes(first, second)
    for row, second_row in pairs:
        first_ml, second_ml = row.volume_reference_ml, second_row.volume_reference_ml
        if not math.isclose(first_ml, second_ml, rel_tol=VOLUME_TOLERANCE):
            finding = (
                f"the reference of {row.case} has {second_ml:g} ml of {row.name}, but in {first.path} {first_ml:g} ml"
            )
            raise UserError(Code.NOT_COMPARABLE, second.path, finding, "compare runs on the same data")
    if not pairs and not _have_same_references(first, second):
        finding = f"cannot verify that it was scored against the same references as {first.path}"
        remedy = "evaluate both runs on this machine with the same --reference"
        raise UserError(Code.NOT_COMPARABLE, second.path, finding, remedy)


def check_same_cases(first: ScoredRun, second: ScoredRun) -> None:
    """Raise an error if two runs were scored on different cases."""
    if different := sorted(first.cases ^ second.cases):
        finding = f"not scored on the same cases as {first.path} ({len(different)} differ, such as {different[0]})"
        raise UserError(Code.NOT_COMPARABLE, second.path, finding, "test both runs on the same cases")


def _rows_with_volumes(first: ScoredRun, second: ScoredRun) -> list[tuple[Row, Row]]:
    """Pair the rows of the same case and class if the reference volume is known in both runs."""
    first_rows, second_rows = (
        {(row.case, row.label): row for row in run.evaluation.rows if not math.isnan(row.volume_reference_ml)}
        for run in (first, second)
    )
    return [(row, second_rows[key]) for key, row in first_rows.items() if key in second_rows]


def _have_same_references(first: ScoredRun, second: ScoredRun) -> bool:
    """Return whether two runs agree in the most reliable origin of the references that is known for both.

    The training store is the least reliable one: its identity leaves out the test cases, although runs of one store
    usually have the same references.
    """
    origins = [(run.tested_on, run.references, run.trained_on) for run in (first, second)]
    known = [pair for pair in zip(*origins, strict=True) if None not in pair]
    return bool(known) and known[0][0] == known[0][1]
