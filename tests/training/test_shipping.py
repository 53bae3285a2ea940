"""The shipped network: chosen on held-out labels, and used by ``predict``."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from graftseg import api
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.inference.export.weights import load as load_exported
from graftseg.inference.model import load_network
from graftseg.training.shipping import shipped_after_folds, shipped_without_folds

STAGES = [
    {"method": "supervised", "steps": 2, "optimizer": {"name": "adam"}},
    {"method": "bcp", "steps": 2, "optimizer": {"name": "adam"}},
]


def scores(*dice: float) -> Evaluation:
    rows = tuple(Row(f"case{number}", 1, "a", value, value, *[1.0] * 10) for number, value in enumerate(dice))
    return Evaluation(rows, "standard")


@pytest.mark.parametrize(
    ("run", "baseline", "network"),
    [((0.8, 0.9), (0.7, 0.9), "run"), ((0.8,), (0.8,), "run"), ((0.7,), (0.71,), "baseline")],
)
def test_the_better_network_is_shipped(run: Any, baseline: Any, network: str) -> None:
    assert shipped_after_folds(scores(*run), scores(*baseline)).network == network


def test_without_held_out_labels_the_choice_is_unknown(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert shipped_without_folds(run, has_baseline=False) is None
    known = shipped_without_folds(run, has_baseline=True)
    assert known is not None and known.network == "run" and "unknown" in known.reason


@pytest.mark.parametrize(("decision", "keyword"), [("skip", "too few predictions"), ("stop", "drifted")])
def test_abandoned_self_training_ships_the_baseline(tmp_path: Path, decision: str, keyword: str) -> None:
    run = RunFolder(tmp_path)
    run.teacher_file.write_text(json.dumps({"checks": [{"decision": "continue"}, {"decision": decision}]}))
    shipped = shipped_without_folds(run, has_baseline=True)
    assert shipped is not None and shipped.network == "baseline" and keyword in shipped.reason


def test_predict_uses_the_shipped_network(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    recipe = tiny.tiny_recipe(stages=STAGES, baseline=True)
    api.train(recipe, scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    assert run.shipped() is not None and run.manifest()["shipped"]["network"] == "run"
    predicted = api.predict(run.path, scans / "imagesTs", device="cpu")
    assert predicted.folder == run.predictions and "unknown" in predicted.network
    run.ship(Shipped("baseline", "better"))
    predicted = api.predict(run.path, scans / "imagesTs", device="cpu")
    assert predicted.folder == run.baseline.predictions and predicted.network == "the supervised baseline (better)"
    assert api.rank(run.path, device="cpu").rows == api.rank(run.baseline.path, device="cpu").rows
    api.export("weights", run.path, tmp_path / "network.safetensors")
    exported, network = load_exported(tmp_path / "network.safetensors"), load_network(run.baseline)
    for name, tensor in network.method.student.state_dict().items():
        assert torch.equal(exported.method.student.state_dict()[name], tensor)


def test_folds_ship_the_better_network(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    recipe = tiny.tiny_recipe(stages=STAGES, baseline=True)
    result = api.train_folds(recipe, scans, tmp_path / "run", folds=2, device="cpu")
    shipped = RunFolder(tmp_path / "run").shipped()
    assert shipped is not None and result.baseline is not None
    assert shipped == shipped_after_folds(result.evaluation, result.baseline)
    predicted = api.predict(tmp_path / "run", scans / "imagesTs", tmp_path / "out", device="cpu")
    assert predicted.network == shipped.sentence and len(predicted.cases) == 2
