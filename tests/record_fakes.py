"""Records and shipped recipes as tables read them, small enough to write by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tiny
import yaml

from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.experiments.records import Record, Scored, read_record, write_record

PUBLISHED = {
    "table": "LA",
    "row": "BCP, 8 labels",
    "dice": 89.62,
    "jaccard": 81.31,
    "hd95": 6.81,
    "asd": 1.76,
    "selection": "test list",
}
ORACLE = "best on test, step 4 (oracle)"


def ship_rows(folder: Path) -> None:
    """Write some recipes of a table."""
    for name in ("la-80/supervised", "la-8/bcp", "la-8/supervised", "la-4/bcp", "la-8/dtc", "acdc-3/bcp"):
        ship(folder, name, PUBLISHED if name == "la-8/bcp" else None)


def ship(folder: Path, name: str, published: dict[str, Any] | None) -> None:
    """Write a shipped recipe."""
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tiny.recipe_tree() | {"name": name, "published": published}))


def row(value: float, case: str = "a", volume: float = 1.0, name: str = "atrium") -> Row:
    """Return a row with the same value in every metric."""
    return Row(case, 1, name, *[*[value] * 10, volume, volume])


def record(
    results: Path,
    name: str,
    seed: int,
    value: float,
    *,
    variant: str = "",
    checkpoint: str = "last",
    best: float | None = None,
    best_checkpoint: str = ORACLE,
    protocol: Protocol = "standard",
    steps: int = 100,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write a record whose only case has the same value in every metric, and return its folder."""
    folder = results / name / (f"seed-{seed}-{variant}" if variant else f"seed-{seed}")
    facts = {"recipe": name, "seed": seed, "steps": steps, "variant": variant}
    reported = Scored(Evaluation((row(value),), protocol), {"checkpoint": checkpoint})
    oracle = None if best is None else Scored(Evaluation((row(best),), protocol), {"checkpoint": best_checkpoint})
    log = [{"global_step": steps, "total": 0.5}]
    recipe = yaml.safe_dump(tiny.recipe_tree() | {"name": name, "seed": seed} | (settings or {}))
    write_record(Record(folder, facts, reported, oracle, log), recipe)
    return folder


def rewrite(
    folder: Path, rows: Sequence[Row] = (), facts: dict[str, Any] | None = None, about: dict[str, Any] | None = None
) -> None:
    """Write a record again with other rows, or with further facts about the run or about its scores."""
    before = read_record(folder)
    evaluation = replace(before.evaluation, rows=tuple(rows) or before.evaluation.rows)
    reported = Scored(evaluation, before.reported.about | (about or {}))
    changed = replace(before, facts=before.facts | (facts or {}), reported=reported)
    write_record(changed, (folder / "recipe.yaml").read_text())
