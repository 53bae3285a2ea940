"""Networks that are too large for the memory: one error, and the folder can be used again."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_line import CommandLine, entries
from tiny import recipe_tree, tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.training import run as training
from graftseg.training.loop import Position
from user_errors import user_error

BRIEF = tiny_recipe(stages=[{"method": "supervised", "steps": 1}])


@pytest.mark.parametrize("width", [10**12, 10**19])
def test_width_is_limited(cli: CommandLine, store: Store, tmp_path: Path, width: int) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(recipe_tree()))
    words = ("train", recipe, "--data", store.path, "--out", tmp_path / "run", "--device", "cpu")
    assert "network.width" in cli.fails(*words, "--set", f"network.width={width}")
    assert not (tmp_path / "run").exists()
    cli.works(*words, "--set", "stages.0.steps=1", "--set", "stages.1.steps=1")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("CUDA error: out of memory"),
        torch.OutOfMemoryError(),
        MemoryError(),
    ],
)
def test_network_too_large_for_the_memory(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patched, user_error(Code.OUT_OF_MEMORY, "cpu", "network.width"):
        patched.setattr(training, "build_method", fails)
        api.train(BRIEF, scans, tmp_path / "run", device="cpu")
    assert not {"run.json", "recipe.yaml"} & entries(tmp_path / "run")
    api.train(BRIEF, scans, tmp_path / "run", device="cpu")


def test_activations_too_large_for_the_memory(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Position) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Position, "state", fails)
    with user_error(Code.OUT_OF_MEMORY, "cpu", "network.width"):
        api.train(tiny_recipe(), store.path, tmp_path / "run", device="cpu")
    assert RunFolder(tmp_path / "run").manifest()["status"] == "failed"


def test_other_errors_are_not_caught(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("of another kind")

    monkeypatch.setattr(training, "build_method", fails)
    with pytest.raises(RuntimeError, match="of another kind"):
        api.train(tiny_recipe(), store.path, tmp_path / "run", device="cpu")
