"""The average of a run and its baseline: its weights, the network that predicts, resuming and refused recipes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import CommandLine
from safetensors.torch import load_file

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.inference.model import load_network
from graftseg.planning.length import choose_average
from graftseg.training import learning_check, shipping
from graftseg.training.shipping import check_average, mean_weights
from user_errors import user_error

STAGES = [
    {"method": "supervised", "steps": 2, "optimizer": {"name": "adam"}},
    {"method": "graft", "steps": 2, "optimizer": {"name": "adam"}},
]


def recipe(**changes: Any) -> Any:
    settings: dict[str, Any] = {"stages": STAGES, "baseline": True, "average_with_baseline": True}
    return tiny.tiny_recipe(**settings | changes)


def test_mean_of_weights_by_hand() -> None:
    first = {"weight": torch.tensor([1.0, 5.0]), "steps": torch.tensor(7)}
    second = {"weight": torch.tensor([2.0, -1.0]), "steps": torch.tensor(9)}
    mean = mean_weights(first, second)
    assert mean["weight"].tolist() == [1.5, 2.0] and mean["steps"].item() == 7


def test_the_average_is_the_network_of_the_run(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    outcome = api.train(recipe(), scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    trained, baseline, used = (
        load_file(path) for path in (run.trained_file, run.baseline.weights_file, run.weights_file)
    )
    assert run.weights_file.name == "average.safetensors" and run.baseline.weights_file.name == "model.safetensors"
    assert any(not torch.equal(trained[name], baseline[name]) for name in trained)
    network = load_network(run).method.student.state_dict()
    for name, tensor in used.items():
        mean = (trained[name].double() + baseline[name].double()) / 2
        expected = mean if tensor.is_floating_point() else trained[name]
        np.testing.assert_allclose(tensor, expected, rtol=1e-6, atol=1e-7)
        assert torch.equal(tensor, network[name]) and torch.equal(tensor, outcome.method.student.state_dict()[name])
    shipped = run.shipped()
    assert shipped is not None and shipped.network == "average"
    assert run.manifest()["checkpoint"] == "last, averaged with the baseline"
    assert "average" in api.predict(run.path, scans / "imagesTs", device="cpu").network
    tested = api.test(run.path, device="cpu")
    assert list(tested.scores) == [run.path, run.baseline.path]


def test_a_resumed_run_is_averaged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = tiny.write_scans(tmp_path / "scans")

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shipping, "check_networks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            api.train(recipe(), scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    assert run.shipped() is None
    before = run.weights_file.read_bytes()
    for _ in range(2):
        outcome = api.train(recipe(), scans, tmp_path / "run", device="cpu", resume=True)
        assert run.weights_file == run.average_file and run.weights_file.read_bytes() == before
        assert torch.equal(
            next(iter(outcome.method.student.parameters())), next(iter(load_network(run).method.student.parameters()))
        )
    shipped = run.shipped()
    assert shipped is not None and shipped.network == "average"


def test_without_a_baseline_nothing_is_averaged(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    api.train(recipe(), scans, tmp_path / "run", device="cpu", baseline=False)
    run = RunFolder(tmp_path / "run")
    assert run.weights_file == run.trained_file and run.shipped() is None


def test_other_networks_and_other_first_stages_are_refused(tmp_path: Path) -> None:
    check_average(recipe())
    decoders = recipe(stages=[STAGES[0], {**STAGES[1], "method": "mc-net"}])
    with user_error(Code.RECIPE_MISMATCH, f"recipe {decoders.name}", "average_with_baseline"):
        check_average(decoders)
    alone = recipe(stages=[STAGES[1]])
    with user_error(Code.RECIPE_MISMATCH, f"recipe {alone.name}", "first stage"):
        api.train(alone, tiny.write_scans(tmp_path / "scans"), tmp_path / "run", device="cpu")
    assert not RunFolder(tmp_path / "run").exists


def test_a_useless_average_is_reported(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trained network and its baseline find all classes, but their average does not."""
    scans, file = tiny.write_scans(tmp_path / "scans"), tmp_path / "tiny.yaml"
    file.write_text(recipe().to_yaml())
    monkeypatch.setattr(learning_check, "LOST", -1.0)
    monkeypatch.setattr(learning_check, "FLAT", 10.0)

    def zeroed(first: Any, second: Any) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(learning_check, "LOST", 0.05)
        return {name: torch.zeros_like(tensor) for name, tensor in first.items()}

    monkeypatch.setattr(shipping, "mean_weights", zeroed)
    run = RunFolder(tmp_path / "run")
    options = ("--data", scans, "--out", run.path, "--device", "cpu", "--strict")
    cli.fails("train", file, *options, code=Code.CLASS_NOT_LEARNED)
    assert len(run.manifest()["warnings"]) == 1 and run.baseline.manifest()["warnings"] == []
    assert set(run.manifest()["labeled_dice"].values()) == {0.0}
    assert len(api.train(recipe(), scans, run.path, resume=True, device="cpu").warnings) == 1


@pytest.mark.parametrize(
    ("method", "short", "expected"),
    [("graft", True, True), ("bcp", True, True), ("graft", False, False), ("mc-net", True, False), (None, True, False)],
)
def test_short_plans_average(method: str | None, short: bool, expected: bool) -> None:
    assert choose_average(method, short=short).value is expected


def test_a_damaged_average_is_refused(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    api.train(recipe(), scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    data = bytearray(run.average_file.read_bytes())
    data[-1] ^= 1
    run.average_file.write_bytes(data)
    with user_error(Code.WEIGHTS_DAMAGED, run.average_file):
        load_network(run)
