"""The choice between our GPU layers and PyTorch's layers, and TF32."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graftseg.networks.acceleration import accelerated, plain_layers, tf32_allowed


def test_fast_layers_are_used_only_on_a_gpu() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    assert accelerated(on_gpu)
    assert not accelerated(torch.zeros(1))


def test_plain_layers_ends_with_the_block() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    with plain_layers():
        with plain_layers():
            assert not accelerated(on_gpu)
        assert not accelerated(on_gpu)
    assert accelerated(on_gpu)


def test_plain_layers_ends_after_an_error() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    with pytest.raises(ZeroDivisionError), plain_layers():
        raise ZeroDivisionError
    assert accelerated(on_gpu)


def test_tf32_follows_the_older_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf32_allowed()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert not tf32_allowed()


@pytest.mark.slow
def test_tf32_follows_the_newer_setting() -> None:
    """Run in a new process: the newer setting cannot be undone and makes the older one unreadable."""
    names = ["torch.backends.fp32_precision", "torch.backends.cudnn.conv.fp32_precision"]
    lines = ["import torch", "from graftseg.networks.acceleration import tf32_allowed"]
    for name in names:
        lines += [f"{name} = 'ieee'", "print(tf32_allowed())"]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
