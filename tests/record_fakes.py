"""Records and shipped recipes as tables read them, small enough to write by hand."""

import json
from pathlib import Path
from typing import Any

import tiny
import yaml

from graftseg.core.files import write_json
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation, Row

PUBLISHED = {
    "table": "LA",
    "row": "BCP, 8 labels",
    "dice": 89.62,
    "jaccard": 81.31,
    "hd95": 6.81,
    "asd": 1.76,
    "selection": "test list",
}


def ship_rows(folder: Path) -> None:
    """Some recipes of a table."""
    for name in ("la-80/supervised", "la-8/bcp", "la-8/supervised", "la-4/bcp", "la-8/dtc", "acdc-3/bcp"):
        ship(folder, name, PUBLISHED if name == "la-8/bcp" else None)


def ship(folder: Path, name: str, published: dict[str, Any] | None) -> None:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tiny.recipe_tree() | {"name": name, "published": published}))


def write_scores(
    folder: Path,
    name: str,
    value: float,
    checkpoint: str = "last",
    protocol: Protocol = "standard",
    case: str = "a",
    volume: float = 1.0,
) -> None:
    row = Row(case, 1, "atrium", *[*[value] * 10, volume, volume])
    Evaluation((row,), protocol).write_csv(folder / f"{name}.csv")
    write_json(folder / f"{name}.json", {"checkpoint": checkpoint, "protocol": protocol})


def record(
    results: Path,
    name: str,
    seed: int,
    value: float,
    *,
    variant: str = "",
    checkpoint: str = "last",
    best: float | None = None,
    protocol: Protocol = "standard",
    steps: int = 100,
) -> None:
    folder = results / name / (f"seed-{seed}-{variant}" if variant else f"seed-{seed}")
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"seed": seed, "steps": steps}))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe_tree() | {"name": name, "seed": seed}))
    (folder / "log.jsonl").write_text(json.dumps({"global_step": steps, "total": 0.5}) + "\n")
    write_scores(folder, "metrics", value, checkpoint, protocol)
    if best is not None:
        write_scores(folder, "metrics-best", best, "best on test, step 4 (oracle)", protocol)
