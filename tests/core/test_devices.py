"""Devices of the machine, and errors for missing devices."""

from pathlib import Path

import pytest
import torch

from graftseg.core import devices as devices_module
from graftseg.core.devices import busy_cores, choose_device, contested_cores, devices
from graftseg.core.errors import Code
from user_errors import user_error


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Simulate a number of GPUs."""
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    return count


@pytest.mark.parametrize(
    ("gpus", "name", "chosen"),
    [(0, "auto", "cpu"), (2, "auto", "cuda"), (2, "cpu", "cpu"), (1, "cuda", "cuda"), (2, "cuda:1", "cuda:1")],
    indirect=["gpus"],
)
def test_the_chosen_device(gpus: int, name: str, chosen: str) -> None:
    assert choose_device(name) == torch.device(chosen)


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_the_chosen_gpu_becomes_the_current_one(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs and kernels use the current device, even for tensors on another device."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    for name in ("cuda:1", "cpu", "cpu:0", "cuda", "auto", "cuda:0"):
        choose_device(name)
    assert current == [torch.device("cuda:1"), torch.device("cuda:0")]


@pytest.mark.parametrize(
    ("gpus", "name", "finding"),
    [
        (0, "cuda", "this machine has 0 CUDA devices"),
        (2, "cuda:2", "this machine has 2 CUDA devices"),
        (2, "mps", "unknown device"),
        (2, "gpu", "unknown device"),
        (2, "cuda:x", "unknown device"),
        (2, "cuda:256", "unknown device"),
        (2, "", "unknown device"),
    ],
    indirect=["gpus"],
)
def test_unavailable_device(gpus: int, name: str, finding: str) -> None:
    with user_error(Code.DEVICE_UNAVAILABLE, f"--device {name}", finding):
        choose_device(name)


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_gpus_come_before_the_cpu(gpus: int) -> None:
    *first, last = devices()
    assert first == ["cuda:0 GPU 0", "cuda:1 GPU 1"]
    assert last == f"cpu with {torch.get_num_threads()} threads"


@pytest.mark.parametrize(
    ("installed", "compiler", "expected"), [(True, "/usr/bin/cc", True), (True, None, False), (False, "cc", False)]
)
def test_kernels_need_triton_and_a_compiler_for_c(
    installed: bool, compiler: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices_module, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr("shutil.which", lambda name: compiler)
    assert devices_module.has_triton() is expected


def test_busy_cores_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 ticks on 8 cores, 25 are busy, so two cores are busy."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 50 800 50 0 0 0 0 0\n")
    monkeypatch.setattr(devices_module, "sleep", lambda _: stat.write_text("cpu 115 5 55 870 55 0 0 0 0 0\n"))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert busy_cores(stat=stat) == pytest.approx(2.0)
    assert busy_cores(stat=tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("busy", "threads", "cores", "contested"), [(8.0, 2, 16, 0.0), (1.5, 2, 2, 1.5), (5.0, 4, 8, 1.0)]
)
def test_cores_on_which_training_competes_with_other_programs(
    busy: float, threads: int, cores: int, contested: float
) -> None:
    assert contested_cores(busy, threads, cores) == contested
