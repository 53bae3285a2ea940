"""The network with a second head for signed distances."""

import pytest
import torch
from tiny import tiny_networks

from graftseg.networks import NetworkName, Networks, NetworkSettings, parameter_count
from graftseg.networks.branches import DualTask


def build_dual_task(networks: Networks) -> DualTask:
    return DualTask(networks.build(), networks.classes)


@pytest.mark.parametrize(
    ("name", "classes", "total"),
    [("vnet-bn", 2, 9_448_866), ("vnet-in", 2, 9_443_266), ("unet-2d", 4, 1_814_344)],
)
def test_networks_have_the_published_number_of_parameters(name: NetworkName, classes: int, total: int) -> None:
    with torch.device("meta"):
        network = build_dual_task(Networks(NetworkSettings(name=name), 1, classes))
    assert parameter_count(network) == total


@pytest.mark.parametrize(("classes", "distances"), [(2, 1), (3, 3)])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_both_heads_use_the_same_features(dimensions: int, classes: int, distances: int) -> None:
    network, space = build_dual_task(tiny_networks(dimensions, classes)).eval(), (4,) * dimensions
    images = torch.randn(2, 1, *space)
    logits, s = network(images, all_outputs=True)
    assert logits.shape == (2, classes, *space)
    assert s.shape == (2, distances, *space) and s.abs().max() < 1
    assert torch.equal(network(images), logits)
    features = network.decode(network.encode(images))
    assert torch.allclose(s, torch.tanh(network.distance_head(features)))


def test_two_classes_have_one_logit() -> None:
    network = build_dual_task(tiny_networks(3, 2)).eval()
    images = torch.randn(2, 1, 4, 4, 4)
    z = network.head(network.decode(network.encode(images)))
    assert z.shape == (2, 1, 4, 4, 4)
    assert torch.allclose(network(images).softmax(1), torch.cat([1 - z.sigmoid(), z.sigmoid()], 1))


@pytest.mark.parametrize("dimensions", [2, 3])
def test_head_of_more_classes_is_unchanged(dimensions: int) -> None:
    networks = tiny_networks(dimensions, 3)
    plain, dual = networks.build(), build_dual_task(networks)
    names = dual.state_dict().keys()
    assert names - plain.state_dict().keys() == {"distance_head.weight", "distance_head.bias"}
    assert plain.state_dict().keys() <= names
