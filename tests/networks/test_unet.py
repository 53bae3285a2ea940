"""The 2-D U-Net: published sizes, formula, interpolation, and the table of networks."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from graftseg.core.errors import Code
from graftseg.networks import (
    NETWORKS,
    NetworkName,
    NetworkSettings,
    build_network,
    dimensions_of,
    parameter_count,
    stride_of,
)
from graftseg.networks.encoder_decoder import Extensible
from graftseg.networks.interpolation import Interpolation2d, upsample_2d_by_matmul
from graftseg.networks.unet import Convolution2d, UNet2d
from user_errors import user_error


def tiny() -> UNet2d:
    torch.manual_seed(0)
    return UNet2d(1, 3, width=2, levels=3)


def dropouts(network: nn.Module) -> list[float]:
    return [module.p for module in network.modules() if isinstance(module, nn.Dropout)]


def test_networks_have_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        network = UNet2d()
    assert parameter_count(network) == 1_813_764
    assert len(list(network.parameters())) == 82
    assert len(list(network.buffers())) == 54
    assert sum(buffer.numel() for buffer in network.buffers()) == 2962


def test_each_stage_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        network = UNet2d()
    encoder, decoder = network.encoder, network.decoder
    assert [parameter_count(stage) for stage in encoder.stages] == [2544, 14016, 55680, 221952, 886272]
    assert [parameter_count(up) for up in decoder.ups] == [32896, 8256, 2080, 528]
    assert [parameter_count(stage) for stage in decoder.stages] == [443136, 110976, 27840, 7008]
    assert parameter_count(network.head) == 580


def test_features_have_the_published_shapes() -> None:
    with torch.device("meta"):
        network = UNet2d()
        skips = network.encode(torch.empty(1, 1, 256, 256))
        features = network.decode(skips)
    assert [tuple(skip.shape[1:]) for skip in skips] == [(16 << n, 256 >> n, 256 >> n) for n in range(5)]
    assert features.shape == (1, 16, 256, 256)
    assert network.head(features).shape == (1, 4, 256, 256)


def test_dropout_of_each_level() -> None:
    assert dropouts(UNet2d(width=1)) == [0.05, 0.1, 0.2, 0.3, 0.5]
    assert dropouts(UNet2d(width=1, levels=3)) == [0.05, 0.1, 0.2]
    assert dropouts(UNet2d(width=1, levels=6)) == [0.05, 0.1, 0.2, 0.3, 0.5, 0.5]
    assert dropouts(build_network(NetworkSettings(name="unet-2d", dropout=False, width=1), 1, 4)) == []


def test_two_levels_equal_the_explicit_formula() -> None:
    torch.manual_seed(1)
    network = UNet2d(1, 2, width=3, levels=2).eval()
    x = torch.randn(2, 1, 4, 6)

    def block(features: Tensor, sequence: nn.Module) -> Tensor:
        for convolution in (m for m in sequence.modules() if isinstance(m, nn.Conv2d)):
            # a new batch norm in eval mode divides by sqrt(1 + 1e-5)
            convolved = F.conv2d(features, convolution.weight, convolution.bias, padding=1) / 1.00001**0.5
            features = torch.where(convolved > 0, convolved, 0.01 * convolved)
        return features

    encoder, decoder = network.encoder, network.decoder
    s1 = block(x, encoder.stages[0])
    s2 = block(F.max_pool2d(s1, 2), encoder.stages[1])
    reduce = next(m for m in decoder.ups.modules() if isinstance(m, nn.Conv2d))
    narrow = F.conv2d(s2, reduce.weight, reduce.bias)
    rows, columns = aligned_corners(2), aligned_corners(3)
    up = torch.einsum("ih,bchw,jw->bcij", rows, narrow, columns)
    f = block(torch.cat([s1, up], 1), decoder.stages[0])
    expected = F.conv2d(f, network.head.weight, network.head.bias, padding=1)
    torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-6)


def aligned_corners(size: int) -> Tensor:
    """Return the matrix that linearly doubles ``size`` samples with aligned corners."""
    positions = torch.linspace(0, size - 1, 2 * size)[:, None]
    return (1 - (positions - torch.arange(size)).abs()).clamp(min=0)


@given(st.tuples(*[st.integers(1, 7)] * 4), st.booleans())
@settings(deadline=None)
def test_interpolation_by_matmul_equals_pytorch(shape: tuple[int, int, int, int], channels_last: bool) -> None:
    """Values and gradients, up to float32 rounding of the matrices."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).double().contiguous(memory_format=layout).requires_grad_()
    upstream = torch.randn(*shape[:2], 2 * shape[2], 2 * shape[3], generator=generator).double()
    pairs = []
    for function in (upsample_2d_by_matmul, Interpolation2d()):
        result = function(x)
        pairs.append((result, *torch.autograd.grad(result, x, upstream)))
    for ours, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)


