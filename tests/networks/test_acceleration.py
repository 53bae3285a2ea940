from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graftseg.networks.acceleration import accelerated, plain_layers


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
