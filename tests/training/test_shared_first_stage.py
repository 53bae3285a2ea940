"""A run and its supervised baseline train their common first stage once, without changing a bit of either."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file

from graftseg import api
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.batches import Batches
from graftseg.recipes.baseline import baseline_of, shares_first_stage
from graftseg.recipes.recipe import Recipe

ADAM = {"name": "adam", "learning_rate": 0.01, "schedule": {"name": "poly"}}
STAGES: list[dict[str, Any]] = [
    {"method": "supervised", "steps": 4, "optimizer": ADAM},
    {"method": "bcp", "steps": 5, "optimizer": {**ADAM, "learning_rate": 0.003}},
]


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    return tiny.write_scans(tmp_path / "scans")


def recipe(**changes: Any) -> Recipe:
    return tiny.tiny_recipe(stages=STAGES, baseline=True, **changes)


def same_weights(first: Path, second: Path) -> bool:
    one, two = (load_file(path / "model.safetensors") for path in (first, second))
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_the_baseline_continues_the_first_stage_with_labels_only() -> None:
    base = baseline_of(recipe())
    assert [(stage.method, stage.steps) for stage in base.stages] == [("supervised", 4), ("supervised", 5)]
    assert [stage.optimizer.learning_rate for stage in base.stages] == [0.01, 0.003]
    assert shares_first_stage(recipe(), base)
    assert not shares_first_stage(recipe(seed=1), base) and not shares_first_stage(tiny.tiny_recipe(), base)


def test_sharing_changes_no_bit(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = Batches.draw

    def counted(batches: Batches, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        drawn.append(stage)
        return draw(batches, stage, step, unlabeled=unlabeled)

    monkeypatch.setattr(Batches, "draw", counted)
    api.train(recipe(), scans, tmp_path / "run", device="cpu")
    assert drawn == [0] * 4 + [1] * 5 + [1] * 5
    run = RunFolder(tmp_path / "run")
    assert not run.first_stage_file.exists()
    api.train(recipe(), scans, tmp_path / "alone", device="cpu", baseline=False)
    api.train(baseline_of(recipe()), scans, tmp_path / "base", device="cpu")
    assert same_weights(run.path, tmp_path / "alone") and same_weights(run.baseline.path, tmp_path / "base")
    shared, separate = (read_log(folder / "log.jsonl") for folder in (run.baseline.path, tmp_path / "base"))
    assert [line["total"] for line in shared] == [line["total"] for line in separate]


def test_a_baseline_with_another_first_stage_is_trained_from_its_start(scans: Path, tmp_path: Path) -> None:
    api.train(tiny.tiny_recipe(baseline=True), scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    assert run.baseline.manifest()["steps"] == 9 and not run.first_stage_file.exists()


@pytest.mark.slow
def test_folds_share_the_first_stage_too(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.train_folds(recipe(), scans, tmp_path / "alone", folds=2, device="cpu", baseline=False)
    api.train_folds(baseline_of(recipe()), scans, tmp_path / "base", folds=2, device="cpu")
    drawn: list[int] = []
    draw = Batches.draw

    def counted(batches: Batches, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        drawn.append(stage)
        return draw(batches, stage, step, unlabeled=unlabeled)

    monkeypatch.setattr(Batches, "draw", counted)
    api.train_folds(recipe(), scans, tmp_path / "run", folds=2, device="cpu")
    assert drawn == ([0] * 4 + [1] * 5) * 2 + [1] * 5 * 2
    run = RunFolder(tmp_path / "run")
    for number in range(2):
        assert not run.fold(number).first_stage_file.exists()
        assert same_weights(run.fold(number).path, tmp_path / "alone" / f"fold-{number}")
        assert same_weights(run.baseline.fold(number).path, tmp_path / "base" / f"fold-{number}")
