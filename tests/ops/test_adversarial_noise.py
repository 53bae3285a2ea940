"""Adversarial noise has a given length and direction and leaves the network unchanged."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graftseg.networks.unet import UNet2d
from graftseg.ops.perturbations import (
    adversarial_direction,
    batch_statistics_only,
    frozen_parameters,
    probabilities,
    unit_length,
)


class Ramp(nn.Module):
    """A network with foreground logit ``w · x``, one weight per pixel; its gradient is along the weights."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, images: Tensor) -> Tensor:
        z = (self.weight * images).sum((1, 2, 3), keepdim=True)
        return torch.cat([torch.zeros_like(z), z], 1)


def squared(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).square().sum()


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(1, 4), channels=st.integers(1, 3), seed=st.integers(0, 99), scale=st.sampled_from([1e-4, 1.0]))
def test_each_sample_gets_unit_length(batch: int, channels: int, seed: int, scale: float) -> None:
    noise = scale * torch.randn(batch, channels, 4, 6, generator=torch.Generator().manual_seed(seed))
    lengths = unit_length(noise).flatten(1).norm(dim=1)
    assert torch.allclose(lengths, torch.ones(batch), atol=1e-5)


def test_unit_length_by_hand() -> None:
    noise = torch.tensor([3.0, 4.0, 0.0, 0.0]).view(2, 1, 2, 1)
    assert torch.equal(unit_length(noise).flatten(), torch.tensor([0.6, 0.8, 0.0, 0.0]))


def test_adversarial_direction_is_along_the_weights() -> None:
    torch.manual_seed(0)
    weight = torch.tensor([[3.0, 0.0], [0.0, -4.0]])
    network, images = Ramp(weight), torch.zeros(3, 1, 2, 2)
    d = adversarial_direction(
        network, images, probabilities(network, images).detach(), squared, probe=0.1, iterations=1
    )
    along = (d.flatten(1) @ (weight / 5).flatten()).abs()
    assert torch.allclose(along, torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("iterations", [1, 2])
def test_network_is_unchanged(iterations: int) -> None:
    torch.manual_seed(0)
    network = UNet2d(1, 3, width=2, levels=2).train()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    images = torch.randn(2, 1, 8, 8)
    target = torch.full((2, 3, 8, 8), 1 / 3)
    d = adversarial_direction(network, images, target, squared, probe=1.0, iterations=iterations)
    assert torch.allclose(d.flatten(1).norm(dim=1), torch.ones(2), atol=1e-5)
    assert not d.requires_grad
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_batch_statistics_only_keeps_running_statistics() -> None:
    norm = nn.BatchNorm2d(1).train()
    x = 3 + 2 * torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with batch_statistics_only(norm):
        y = norm(x)
    assert y.mean().item() == pytest.approx(0, abs=1e-5)
    assert norm.num_batches_tracked is not None and norm.num_batches_tracked.item() == 0
    assert torch.equal(norm.running_mean if norm.running_mean is not None else x, torch.zeros(1))
    norm(x)
    assert norm.num_batches_tracked.item() == 1


def test_both_contexts_are_undone_after_an_error() -> None:
    norm = nn.BatchNorm2d(1)
    norm.bias.requires_grad_(False)
    with pytest.raises(RuntimeError), batch_statistics_only(norm), frozen_parameters(norm):
        assert not (norm.track_running_stats or norm.weight.requires_grad)
        raise RuntimeError
    assert norm.track_running_stats and norm.weight.requires_grad
    assert not norm.bias.requires_grad


def test_both_contexts_affect_a_compiled_network() -> None:
    """Compiled code respects norms without tracking and parameters without gradient."""
    network = nn.Sequential(nn.BatchNorm2d(1)).train()
    norm, x = network[0], torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert isinstance(norm, nn.BatchNorm2d) and norm.num_batches_tracked is not None
    network.compile(backend="eager")
    counts, moving = [], []
    for _ in range(2):
        network(x)
        with batch_statistics_only(network), frozen_parameters(network):
            moving.append(network(x).requires_grad)
        counts.append(norm.num_batches_tracked.item())
    assert counts == [1, 2] and not any(moving)
    assert network(x).requires_grad
