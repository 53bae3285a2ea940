"""The V-Net: published sizes, formula, dropout and memory formats."""

from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graftseg.networks import NetworkSettings, build_network, parameter_count
from graftseg.networks.heads import logits_by_products
from graftseg.networks.layers import Norm, normalize_over_space
from graftseg.networks.vnet import VNet

ENCODER_UNITS = {
    "batch": ([0, 4192, 16576, 65920, 262912], [480, 55488, 332352, 1328256, 5310720]),
    "instance": ([0, 4128, 16448, 65664, 262400], [448, 55360, 331968, 1327488, 5309184]),
}
DECODER_UNITS = {
    "batch": ([262528, 65728, 16480, 4144], [1328256, 332352, 55488, 6960]),
    "instance": ([262272, 65600, 16416, 4112], [1327488, 331968, 55360, 6928]),
}


def tiny(norm: Norm = "batch", dropout: float = 0.0) -> VNet:
    torch.manual_seed(0)
    return VNet(1, 3, width=2, levels=3, norm=norm, dropout=dropout)


@pytest.mark.parametrize(
    ("norm", "total", "tensors", "buffers", "buffer_elements"),
    [("batch", 9_448_866, 118, 87, 5629), ("instance", 9_443_266, 60, 0, 0)],
)
def test_networks_have_the_published_number_of_parameters(
    norm: Norm, total: int, tensors: int, buffers: int, buffer_elements: int
) -> None:
    with torch.device("meta"):
        network = VNet(norm=norm)
    assert parameter_count(network) == total
    assert len(list(network.parameters())) == tensors
    assert len(list(network.buffers())) == buffers
    assert sum(buffer.numel() for buffer in network.buffers()) == buffer_elements


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_each_stage_has_the_published_number_of_parameters(norm: Norm) -> None:
    with torch.device("meta"):
        network = VNet(norm=norm)
    for part, (strided, stages) in (
        (network.encoder, ENCODER_UNITS[norm]),
        (network.decoder, DECODER_UNITS[norm]),
    ):
        strided_units = cast(nn.ModuleList, part.get_submodule("downs" if part is network.encoder else "ups"))
        assert [parameter_count(unit) for unit in strided_units] == strided
        assert [parameter_count(stage) for stage in part.stages] == stages
    assert parameter_count(network.head) == 34


def test_features_have_the_published_shapes() -> None:
    with torch.device("meta"):
        network = VNet()
        skips = network.encode(torch.empty(1, 1, 112, 112, 80))
        features = network.decode(skips)
    assert [tuple(skip.shape[1:]) for skip in skips] == [
        (16, 112, 112, 80),
        (32, 56, 56, 40),
        (64, 28, 28, 20),
        (128, 14, 14, 10),
        (256, 7, 7, 5),
    ]
    assert features.shape == (1, 16, 112, 112, 80)
    assert network.head(features).shape == (1, 2, 112, 112, 80)


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_forward_and_backward_reach_every_parameter(norm: Norm) -> None:
    network = tiny(norm, dropout=0.5)
    logits = network(torch.randn(2, 1, 16, 16, 8))
    assert logits.shape == (2, 3, 16, 16, 8)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_two_levels_equal_the_explicit_formula() -> None:
    torch.manual_seed(1)
    network = VNet(1, 2, width=3, levels=2, norm="instance", dropout=0.0)
    w = list(network.state_dict().values())
    x = torch.randn(2, 1, 4, 4, 6)

    def unit(convolved: Tensor) -> Tensor:
        centred = convolved - convolved.mean((2, 3, 4), keepdim=True)
        return F.relu(centred / (centred.square().mean((2, 3, 4), keepdim=True) + 1e-5).sqrt())

    names = list(network.state_dict())[::2]
    assert [name.split(".")[0] for name in names] == ["encoder"] * 4 + ["decoder"] * 2 + ["head"]
    down, fine, coarse_1, coarse_2, up, last, head = zip(w[::2], w[1::2], strict=True)
    s1 = unit(F.conv3d(x, *fine, padding=1))
    s2 = unit(F.conv3d(s1, *down, stride=2))
    s2 = unit(F.conv3d(unit(F.conv3d(s2, *coarse_1, padding=1)), *coarse_2, padding=1))
    h = unit(F.conv3d(unit(F.conv_transpose3d(s2, *up, stride=2)) + s1, *last, padding=1))
    torch.testing.assert_close(network(x), F.conv3d(h, *head), rtol=1e-4, atol=1e-5)


