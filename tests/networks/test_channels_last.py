"""The layout of features and gradients with channels last."""

import pytest
import torch
from torch import Tensor, nn

from graftseg.networks import NetworkName, NetworkSettings, build_network, dimensions_of
from graftseg.networks.channels_last import keep_gradient_channels_last, to_unambiguous_channels_last


def has_channels_last(x: Tensor) -> bool:
    return x.stride(1) == 1 and sorted(x.stride()[2:], reverse=True) == list(x.stride()[2:])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("space", [(4, 6), (4, 6, 2)])
def test_values_stay_and_channels_are_last(channels: int, space: tuple[int, ...]) -> None:
    x = torch.randn(2, channels, *space).transpose(2, 3)
    assert torch.equal(to_unambiguous_channels_last(x), x)
    assert has_channels_last(to_unambiguous_channels_last(x))


def test_gradient_has_channels_last() -> None:
    x, gradients = torch.randn(2, 3, 4, 6, 2, requires_grad=True), list[Tensor]()
    features = keep_gradient_channels_last(x * 1)
    features.register_hook(gradients.append)  # type: ignore[no-untyped-call]
    weight = torch.randn(2, 3, 4, 6, 2)
    (features * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(gradients[0], weight) and has_channels_last(gradients[0])


@pytest.mark.parametrize("name", ["vnet-bn", "unet-2d"])
@pytest.mark.parametrize("channels", [1, 2])
def test_all_features_and_gradients_have_channels_last(name: NetworkName, channels: int) -> None:
    settings = NetworkSettings(name=name, width=2, levels=3, leaky=True, channels_last=True)
    network = build_network(settings, channels, 3)
    found = []

    def check(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        found.append(has_channels_last(output))
        output.register_hook(lambda gradient: found.append(has_channels_last(gradient)))  # type: ignore[no-untyped-call]

    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d | nn.ConvTranspose3d) and module not in network.head.modules():
            module.register_forward_hook(check)
    images = torch.randn(2, channels, *(8,) * dimensions_of(name))
    network(images).square().sum().backward()
    assert found and all(found)


@pytest.mark.parametrize("name", ["vnet-bn", "unet-2d"])
def test_gradients_change_only_by_rounding(name: NetworkName) -> None:
    gradients = []
    images = torch.randn(2, 1, *(8,) * dimensions_of(name), dtype=torch.float64)
    for last in (False, True):
        torch.manual_seed(0)
        settings = NetworkSettings(name=name, width=2, levels=3, dropout=False, channels_last=last)
        network = build_network(settings, 1, 3).double()
        network(images).square().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other)
