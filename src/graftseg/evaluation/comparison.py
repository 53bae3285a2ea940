"""Paired comparison of two or more tested runs on the same cases."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graftseg.core.csv_tables import csv_text
from graftseg.core.errors import Code, UserError
from graftseg.core.files import json_text, read_object, write_group
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.scores import Evaluation, read_csv
from graftseg.evaluation.statistics import Effect, Pairs, effect_of, match_case_names, paired
from graftseg.evaluation.table_metrics import METRIC_NAMES, OVERLAPS, format_difference, format_interval, format_value

HEAD = ("metric", "class", "cases", "first", "second", "difference", "95 % interval", "p", "better/worse/equal")
"""Header of the printed table."""
COLUMNS = ("first_run", "second_run", "figure", "unit", "label", "class", *Effect.__dataclass_fields__, "equal")
"""Header of ``comparison.csv``."""
VOLUME_TOLERANCE = 1e-6
"""Relative difference up to which two reference volumes count as equal."""


@dataclass(frozen=True)
class ScoredRun:
    """The scores of a run, and facts about its references, checkpoint and weights.

    ``name`` and ``references`` are paths. ``identity`` identifies the training store, and ``weights`` is a hash.
    """

    name: str
    evaluation: Evaluation
    checkpoint: str
    references: str | None
    identity: str | None
    weights: str | None = None
    steps: int | None = None

    @property
    def about(self) -> str:
        """Return the checkpoint and, if known, the number of training steps as text."""
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

    def notes(self) -> Iterator[str]:
        """Yield the names of both runs, and remarks on equal weights and on cases that are left out."""
        for order, run in (("first", self.first), ("second", self.second)):
            yield f"{order}: {run.name} ({run.about})"
        if self.first.weights is not None and self.first.weights == self.second.weights:
            yield "both runs have the same weights"
        for order, cases in (("first", self.only_first), ("second", self.only_second)):
            if cases:
                yield f"cases left out, since only the {order} run has them: {', '.join(cases)}"

    def table_rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table under ``HEAD``."""
        return [_table_row(pairs, effect) for pairs, effect in self.effects]


def compare_runs(folders: Sequence[Path], read: Callable[[Path], ScoredRun] | None = None) -> list[Comparison]:
    """Compare the first run with every other run. Raise an error if runs were scored on different references.

    ``read`` reads the scores in a folder. The default is ``read_scored_run``.
    """
    if len(folders) < 2:
        raise UserError(Code.OPTION_INVALID, "compare", "fewer than two runs given", "name two or more runs")
    for index, folder in enumerate(folders):
        if any(folder.resolve() == other.resolve() for other in folders[:index]):
            raise UserError(Code.OPTION_INVALID, folder, "given twice", "name each run once")
    first, *others = [(read or read_scored_run)(folder) for folder in folders]
    return [_compare(first, other) for other in others]


def read_scored_run(folder: Path) -> ScoredRun:
    """Read the scores in a run folder, a record or a folder of label maps."""
    run = RunFolder(folder)
    table = next(
        (parent / "metrics.csv" for parent in (run.predictions, folder) if (parent / "metrics.csv").is_file()), None
    )
    if table is None:
        raise _not_scored(folder)
    about = _read_optional(table.with_suffix(".json"))
    manifest = _read_optional(table.parent / "manifest.json")
    facts = _read_optional(run.manifest_file) or _read_optional(folder.parent / run.manifest_file.name)
    store, sources = facts.get("store"), (about, manifest, facts)
    return ScoredRun(
        str(folder),
        read_csv(table),
        str(next((source["checkpoint"] for source in sources if "checkpoint" in source), "not known")),
        about.get("references"),
        store.get("identity") if isinstance(store, dict) else None,
        next((source["weights"] for source in sources if isinstance(source.get("weights"), str)), None),
        facts["steps"] if isinstance(facts.get("steps"), int) else None,
    )


def _not_scored(folder: Path) -> UserError:
    finding, remedy = "neither a tested run nor a record (it has no metrics.csv)", "name a run or a record"
    if several := sorted(folder.glob("seed-*")) or sorted(folder.glob("fold-*")):
        finding, remedy = "contains several runs", f"name one of them, such as {several[0]}"
    elif RunFolder(folder).exists:
        finding, remedy = "the run has not been tested", "run graftseg test RUN"
    return UserError(Code.NOT_TESTED, folder, finding, remedy)