def test_dropout_drops_whole_channels_at_two_places() -> None:
    network = tiny(dropout=0.5)
    undropped: list[Tensor] = []
    for dropout in (network.encoder.dropout, network.decoder.dropouts[-1]):
        dropout.register_forward_pre_hook(lambda _, inputs: undropped.append(inputs[0]))
    *_, coarsest = skips = network.encode(torch.randn(4, 1, 8, 8, 8))
    h = network.decode(skips)
    for before, after in zip(undropped, [coarsest, h], strict=True):
        kept = after.flatten(2).any(-1)
        assert 0 < kept.sum() < kept.numel()
        torch.testing.assert_close(after, 2 * before * kept[..., None, None, None])
    assert sum(isinstance(module, nn.Dropout3d) for module in network.modules()) == 2


def test_without_dropout_training_mode_is_deterministic() -> None:
    network = tiny("instance")
    images = torch.randn(1, 1, 8, 8, 8)
    assert torch.equal(network(images), network(images))


def test_sizes_must_be_multiples_of_the_stride() -> None:
    network = tiny()
    assert network.stride == 4
    with pytest.raises(ValueError, match=r"8x8x6 .* multiple of 4"):
        network(torch.zeros(1, 1, 8, 8, 6))


def test_channels_last_gives_the_same_logits() -> None:
    network = tiny().eval()
    images = torch.randn(2, 1, 8, 8, 8)
    expected = network(images)
    nn.utils.convert_conv3d_weight_memory_format(network, torch.channels_last_3d)
    logits = network(images.contiguous(memory_format=torch.channels_last_3d))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_autocast_trains_in_bfloat16() -> None:
    network = tiny("instance")
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(torch.randn(1, 1, 8, 8, 8))
    assert logits.dtype == torch.float32
    logits.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_table_builds_both_networks() -> None:
    batch = build_network(NetworkSettings(name="vnet-bn", width=2, levels=2), 2, 3)
    instance = build_network(NetworkSettings(name="vnet-in", width=2, levels=2), 2, 3)
    plain = build_network(NetworkSettings(name="vnet-bn", width=2, levels=2, dropout=False), 2, 3)
    for network, norm, dropouts in (
        (batch, nn.BatchNorm3d, 2),
        (instance, nn.InstanceNorm3d, 0),
        (plain, nn.BatchNorm3d, 0),
    ):
        assert network(torch.randn(1, 2, 4, 4, 4)).shape == (1, 3, 4, 4, 4)
        assert sum(isinstance(module, norm) for module in network.modules()) == 6
        assert sum(isinstance(module, nn.Dropout3d) for module in network.modules()) == dropouts


def test_head_as_sums_of_products() -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 4, 3, 2, 5), (3, 4, 1, 1, 1), (3,)))
    expected = F.conv3d(x, weight, bias)
    torch.testing.assert_close(logits_by_products(x, weight, bias).double(), expected, rtol=1e-5, atol=1e-5)


def test_written_out_instance_norm_keeps_channels_last() -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(2, 4, 5, 3, 6) + 1).contiguous(memory_format=torch.channels_last_3d)
    normalized = normalize_over_space(x, 1e-5)
    torch.testing.assert_close(normalized, F.instance_norm(x, eps=1e-5), rtol=1e-5, atol=1e-5)
    assert normalized.is_contiguous(memory_format=torch.channels_last_3d)
    assert normalize_over_space(x.bfloat16(), 1e-5).dtype == torch.bfloat16
