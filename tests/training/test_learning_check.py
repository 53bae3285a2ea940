"""Warnings at the end of training about classes that were not learned and losses that did not fall."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine
from tiny import tiny_recipe

from graftseg.core.errors import Code
from graftseg.core.files import write_json
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import Method
from graftseg.training import learning_check
from graftseg.training.learning_check import (
    LearningWarning,
    labeled_dice,
    learning_warnings,
    require_learned,
    warnings_in,
)
from graftseg.training.selection import CaseScores
from user_errors import user_error


def log_of(*totals: float) -> list[dict[str, Any]]:
    return [{"stage": 0, "total": total, "global_step": step} for step, total in enumerate(totals, 1)]


FALLING = log_of(*[1.0 - 0.01 * step for step in range(50)])


def test_a_lost_class_is_named() -> None:
    assert learning_warnings({"a": 0.9, "b": 0.05}, FALLING) == []
    (warning,) = learning_warnings({"left": 0.9, "right": 0.049}, FALLING)
    assert "right" in warning.finding and "4.9 %" in warning.finding


def test_scans_without_a_class_do_not_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a class that the network never predicts would have a Dice of 1 in these scans."""

    class Scored(CaseScores):
        def __call__(self, method: Method) -> dict[str, float]:
            return {"dice": math.nan, "dice a": 0.0, "dice b": math.nan} if self._present_only else {}

    monkeypatch.setattr(learning_check, "CaseScores", Scored)
    recipe, device = tiny_recipe(), torch.device("cpu")
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), device)
    assert labeled_dice(recipe, store, method, device) == {"a": 0.0}


def test_a_flat_loss() -> None:
    assert len(learning_warnings({}, log_of(*[1.0] * 20))) == 1
    assert learning_warnings({}, log_of(*[1.0] * 10, *[0.9] * 10)) == []
    assert learning_warnings({}, []) == learning_warnings({}, log_of(1.0)) == []


def test_other_stages_and_scores_are_ignored() -> None:
    later = [{"stage": 1, "total": 5.0, "global_step": 60}, {"stage": 0, "dice": 0.1, "global_step": 50}]
    assert learning_warnings({}, [*FALLING, *later]) == []


def finished(run: RunFolder, *warnings: str) -> RunFolder:
    run.update_manifest(
        {"status": "finished", "warnings": [{"finding": finding, "remedy": "train longer"} for finding in warnings]}
    )
    run.recipe_file.write_text("")
    return run


def with_folds(run: RunFolder, *warnings: str) -> RunFolder:
    """Write two finished folds, the second with these warnings."""
    run.path.mkdir(parents=True)
    write_json(run.folds_file, {"folds": [{"held_out": ["a"]}, {"held_out": ["b"]}]})
    finished(run.fold(0))
    finished(run.fold(1), *warnings)
    return run


def test_runs_without_warnings_have_learned(tmp_path: Path) -> None:
    run = with_folds(RunFolder(tmp_path / "run"))
    with_folds(run.baseline)
    require_learned([run, finished(RunFolder(tmp_path / "single"))])


def test_every_fold_and_every_baseline_must_have_learned(tmp_path: Path) -> None:
    run = with_folds(RunFolder(tmp_path / "run"), "class ring not learned")
    with user_error(Code.CLASS_NOT_LEARNED, run.fold(1).path, "ring"):
        require_learned([finished(RunFolder(tmp_path / "single")), run])
    other = with_folds(RunFolder(tmp_path / "other"))
    with_folds(other.baseline, "the loss did not fall")
    with user_error(Code.CLASS_NOT_LEARNED, other.baseline.fold(1).path, "loss"):
        require_learned([other])
    single = finished(RunFolder(tmp_path / "last"))
    finished(single.baseline, "the loss did not fall")
    with user_error(Code.CLASS_NOT_LEARNED, single.baseline.path, "loss"):
        require_learned([single])


def test_warnings_of_older_versions_are_sentences() -> None:
    (warning,) = warnings_in({"warnings": ["class ring not learned; train longer"]})
    assert warning.finding == "class ring not learned; train longer" and warnings_in({}) == []


def test_strict_checks_folds(store: Store, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    warning = LearningWarning("class ring not learned")
    monkeypatch.setattr(learning_check, "learning_warnings", lambda dice, log: [warning])
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(tiny_recipe(stages=[{"method": "supervised", "steps": 1}]).to_yaml())
    options = ("--data", store.path, "--out", tmp_path / "run", "--folds", 2, "--device", "cpu")
    status, _, error = cli("train", recipe, *options, "--strict")
    assert status == 2 and f"[{Code.CLASS_NOT_LEARNED}]" in error and "fold-0" in error
    cli.works("train", recipe, *options, "--resume")
