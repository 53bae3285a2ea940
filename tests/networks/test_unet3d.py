"""The 3-D U-Net: published size, formula, dropout and initial weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graftseg.networks import NetworkSettings, build_network, parameter_count
from graftseg.networks.unet3d import UNet3d


def tiny(*, dropout: bool = True) -> UNet3d:
    torch.manual_seed(0)
    return UNet3d(1, 3, width=2, levels=3, dropout=dropout)


def test_each_stage_has_the_expected_number_of_parameters() -> None:
    with torch.device("meta"):
        network = UNet3d()
    encoder, decoder = network.encoder, network.decoder
    assert [parameter_count(stage) for stage in encoder.stages] == [7376, 41536, 166016, 663808, 2654720]
    assert [parameter_count(stage) for stage in decoder.stages] == [1769728, 442496, 110656, 27680]
    assert parameter_count(decoder.ups) == 0 and parameter_count(network.head) == 34
    # 5,884,504 with heads of 32, 64 and 128 channels
    assert parameter_count(network) == 5_884_504 - (33 + 65 + 129) * 2


def test_features_have_the_published_shapes() -> None:
    with torch.device("meta"):
        network = UNet3d()
        skips = network.encode(torch.empty(1, 1, 112, 112, 80))
        pyramid = network.decoder.pyramid(skips)
    shapes = [(16 << n, 112 >> n, 112 >> n, 80 >> n) for n in range(5)]
    assert [tuple(skip.shape[1:]) for skip in skips] == shapes
    assert [tuple(features.shape[1:]) for features in pyramid] == shapes[:4]


def test_two_levels_equal_the_explicit_formula() -> None:
    torch.manual_seed(1)
    network = UNet3d(1, 2, width=3, levels=2).eval()
    x = torch.randn(2, 1, 4, 4, 6)

    def block(features: Tensor, sequence: nn.Module) -> Tensor:
        for convolution in (m for m in sequence.modules() if isinstance(m, nn.Conv3d)):
            convolved = F.conv3d(features, convolution.weight, convolution.bias, padding=1)
            centred = convolved - convolved.mean((2, 3, 4), keepdim=True)
            features = F.relu(centred / (centred.square().mean((2, 3, 4), keepdim=True) + 1e-5).sqrt())
        return features

    s1 = block(x, network.encoder.stages[0])
    s2 = block(F.max_pool3d(s1, 2), network.encoder.stages[1])
    up = F.interpolate(s2, scale_factor=2.0, mode="trilinear", align_corners=False)
    f = block(torch.cat([s1, up], 1), network.decoder.stages[0])
    expected = F.conv3d(f, network.head.weight, network.head.bias)
    torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_of_each_level_can_be_disabled() -> None:
    def dropouts(network: nn.Module) -> list[float]:
        return [module.p for module in network.modules() if isinstance(module, nn.Dropout3d)]

    assert dropouts(UNet3d(width=1)) == [0.5, 0.3, 0.2, 0.1]
    assert dropouts(UNet3d(width=1, levels=6)) == [0.5, 0.5, 0.3, 0.2, 0.1]
    assert dropouts(build_network(NetworkSettings(name="unet-3d", dropout=False, width=1), 1, 2)) == []


def test_decoder_continues_with_features_after_dropout() -> None:
    network = tiny()
    decoder = network.decoder
    decoder.dropouts[-1].eval()
    skips = network.encode(torch.randn(2, 1, 8, 8, 8))
    finest, coarser = decoder.pyramid(skips)
    assert 0 < coarser.flatten(2).any(-1).sum() < 8, "whole channels are dropped, but not all"
    torch.testing.assert_close(finest, decoder.stages[-1](torch.cat([skips[0], decoder.ups[-1](coarser)], 1)))


def test_initial_weights_have_kaiming_variance() -> None:
    torch.manual_seed(0)
    network = UNet3d(width=16, levels=2)
    for module in (m for m in network.modules() if isinstance(m, nn.Conv3d) and m.weight.numel() > 5000):
        fan_in = module.weight[0].numel()
        assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)
    torch.manual_seed(0)
    weight = UNet3d(width=16, levels=2).another_head(4096).get_parameter("weight")
    assert weight.std().item() == pytest.approx((2 / 4096) ** 0.5, rel=0.05)


def test_forward_and_backward_reach_every_parameter() -> None:
    network = tiny(dropout=False)
    logits = network(torch.randn(2, 1, 16, 16, 8))
    assert logits.shape == (2, 3, 16, 16, 8)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_sizes_must_be_multiples_of_the_stride() -> None:
    network = tiny()
    assert network.stride == 4
    with pytest.raises(ValueError, match=r"8x8x6 .* multiple of 4"):
        network(torch.zeros(1, 1, 8, 8, 6))


def test_autocast_trains_in_bfloat16() -> None:
    network = tiny()
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(torch.randn(1, 1, 8, 8, 8))
    assert logits.dtype == torch.float32
    logits.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
