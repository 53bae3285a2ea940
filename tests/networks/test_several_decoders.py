"""Several decoders on one encoder: published sizes and different upsampling."""

import pytest
import torch
from torch import nn

from graftseg.networks import NetworkName, Networks, NetworkSettings, dimensions_of, parameter_count
from graftseg.networks.branches import MultiDecoder
from graftseg.networks.convolution import Doubling3d
from graftseg.networks.interpolation import Interpolation2d, Interpolation3d

NAMES: tuple[NetworkName, ...] = ("unet-2d", "unet-3d", "vnet-bn", "vnet-in")
UPS: dict[str, tuple[type[nn.Module], ...]] = {
    "transposed": (Doubling3d, nn.ConvTranspose2d),
    "linear": (Interpolation3d, Interpolation2d),
    "nearest": (nn.Upsample,),
}


def tiny(name: NetworkName, decoders: int = 3) -> MultiDecoder:
    torch.manual_seed(0)
    return MultiDecoder(Networks(NetworkSettings(name=name, width=2, levels=3), 1, 3).build(), decoders)


@pytest.mark.parametrize(
    ("name", "decoders", "total"),
    [
        ("vnet-bn", 2, 12_347_716),
        ("vnet-bn", 3, 15_246_566),
        ("unet-2d", 2, 2_577_624),
        ("unet-2d", 3, 3_210_924),
    ],
)
def test_networks_have_the_published_number_of_parameters(name: NetworkName, decoders: int, total: int) -> None:
    with torch.device("meta"):
        network = MultiDecoder(Networks(NetworkSettings(name=name), 1, 4 if name == "unet-2d" else 2).build(), decoders)
    assert parameter_count(network) == total


@pytest.mark.parametrize("name", NAMES)
def test_decoders_have_different_upsampling(name: NetworkName) -> None:
    network = tiny(name)
    upsamplings = []
    for decoder in (network.decoder, *network.decoders):
        kinds = [kind for kind, types in UPS.items() if any(isinstance(m, types) for m in decoder.modules())]
        assert len(kinds) == 1
        upsamplings += kinds
    first = "transposed" if name.startswith("vnet") else "linear"
    assert upsamplings == [first, "linear" if first == "transposed" else "transposed", "nearest"]
    corners = [module.align_corners for module in network.decoders.modules() if isinstance(module, Interpolation3d)]
    assert all(corners) and len(corners) == (2 if name.startswith("vnet") else 0)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_all_decoders_in_order(name: NetworkName) -> None:
    network, space = tiny(name).eval(), (8,) * dimensions_of(name)
    images = torch.randn(2, 1, *space)
    logits = network(images, all_outputs=True)
    assert [tuple(z.shape) for z in logits] == [(2, 3, *space)] * 3
    assert torch.equal(network(images), logits[0])
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[1], logits[2])
    assert len(tiny(name, decoders=2)(images, all_outputs=True)) == 2
    sum(z.square().sum() for z in logits).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", ["unet-2d", "vnet-bn"])
@pytest.mark.slow
def test_all_decoders_compile_without_graph_break(name: NetworkName) -> None:
    network, images = tiny(name).eval(), torch.randn(1, 1, *(8,) * dimensions_of(name))
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for result, expected in zip(compiled(images, all_outputs=True), network(images, all_outputs=True), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", NAMES)
def test_plain_network_keeps_its_parameter_names(name: NetworkName) -> None:
    plain = Networks(NetworkSettings(name=name, width=2, levels=3), 1, 3).build().state_dict()
    assert plain.keys() <= tiny(name).state_dict().keys()
