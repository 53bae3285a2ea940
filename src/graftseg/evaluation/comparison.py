"""Two or more tested runs on the same cases: each beside the first, case by case and class by class."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from graftseg.core.errors import Code, UserError
from graftseg.core.files import json_text, read_object, write_group
from graftseg.core.run_folder import LOCK, LOG_REMEDY, RECORD_REMEDY, RunFolder, complete_log, read_log
from graftseg.evaluation.figures import FIGURES, SHARES, format_value
from graftseg.evaluation.scores import Evaluation, read_csv
from graftseg.evaluation.statistics import Effect, Pairs, effect_of, match_case_names, paired

HEAD = ("figure", "class", "cases", "first", "second", "difference", "95 % interval", "p", "better/worse/equal")
COLUMNS = ("first_run", "second_run", "figure", "unit", "label", "class", *Effect.__dataclass_fields__, "equal")
TEST = "test it with graftseg test RUN"


@dataclass(frozen=True)
class ScoredRun:
    """The scores of a run, under the name that it was given by, and what tells which references they are of."""

    name: str
    evaluation: Evaluation
    checkpoint: str
    references: str | None
    identity: str | None
    weights: str | None = None
    steps: int | None = None

    @property
    def about(self) -> str:
        """The checkpoint that was scored, and the steps of the training where they are told."""
        return f"checkpoint: {self.checkpoint}" + ("" if self.steps is None else f", {self.steps:,} steps")

    @property
    def cases(self) -> set[str]:
        """Names of the cases that were scored."""
        return {row.case for row in self.evaluation.rows}


@dataclass(frozen=True)
class Comparison:
    """A run beside the first: the pairs with what they say, and the cases that only one of the two has."""

    first: ScoredRun
    second: ScoredRun
    effects: tuple[tuple[Pairs, Effect], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    def said(self) -> Iterator[str]:
        """What the two runs are, and what a reader has to know of them besides the figures."""
        for place, run in (("first", self.first), ("second", self.second)):
            yield f"{place}: {run.name} ({run.about})"
        if self.first.weights is not None and self.first.weights == self.second.weights:
            yield "both are of the same network: one run, or two that ended alike"
        for place, cases in (("first", self.only_first), ("second", self.only_second)):
            if cases:
                yield f"left out, since only the {place} run has them: {', '.join(cases)}"

    def lines(self) -> list[tuple[str, ...]]:
        """The cells of the table under ``HEAD``."""
        return [_line(pairs, effect) for pairs, effect in self.effects]


def compare_runs(folders: Sequence[Path]) -> list[Comparison]:
    """Every run beside the first of them; runs that were not scored on the same references are refused."""
    if len(folders) < 2:
        raise UserError(Code.NOT_COMPARABLE, "compare", f"{len(folders)} run given", "name two runs or more")
    for place, folder in enumerate(folders):
        if any(folder.resolve() == other.resolve() for other in folders[:place]):
            raise UserError(Code.NOT_COMPARABLE, folder, "given twice", "name each run once")
    first, *others = [read_scored(folder) for folder in folders]
    return [_beside(first, other) for other in others]


def read_scored(folder: Path) -> ScoredRun:
    """The scores of a run's folder, of a record, or of a folder of label maps."""
    try:
        return _scored(folder)
    except UserError as error:
        if "permissions" in error.remedy or not _is_record(folder):
            raise
        raise UserError(error.code, error.where, error.finding, RECORD_REMEDY) from None


def _is_record(folder: Path) -> bool:
    """Whether a folder tells of a run that is not in it."""
    run = RunFolder(folder)
    kept = (folder / LOCK, run.weights_file, run.checkpoints, run.predictions)
    if not run.manifest_file.is_file() or any(path.exists() for path in kept):
        return False
    try:
        return any(folder.glob("metrics*")) or "variant" in read_object(run.manifest_file)
    except UserError:
        return False


