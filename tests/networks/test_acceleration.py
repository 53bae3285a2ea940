import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graftseg.networks.acceleration import accelerated, plain_layers, tf32_allowed


def test_layers_are_computed_our_way_on_a_gpu_alone() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    assert accelerated(on_gpu)
    assert not accelerated(torch.zeros(1))


def test_plain_layers_last_as_long_as_their_block() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    with plain_layers():
        with plain_layers():
            assert not accelerated(on_gpu)
        assert not accelerated(on_gpu)
    assert accelerated(on_gpu)


def test_plain_layers_end_with_an_error_too() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    with pytest.raises(ZeroDivisionError), plain_layers():
        raise ZeroDivisionError
    assert accelerated(on_gpu)


def test_tf32_is_allowed_unless_it_was_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf32_allowed()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert not tf32_allowed()


def test_tf32_may_be_forbidden_by_the_newer_names_too() -> None:
    """In a process of its own: they cannot be set back, and make the older name unreadable."""
    names = ["torch.backends.fp32_precision", "torch.backends.cudnn.conv.fp32_precision"]
    lines = ["import torch", "from graftseg.networks.acceleration import tf32_allowed"]
    for name in names:
        lines += [f"{name} = 'ieee'", "print(tf32_allowed())"]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
