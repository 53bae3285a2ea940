"""Sweeps over a few shipped rows on a tiny store."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml

from graftseg.data.store import Store
from graftseg.experiments import train_and_test
from graftseg.experiments.sweep import Swept, sweep


def ship_swept(folder: Path) -> None:
    """Write two rows of the table of masks, one of ACDC, and a recipe of LA that is in no table."""
    for name in ("la-4/bcp", "la-8/bcp", "la-4/extra", "acdc-3/bcp"):
        tree = tiny.recipe_tree() | {"name": name, "stages": [{"method": "supervised", "steps": 2}]}
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(tree))


class Sweeper:
    """Runs sweeps with the same tiny store for every data set and keeps the printed lines."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.runs, self.results, self.store = folder / "runs", folder / "results", store
        self.told: list[str] = []

    def __call__(self, name: str = "masks", *only: str, **settings: Any) -> Swept:
        self.told.clear()
        given: dict[str, Any] = {"data": self.store.path, "only": only or ("la-*/bcp",)} | settings
        return sweep(name, out=self.runs, results=self.results, device="cpu", tell=self.told.append, **given)

    def records(self) -> list[str]:
        """Return the paths of all records."""
        return sorted(path.parent.relative_to(self.results).as_posix() for path in self.results.rglob("record.json"))


def forbid(monkeypatch: pytest.MonkeyPatch, *steps: str) -> None:
    """Fail if one of these steps of a trial is executed, by default any: training, prediction or scoring."""

    def fail(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("must not be executed again")

    for step in steps or ("complete", "predict_scans", "score_folders"):
        monkeypatch.setattr(train_and_test, step, fail)
