"""A package that ships some rows of a table, and sweeps of them on a tiny store."""

from pathlib import Path
from typing import Any

import tiny
import yaml

from graftseg.data.store import Store
from graftseg.experiments.sweep import Swept, sweep


def ship_swept(folder: Path) -> None:
    """Two rows of the masks' table, one of ACDC and a recipe of LA that is in no table."""
    for name in ("la-4/bcp", "la-8/bcp", "la-4/extra", "acdc-3/bcp"):
        tree = tiny.recipe_tree() | {"name": name, "stages": [{"method": "supervised", "steps": 2}]}
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(tree))


class Sweeper:
    """Sweeps with a tiny store for every data set."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.runs, self.results, self.store = folder / "runs", folder / "results", store
        self.told: list[str] = []

    def __call__(self, name: str = "masks", *only: str, **settings: Any) -> Swept:
        self.told.clear()
        given: dict[str, Any] = {"data": self.store.path, "only": only or ("la-*/bcp",)} | settings
        return sweep(name, out=self.runs, results=self.results, device="cpu", tell=self.told.append, **given)

    def records(self) -> list[str]:
        return sorted(path.parent.relative_to(self.results).as_posix() for path in self.results.rglob("run.json"))


def refuse(*arguments: Any, **settings: Any) -> None:
    raise AssertionError("nothing may be done again")
