"""Requests for several devices that cannot be met."""

import os
from pathlib import Path

import pytest
import torch
from command_line import CommandLine

from graftseg.core.errors import Code


@pytest.mark.parametrize(
    ("options", "code", "where"),
    [
        (("--devices", "4096", "--device", "cpu"), Code.DEVICE_UNAVAILABLE, "--devices 4096"),
        (("--devices", "2", "--device", "mps"), Code.DEVICE_UNAVAILABLE, "--device mps"),
        (("--devices", "2", "--seeds", "2"), Code.OPTION_CONFLICT, "--seeds"),
        (("--devices", "2", "--compare"), Code.OPTION_CONFLICT, "--compare"),
        (("--devices", "2", "--live"), Code.OPTION_CONFLICT, "--live"),
        (("--devices", "0"), Code.OPTION_INVALID, "train"),
    ],
)
def test_wrong_request(cli: CommandLine, tmp_path: Path, options: tuple[str, ...], code: Code, where: str) -> None:
    words = ("train", "demo-2d/bcp", "--data", tmp_path, "--out", tmp_path / "run", *options)
    assert where in cli.fails(*words, code=code)
    assert not (tmp_path / "run").exists()


def test_more_devices_than_gpus(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    words = ("train", "demo-2d/bcp", "--data", tmp_path, "--out", tmp_path / "run", "--devices", "4")
    assert "--devices 4" in cli.fails(*words, code=Code.DEVICE_UNAVAILABLE)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert "--device cuda:0" in cli.fails(*words, "--device", "cuda:0", code=Code.OPTION_CONFLICT)


@pytest.mark.parametrize("seconds", ["abc", "0", "-1", "nan", "inf", "1e9"])
def test_invalid_timeout(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("GRAFTSEG_RANK_TIMEOUT", seconds)
    words = ("train", "demo-2d/bcp", "--data", tmp_path, "--out", tmp_path / "run", "--devices", "2", "--device", "cpu")
    assert f"GRAFTSEG_RANK_TIMEOUT={seconds}" in cli.fails(*words, code=Code.OPTION_INVALID)


def test_only_train_runs_below_torchrun(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 prints the error, the other ranks print nothing."""
    for name, value in (("TORCHELASTIC_RUN_ID", "test"), ("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setitem(os.environ, name, value)
    cli.fails("info", tmp_path, code=Code.OPTION_CONFLICT)
    monkeypatch.setitem(os.environ, "RANK", "1")
    assert cli("info", tmp_path) == (2, "", "")
