"""Heads at every level: published sizes, features of each head, and perturbations only in training."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from graftseg.networks import NetworkName, Networks, NetworkSettings, dimensions_of, parameter_count
from graftseg.networks.pyramid import FeatureDropout, FeatureNoise, Pyramid

NAMES: tuple[NetworkName, ...] = ("unet-2d", "unet-3d", "vnet-bn", "vnet-in")


def tiny(name: NetworkName, levels: int = 4) -> Pyramid:
    torch.manual_seed(0)
    return Pyramid(Networks(NetworkSettings(name=name, width=2, levels=levels), 1, 3).build())


def images_for(name: NetworkName, side: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, *[side] * dimensions_of(name), generator=generator)


@pytest.mark.parametrize(
    ("name", "classes", "total", "tensors"),
    [
        ("unet-2d", 4, 1_831_060, 82 + 8),
        ("unet-3d", 2, 5_884_504, 44),
        # our generalization: V-Nets with heads of 32, 64 and 128 channels
        ("vnet-bn", 2, 9_448_866 + 454, 118 + 6),
        ("vnet-in", 2, 9_443_266 + 454, 60 + 6),
    ],
)
def test_networks_have_the_published_number_of_parameters(
    name: NetworkName, classes: int, total: int, tensors: int
) -> None:
    with torch.device("meta"):
        network = Pyramid(Networks(NetworkSettings(name=name), 1, classes).build())
    assert parameter_count(network) == total
    assert len(list(network.parameters())) == tensors


@pytest.mark.parametrize(("levels", "maps"), [(2, 2), (3, 2), (4, 3), (5, 4)])
@pytest.mark.parametrize("name", NAMES)
def test_number_of_maps(name: NetworkName, levels: int, maps: int) -> None:
    network, images = tiny(name, levels), images_for(name, side=32)
    logits = network(images, all_outputs=True)
    assert [tuple(z.shape) for z in logits] == [(2, 3, *images.shape[2:])] * maps


@pytest.mark.parametrize("name", NAMES)
def test_each_head_uses_its_level(name: NetworkName) -> None:
    network, images = tiny(name).eval(), images_for(name)
    finest, *coarser = network(images, all_outputs=True)
    features = network.decoder.pyramid(network.encode(images))
    upsampling: dict[str, Any] = {"mode": "nearest"}
    if images.dim() == 5:
        upsampling = {"mode": "trilinear", "align_corners": False}
    assert torch.equal(finest, network.head(features[0])) and torch.equal(finest, network(images))
    for level, logits in enumerate(coarser, start=1):
        small = network.heads[level - 1](features[level])
        torch.testing.assert_close(logits, F.interpolate(small, scale_factor=float(1 << level), **upsampling))


@pytest.mark.parametrize("name", ["unet-2d", "unet-3d"])
@pytest.mark.slow
def test_all_maps_compile_without_graph_break(name: NetworkName) -> None:
    network, images = tiny(name, levels=3).eval(), images_for(name, side=8)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for result, expected in zip(compiled(images, all_outputs=True), network(images, all_outputs=True), strict=True):
        torch.testing.assert_close(result, expected)


def test_only_the_unused_fourth_head_has_no_gradient() -> None:
    for name in NAMES:
        network = tiny(name)
        sum(z.square().sum() for z in network(images_for(name), all_outputs=True)).backward()
        unused = {key for key, value in network.named_parameters() if value.grad is None}
        assert unused == ({"heads.2.weight", "heads.2.bias"} if name == "unet-2d" else set())


def test_2d_heads_get_perturbed_features_but_the_decoder_does_not() -> None:
    torch.manual_seed(1)
    network, images = tiny("unet-2d"), images_for("unet-2d")
    network.encoder.eval()
    finest, *coarser = network(images, all_outputs=True)
    clean, *clean_coarser = network.decoder.pyramid(network.encode(images))
    assert torch.equal(finest, network.head(clean))
    for features, head, upsample, logits in zip(
        clean_coarser, network.heads, network.upsampling_layers, coarser, strict=False
    ):
        assert not torch.equal(upsample(head(features)), logits)
    network.eval()
    first, second = (network(images, all_outputs=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999))
def test_noise_is_bounded_and_shared_by_the_batch(seed: int) -> None:
    torch.manual_seed(seed)
    factors = FeatureNoise()(torch.ones(3, 2, 4, 4))
    assert ((factors - 1).abs() <= 0.3 + 1e-6).all()
    assert torch.equal(factors[0], factors[1]) and torch.equal(factors[0], factors[2])
    assert factors[0].unique().numel() > 16
    assert torch.equal(FeatureNoise().eval()(factors), factors)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999))
def test_feature_dropout_drops_the_largest_features(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.rand(3, 2, 4, 4) + 0.1
    kept = FeatureDropout()(x) != 0
    share = x.mean(1) / x.mean(1).amax((1, 2), keepdim=True)
    assert (kept[:, 0] == kept[:, 1]).all()
    assert not kept[:, 0][share >= 0.9].any()
    assert kept[:, 0][share < 0.7].all()
    assert share[kept[:, 0]].max() < share[~kept[:, 0]].min(), "one share for the whole batch"
    assert torch.equal(FeatureDropout().eval()(x), x)


def test_feature_dropout_by_hand() -> None:
    x = torch.tensor([[[[1.0, 2.0, 8.0, 10.0]], [[3.0, 4.0, 12.0, 10.0]]]])
    # channel means are 2, 3, 10 and 10; both tens are dropped
    expected = torch.tensor([[[[1.0, 2.0, 0.0, 0.0]], [[3.0, 4.0, 0.0, 0.0]]]])
    assert torch.equal(FeatureDropout()(x), expected)