def _scored(folder: Path) -> ScoredRun:
    run = RunFolder(folder)
    table = next((at / "metrics.csv" for at in (run.predictions, folder) if (at / "metrics.csv").is_file()), None)
    if table is None:
        raise _unscored(folder)
    about = _object(table.with_suffix(".json"))
    manifest = _object(table.parent / "manifest.json")
    facts = _object(run.manifest_file) or _object(folder.parent / run.manifest_file.name)
    _check_log(run, is_record=table.parent == folder)
    store = facts.get("store")
    words = next((said["checkpoint"] for said in (about, manifest, facts) if "checkpoint" in said), "not known")
    return ScoredRun(
        str(folder),
        read_csv(table),
        str(words),
        about.get("references"),
        store.get("identity") if isinstance(store, dict) else None,
        next((said["weights"] for said in (about, manifest, facts) if isinstance(said.get("weights"), str)), None),
        facts["steps"] if isinstance(facts.get("steps"), int) else None,
    )


def _check_log(run: RunFolder, *, is_record: bool) -> None:
    """Refuse a log that does not tell of the whole training, where a run has ended or was recorded.

    A training that goes on may be in the middle of a line, and a folder without a run has no log.
    """
    facts = _object(run.manifest_file)
    has_ended = "variant" in facts if is_record else facts.get("status") == "finished"
    if has_ended:
        steps = facts.get("steps")
        complete_log(
            run.log_file, steps if isinstance(steps, int) else None, RECORD_REMEDY if is_record else LOG_REMEDY
        )
    elif facts:
        read_log(run.log_file)


def write_comparison(comparison: Sequence[Comparison], folder: Path, picture: str) -> None:
    """Write ``comparison.csv``, a line for each figure of each class, ``comparison.json``, all pairs, and the picture.

    Where one of the three cannot be written, none is.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for beside in comparison:
        for pairs, effect in beside.effects:
            writer.writerow(["" if value is None else value for value in _entry(beside, pairs, effect).values()])
    pairs_of_all = json_text([_plain(beside) for beside in comparison])
    contents = {".csv": stream.getvalue(), ".json": pairs_of_all, ".svg": picture}
    write_group({folder / f"comparison{end}": content for end, content in contents.items()})


def _beside(first: ScoredRun, second: ScoredRun) -> Comparison:
    second = replace(second, evaluation=match_case_names(first.evaluation, second.evaluation))
    check_comparable(first, second)
    shared = first.cases & second.cases
    if not shared:
        raise UserError(
            Code.NOT_COMPARABLE,
            second.name,
            f"no case in common with {first.name}",
            "compare runs on the same test cases",
        )
    found = [(pairs, effect_of(pairs)) for pairs in paired(first.evaluation, second.evaluation)]
    apart = (tuple(sorted(one.cases - shared)) for one in (first, second))
    return Comparison(first, second, tuple(found), *apart)


def _unscored(folder: Path) -> UserError:
    if several := sorted(folder.glob("seed-*")) or sorted(folder.glob("fold-*")):
        return UserError(Code.TARGET_EXISTS, folder, "holds several runs", f"name one of them, such as {several[0]}")
    if _is_record(folder):
        return UserError(Code.NOT_COMPARABLE, folder, "there is no metrics.csv in the record", RECORD_REMEDY)
    if RunFolder(folder).exists:
        return UserError(Code.NOT_TESTED, folder, "the run has not been tested", TEST)
    return UserError(
        Code.NOT_COMPARABLE,
        folder,
        "neither a tested run nor a record (there is no metrics.csv)",
        "name a run or a record",
    )


def _object(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def unit_of(figure: str) -> str:
    """The unit of a figure, in one word."""
    return "percent" if figure in SHARES else "voxel"


def _line(pairs: Pairs, effect: Effect) -> tuple[str, ...]:
    interval = "-" if math.isnan(effect.low) else f"{_signed(effect.low)} to {_signed(effect.high)}"
    sign = " %" if pairs.figure in SHARES else " voxel"
    return (
        FIGURES[pairs.figure] + sign,
        pairs.name,
        str(effect.count),
        format_value(effect.first),
        format_value(effect.second),
        _signed(effect.difference),
        interval,
        "-" if math.isnan(effect.p) else f"{effect.p:.2g}",
        f"{effect.better}/{effect.worse}/{effect.equal}",
    )


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.2f}"


def _entry(beside: Comparison, pairs: Pairs, effect: Effect) -> dict[str, Any]:
    """A line of the table as plain values, None for what does not exist."""
    figures = {key: None if value != value else value for key, value in asdict(effect).items()}
    about = (beside.first.name, beside.second.name, pairs.figure, unit_of(pairs.figure), pairs.label, pairs.name)
    return {**dict(zip(COLUMNS, about, strict=False)), **figures, "equal": effect.equal}


def _described(run: ScoredRun) -> dict[str, Any]:
    return {"run": run.name, "checkpoint": run.checkpoint, "steps": run.steps}


def _plain(beside: Comparison) -> dict[str, Any]:
    return {
        "first": _described(beside.first),
        "second": _described(beside.second),
        "protocol": beside.first.evaluation.protocol,
        "only_first": list(beside.only_first),
        "only_second": list(beside.only_second),
        "figures": [
            {
                **_entry(beside, pairs, effect),
                "differences": dict(zip(pairs.cases, pairs.differences.tolist(), strict=True)),
            }
            for pairs, effect in beside.effects
        ],
    }


CLOSE = 1e-6


class Comparable(Protocol):
    """Scores under a name, and what tells which references they are of."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    @property
    def evaluation(self) -> Evaluation:
        """The scores."""

    @property
    def references(self) -> str | None:
        """The place of the references, where it is told."""

    @property
    def identity(self) -> str | None:
        """What the store of the training is known by, where it is told."""


