"""Sizes, structure and modes of the discriminators."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.errors import Code
from graftseg.networks import parameter_count
from graftseg.networks.discriminator import (
    Discriminator,
    EntropyDiscriminator,
    frozen_discriminator,
    pool_to_2x2,
    verdict_loss,
)
from user_errors import user_error


@pytest.mark.parametrize(
    ("map_channels", "dimensions", "parameters"), [(1, 3, 11_020_290), (2, 3, 11_024_386), (4, 2, 2_762_754)]
)
def test_published_parameter_counts(map_channels: int, dimensions: int, parameters: int) -> None:
    with torch.device("meta"):
        assert parameter_count(Discriminator(map_channels, 1, dimensions)) == parameters


def test_parameters_of_the_entropy_discriminator() -> None:
    channels = [2, 64, 128, 256, 512, 1]
    expected = sum(64 * before * after + after for before, after in pairwise(channels))
    with torch.device("meta"):
        assert parameter_count(EntropyDiscriminator(2, 3)) == expected == 11_051_969


@pytest.mark.parametrize("dimensions", [2, 3])
def test_discriminator_equals_four_convolutions_and_a_linear_layer(dimensions: int) -> None:
    torch.manual_seed(0)
    network = Discriminator(3, 2, dimensions).eval()
    maps, images = torch.randn(2, 3, *[32] * dimensions), torch.randn(2, 2, *[32] * dimensions)
    convolutions = [module for module in network.stages if isinstance(module, (nn.Conv2d, nn.Conv3d))]
    assert [convolution.out_channels for convolution in convolutions] == [128, 256, 512]
    x: Tensor = network.map_entry(maps) + network.image_entry(images)
    x = F.leaky_relu(x, 0.2) if dimensions == 3 else x
    for convolution in convolutions:
        x = F.leaky_relu(convolution(x), 0.2)
    assert x.shape[2:] == (2,) * dimensions
    pooled = x.mean((2, 3, 4)) if dimensions == 3 else x.flatten(1)
    torch.testing.assert_close(network(maps, images), F.linear(pooled, network.head.weight, network.head.bias))


@pytest.mark.parametrize(("dimensions", "dropouts"), [(2, 2), (3, 3)])
def test_dropout_drops_whole_channels(dimensions: int, dropouts: int) -> None:
    kind = nn.Dropout2d if dimensions == 2 else nn.Dropout3d
    layers = [module for module in Discriminator(1, 1, dimensions).modules() if isinstance(module, kind)]
    assert [layer.p for layer in layers] == [0.5] * dropouts


def test_pooling_of_the_published_size_is_7x7() -> None:
    features = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(pool_to_2x2(features), F.avg_pool2d(features, 7))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 40))
def test_pooling_of_any_size_averages(height: int, width: int) -> None:
    rows = torch.arange(float(height)).view(1, 1, -1, 1).expand(1, 1, height, width)
    pooled = pool_to_2x2(rows)
    assert pooled.shape == (1, 1, 2, 2)
    window = max(7 * height // 16, 1)
    first = (window - 1) / 2
    second = first + window if height > 1 else first
    torch.testing.assert_close(pooled[0, 0, :, 0], torch.tensor([first, second]))
    assert torch.equal(pooled[..., 0], pooled[..., 1])


@pytest.mark.parametrize(("space", "small"), [((16, 64), (1, 2)), ((32, 32), (1, 1)), ((16, 32, 80), (1, 1, 2))])
def test_entropy_map_gives_a_map_of_logits(space: tuple[int, ...], small: tuple[int, ...]) -> None:
    network = EntropyDiscriminator(2, len(space))
    assert network(torch.randn(1, 2, *space)).shape == (1, 1, *small)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_small_maps_are_rejected(dimensions: int) -> None:
    maps = torch.zeros(1, 1, *[16] * (dimensions - 1), 8)
    with user_error(Code.RECIPE_MISMATCH, "batches.patch", "16"):
        Discriminator(1, 1, dimensions)(maps, maps)
    with user_error(Code.RECIPE_MISMATCH, "batches.patch", "16"):
        EntropyDiscriminator(1, dimensions)(maps)


def test_loss_is_low_if_the_first_images_are_judged_labeled() -> None:
    logits = torch.tensor([[-9.0, 9.0], [-9.0, 9.0], [9.0, -9.0]])
    assert verdict_loss(logits, labeled=2).item() == pytest.approx(0, abs=1e-6)
    assert verdict_loss(logits, labeled=0).item() == pytest.approx(12, abs=1e-6)


def test_frozen_discriminator_passes_gradients_only_to_inputs() -> None:
    network, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    with frozen_discriminator(network):
        verdict = network(x)
    verdict.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, network.weight.detach())
    assert network.weight.grad is None and network.weight.requires_grad and network.training
