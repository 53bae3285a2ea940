"""Logits have the precision that a decision between classes needs."""

import pytest
import torch
from tiny import SIDE, tiny_batch, tiny_method

from graftseg.methods import METHODS
from graftseg.methods.teachers import SelfTraining
from graftseg.networks import NETWORKS, NetworkSettings, build_network, dimensions_of
from graftseg.networks.encoder_decoder import Extensible
from graftseg.networks.heads import Head2d, Head3d
from loops import for_each


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_float32_under_bfloat16(name: str) -> None:
    torch.manual_seed(0)
    network = build_network(NetworkSettings(name=name, width=4, levels=2), 1, 3).eval()
    assert isinstance(network, Extensible)
    images = torch.randn(2, 1, *[8] * dimensions_of(name))
    with torch.autocast("cpu", torch.bfloat16):
        features, logits = network.decode(network.encode(images)), network(images)
    assert (features.dtype, logits.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(logits, network.head(features.float()), rtol=1e-5, atol=1e-5)
    assert isinstance(network.another_head(4), Head2d | Head3d)


@pytest.mark.parametrize("head", [Head2d(1, 2), Head3d(1, 2)])
def test_heads_distinguish_logits_that_bfloat16_rounds_equally(head: Head2d | Head3d) -> None:
    """The logits are 8 and 8.01; the next bfloat16 value after 8 is 8.0625."""
    assert head.bias is not None
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([8.0, 8.01]))
    features = torch.zeros(1, 1, *[4] * (head.weight.dim() - 2), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(features).argmax(1).unique().tolist() == [1]


@for_each("dimensions", [2, 3])
@for_each("name", [name for name, method in METHODS.items() if issubclass(method, SelfTraining)])
def test_teacher_logits_are_float32(name: str, dimensions: int) -> None:
    method = tiny_method(name, dimensions)
    assert isinstance(method, SelfTraining)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert method.teacher(tiny_batch(dimensions, side=SIDE).unlabeled).dtype == torch.float32