def _read_optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _compare(first: ScoredRun, second: ScoredRun) -> Comparison:
    second = replace(second, evaluation=match_case_names(first.evaluation, second.evaluation))
    check_comparable(first, second)
    shared = first.cases & second.cases
    if not shared:
        finding = f"no case in common with {first.name}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "compare runs on the same test cases")
    effects = [(pairs, effect_of(pairs)) for pairs in paired(first.evaluation, second.evaluation)]
    only_one = (tuple(sorted(run.cases - shared)) for run in (first, second))
    return Comparison(first, second, tuple(effects), *only_one)


def write_comparison(comparisons: Sequence[Comparison], folder: Path, picture: str) -> None:
    """Write ``comparison.csv``, ``comparison.json`` (with all differences) and the picture. On an error, write none."""
    lines = [
        list(_entry(comparison, pairs, effect).values())
        for comparison in comparisons
        for pairs, effect in comparison.effects
    ]
    all_pairs = json_text([_to_json(comparison) for comparison in comparisons])
    contents = {".csv": csv_text([COLUMNS, *lines]), ".json": all_pairs, ".svg": picture}
    write_group({folder / f"comparison{end}": content for end, content in contents.items()})


def unit_of(metric: str) -> str:
    """Return the unit of a metric."""
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
    values = {key: None if value != value else value for key, value in asdict(effect).items()}
    runs = (comparison.first.name, comparison.second.name)
    about = (*runs, pairs.metric, unit_of(pairs.metric), pairs.label, pairs.name)
    return {**dict(zip(COLUMNS, about, strict=False)), **values, "equal": effect.equal}


def _to_json(comparison: Comparison) -> dict[str, Any]:
    runs = [
        {"run": run.name, "checkpoint": run.checkpoint, "steps": run.steps}
        for run in (comparison.first, comparison.second)
    ]
    return {
        "first": runs[0],
        "second": runs[1],
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
        finding = f"scored with the protocol {protocol}, but {first.name} was scored with {expected}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "evaluate both with the same --protocol")
    classes = [{row.label: row.name for row in run.evaluation.rows} for run in (first, second)]
    if classes[0] != classes[1]:
        listed = [", ".join(f"{name} ({label})" for label, name in names.items()) for names in classes]
        finding = f"its classes are {listed[1]}, but the classes of {first.name} are {listed[0]}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "compare runs on the same data")
    # If the path of the references is unknown, compare the stores: the same store has the same references.
    first_source, second_source = first.references, second.references
    if first_source is None or second_source is None:
        first_source, second_source = first.identity, second.identity
    if not _check_volumes(first, second) and (first_source is None or first_source != second_source):
        finding = f"cannot verify that it was scored against the same references as {first.name}"
        remedy = "evaluate both runs on this machine with the same --reference"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, remedy)


def check_same_cases(first: ScoredRun, second: ScoredRun) -> None:
    """Raise an error if two runs were scored on different cases."""
    if different := sorted(first.cases ^ second.cases):
        finding = f"not scored on the same cases as {first.name} ({len(different)} differ, such as {different[0]})"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "test both runs on the same cases")


def _check_volumes(first: ScoredRun, second: ScoredRun) -> bool:
    """Raise an error if reference volumes of shared cases differ. Return whether any volume could be compared."""
    first_ml, second_ml = (
        {(row.case, row.label): row.volume_reference_ml for row in run.evaluation.rows} for run in (first, second)
    )
    keys = [key for key in first_ml.keys() & second_ml.keys() if not math.isnan(first_ml[key] + second_ml[key])]
    for key in sorted(keys):
        if not math.isclose(first_ml[key], second_ml[key], rel_tol=VOLUME_TOLERANCE):
            finding = (
                f"the reference of {key[0]} has {second_ml[key]:g} ml, but in {first.name} it has {first_ml[key]:g} ml"
            )
            raise UserError(Code.NOT_COMPARABLE, second.name, finding, "compare runs on the same data")
    return bool(keys)