def check_comparable(first: Comparable, second: Comparable) -> None:
    """Scores by another rule, of other classes or against other references cannot be paired."""
    one, two = first.evaluation.protocol, second.evaluation.protocol
    if one != two:
        finding = f"scored under the protocol {two}, and {first.name} under {one}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "evaluate both with the same --protocol")
    classes = [{row.label: row.name for row in run.evaluation.rows} for run in (first, second)]
    if classes[0] != classes[1]:
        ours, theirs = _told_apart(*classes)
        finding = f"its classes are {theirs}, and not {ours}"
        raise UserError(
            Code.NOT_COMPARABLE, second.name, f"{finding} as those of {first.name}", "compare runs on the same data"
        )
    if not (_same_volumes(first, second) or _same(first.references, second.references)):
        # without the place of the references, what the runs were trained on has to tell
        untold = first.references is None or second.references is None
        if untold and _same(first.identity, second.identity):
            return
        finding = f"nothing tells that it was scored against the same references as {first.name}"
        raise UserError(
            Code.NOT_COMPARABLE,
            second.name,
            finding,
            "evaluate both runs on this machine, against the same --reference",
        )


def check_same_cases(first: Comparable, second: Comparable) -> None:
    """Means over different cases cannot be averaged."""
    ours, theirs = ({row.case for row in run.evaluation.rows} for run in (first, second))
    if apart := sorted(ours ^ theirs):
        finding = f"not scored on the same cases as {first.name} ({len(apart)} in one of the two only: {apart[0]})"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "test both runs on the same cases")


def _told_apart(*classes: dict[int, str]) -> list[str]:
    """Classes by their names, and by their numbers too where the names alone are the same."""
    names = [", ".join(one.values()) for one in classes]
    if len(set(names)) > 1:
        return names
    return [", ".join(f"{name} ({label})" for label, name in one.items()) for one in classes]


def _same_volumes(first: Comparable, second: Comparable) -> bool:
    """Whether the references of the shared cases are of the same size; a 2-D image has no volume that could tell."""
    ours, theirs = (
        {(row.case, row.label): row.volume_reference_ml for row in run.evaluation.rows} for run in (first, second)
    )
    known = [key for key in ours.keys() & theirs.keys() if not math.isnan(ours[key] + theirs[key])]
    for key in sorted(known):
        if not math.isclose(ours[key], theirs[key], rel_tol=CLOSE):
            case, _ = key
            finding = f"the reference of {case} is of {theirs[key]:g} ml, and of {ours[key]:g} ml for {first.name}"
            raise UserError(Code.NOT_COMPARABLE, second.name, finding, "compare runs on the same data")
    return bool(known)


def _same(one: str | None, two: str | None) -> bool:
    return one is not None and one == two