def test_interpolation_by_matmul_keeps_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert upsample_2d_by_matmul(x).is_contiguous(memory_format=torch.channels_last)
    assert upsample_2d_by_matmul(x.bfloat16()).dtype == torch.bfloat16


def test_convolution_on_a_cpu_equals_pytorch() -> None:
    results = []
    for build in (Convolution2d, lambda entry, out: nn.Conv2d(entry, out, 3, padding=1)):
        torch.manual_seed(0)
        layer = build(3, 5)
        result = layer(torch.randn(2, 3, 5, 7))
        result.square().sum().backward()
        assert layer.bias is not None and layer.bias.grad is not None
        results.append((result, layer.weight.grad, layer.bias.grad))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


def test_forward_and_backward_reach_every_parameter() -> None:
    network = tiny()
    logits = network(torch.randn(2, 1, 16, 24))
    assert logits.shape == (2, 3, 16, 24)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_sizes_must_be_multiples_of_the_stride() -> None:
    network = tiny()
    assert network.stride == 4
    with pytest.raises(ValueError, match=r"8x10 .* multiple of 4"):
        network(torch.zeros(1, 1, 8, 10))


def test_channels_last_keeps_logits_and_format() -> None:
    network = tiny().eval()
    images = torch.randn(2, 1, 8, 8)
    expected = network(images)
    nn.utils.convert_conv2d_weight_memory_format(network, torch.channels_last)
    logits = network(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    assert logits.is_contiguous(memory_format=torch.channels_last)


def test_autocast_trains_in_bfloat16() -> None:
    network = tiny()
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(torch.randn(2, 1, 8, 8))
    assert logits.dtype == torch.float32
    logits.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_table_of_networks_is_complete() -> None:
    assert tuple(NETWORKS) == get_args(NetworkName)
    for name, entry in NETWORKS.items():
        settings = NetworkSettings.model_validate({"name": name, "width": 1, "levels": 3})
        network = build_network(settings, 1, 2)
        assert dimensions_of(name) == entry.dimensions
        assert isinstance(network, Extensible)
        assert network.dimensions == entry.dimensions
        assert network.stride == stride_of(settings) == 4
        space = (8,) * entry.dimensions
        assert network(torch.zeros(2, 1, *space)).shape == (2, 2, *space)


@pytest.mark.slow
def test_every_network_compiles_without_graph_break() -> None:
    for name, entry in NETWORKS.items():
        settings = NetworkSettings.model_validate({"name": name, "width": 1, "levels": 2})
        network = build_network(settings, 1, 2).eval()
        images = torch.randn(1, 1, *(4,) * entry.dimensions)
        compiled = torch.compile(network, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(images), network(images))


def test_unknown_name_lists_the_choices() -> None:
    with user_error(Code.RECIPE_MISMATCH, "network", "vnet-bn, vnet-in, unet-3d, unet-2d"):
        dimensions_of("vnet")
    with pytest.raises(ValidationError, match="'vnet-bn', 'vnet-in', 'unet-3d', 'unet-2d' or 'unet-2d-in'"):
        NetworkSettings.model_validate({"name": "vnet"})
