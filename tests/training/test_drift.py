"""Self-training that drifts is stopped, goes back to the last good network and resumes exactly."""

import signal
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file

from graftseg import api
from graftseg.core.errors import StoppedError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.recipes.recipe import Recipe
from graftseg.training import loop, teacher_check, unlabeled_predictions

pytestmark = pytest.mark.slow

ADAM = {"name": "adam", "learning_rate": 0.01}


def recipe() -> Recipe:
    stages = [
        {"method": "supervised", "steps": 3, "optimizer": ADAM},
        {"method": "bcp", "steps": 10, "optimizer": ADAM, "check_teacher": True},
    ]
    loop = tiny.recipe_tree()["loop"] | {"checkpoint_every": 2}
    return tiny.tiny_recipe(stages=stages, loop=loop)


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Accept every prediction of the untrained network before self-training."""
    monkeypatch.setattr(teacher_check.UsualAnatomy, "implausibility", lambda usual, scan: None)
    return tiny.write_scans(tmp_path / "scans")


def drifting_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    calls = []

    def drifted(before: Any, now: Any, usual: Any) -> tuple[int, str] | None:
        calls.append(now)
        return (1, "grew") if len(calls) == call else None

    monkeypatch.setattr(unlabeled_predictions, "drifted_class", drifted)


def checks(folder: Path) -> list[tuple[str, int]]:
    return [(check.decision, check.step) for check in RunFolder(folder).teacher_checks()]


def test_without_a_drift_the_stage_ends(scans: Path, tmp_path: Path) -> None:
    api.train(recipe(), scans, tmp_path / "run", device="cpu")
    assert checks(tmp_path / "run")[0] == ("continue", 0)


def test_a_drift_ends_the_stage_and_training_continues_with_labels(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, bool]] = []
    draw = Batches.draw

    def counted(batches: Batches, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        used.append((stage, unlabeled))
        return draw(batches, stage, step, unlabeled=unlabeled)

    monkeypatch.setattr(unlabeled_predictions, "training_images", lambda *batches, **options: ())
    monkeypatch.setattr(Batches, "draw", counted)
    drifting_at(monkeypatch, 2)
    outcome = api.train(recipe(), scans, tmp_path / "run", device="cpu")
    assert outcome.steps == 13 and checks(tmp_path / "run") == [("continue", 0), ("stop", 4)]
    assert used == [(0, False)] * 3 + [(1, True)] * 4 + [(2, False)] * 6


def test_a_stopped_run_resumes_to_the_same_weights(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drifting_at(monkeypatch, 2)
    api.train(recipe(), scans, tmp_path / "whole", device="cpu")
    draw = Batches.draw

    def cut(batches: Batches, stage: int, step: int, *, unlabeled: bool = True) -> Any:
        if (stage, step) == (2, 3):
            raise StoppedError(signal.SIGTERM, step)
        return draw(batches, stage, step, unlabeled=unlabeled)

    drifting_at(monkeypatch, 2)
    monkeypatch.setattr(Batches, "draw", cut)
    with pytest.raises(StoppedError):
        api.train(recipe(), scans, tmp_path / "cut", device="cpu")
    monkeypatch.setattr(Batches, "draw", draw)
    api.train(recipe(), scans, tmp_path / "cut", device="cpu", resume=True)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_check_without_its_checkpoint_is_made_again(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends after the check is written and before the checkpoint of the restored network."""
    drifting_at(monkeypatch, 2)
    api.train(recipe(), scans, tmp_path / "whole", device="cpu")
    drifting_at(monkeypatch, 2)
    save = loop._save

    def cut(at: loop.Position, parts: Any) -> None:
        if any(check.decision == "stop" for check in parts.run.teacher_checks()):
            raise KeyboardInterrupt
        save(at, parts)

    monkeypatch.setattr(loop, "_save", cut)
    with pytest.raises(KeyboardInterrupt):
        api.train(recipe(), scans, tmp_path / "cut", device="cpu")
    assert checks(tmp_path / "cut")[-1] == ("stop", 4)
    monkeypatch.setattr(loop, "_save", save)
    # the last checkpoint is that of step 3, so the first prediction after it is the one at step 4
    drifting_at(monkeypatch, 1)
    api.train(recipe(), scans, tmp_path / "cut", device="cpu", resume=True)
    assert checks(tmp_path / "cut") == checks(tmp_path / "whole")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)
