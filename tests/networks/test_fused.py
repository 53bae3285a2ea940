"""Fused networks: equal to the network in eval mode, with fewer layers."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from graftseg.networks.encoder_decoder import Extensible
from graftseg.networks.fused import FusedConvolution, fuse, has_fused_convolution
from graftseg.networks.unet import UNet2d
from graftseg.networks.vnet import VNet

NETWORKS: dict[str, Callable[[], Extensible]] = {
    "vnet-bn": lambda: VNet(1, 3, width=4, levels=3),
    "vnet-in": lambda: VNet(1, 3, width=4, levels=3, norm="instance"),
    "unet-2d": lambda: UNet2d(2, 3, width=4, levels=3),
}


def network(name: str) -> Extensible:
    """Return a network in eval mode whose norms have learned statistics."""
    torch.manual_seed(0)
    built = NETWORKS[name]()
    for part in built.modules():
        if isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
            assert part.running_mean is not None and part.running_var is not None
            for values, low, high in (
                (part.running_mean, -0.5, 0.5),
                (part.running_var, 0.5, 2.0),
                (part.weight.data, 0.5, 1.5),
                (part.bias.data, -0.5, 0.5),
            ):
                values.uniform_(low, high)
    return built.eval()


@pytest.mark.parametrize("is_leaky", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_fused_network_computes_the_same(name: str, is_leaky: bool) -> None:
    plain = network(name)
    if is_leaky:
        plain.use_leaky_relu()
    fused = copy.deepcopy(plain)
    fuse(fused)
    images = torch.randn(2, 2 if name == "unet-2d" else 1, *[16] * plain.dimensions)
    with torch.inference_mode():
        torch.testing.assert_close(fused(images), plain(images), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d) for part in fused.modules())
    if has_fused_convolution():
        assert any(isinstance(part, FusedConvolution) for part in fused.modules())


def test_without_onednn_only_norms_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graftseg.networks.fused.has_fused_convolution", lambda: False)
    plain = network("vnet-bn")
    fused = copy.deepcopy(plain)
    fuse(fused)
    images = torch.randn(1, 1, 16, 16, 16)
    with torch.inference_mode():
        torch.testing.assert_close(fused(images), plain(images), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, FusedConvolution | nn.BatchNorm3d) for part in fused.modules())


def test_features_have_the_autocast_precision_and_logits_have_float32() -> None:
    fused = network("vnet-bn")
    fuse(fused)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        features = fused.encode(torch.randn(1, 1, 16, 16, 16))
        logits = fused.head(fused.decode(features))
    assert {level.dtype for level in features} == {torch.bfloat16}
    assert logits.dtype == torch.float32
