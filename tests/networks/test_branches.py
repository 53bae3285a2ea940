"""Branches: sizes, and equality of the main branch with the plain network."""

import copy
from typing import Any

import pytest
import torch

from graftseg.networks import Networks, NetworkSettings, parameter_count
from graftseg.networks.branches import Branches, build_branches


def tiny(name: Any) -> Networks:
    return Networks(NetworkSettings(name=name, width=2, levels=3), 1, 3)


def test_published_size() -> None:
    with torch.device("meta"):
        network = build_branches(Networks(NetworkSettings(name="vnet-in"), 1, 2))
    assert parameter_count(network) == 9_457_190
    assert len(list(network.parameters())) == 68
    assert [parameter_count(tail) for tail in (network.head, *network.others)] == [6928 + 34] * 3


@pytest.mark.parametrize("name", ["vnet-bn", "vnet-in", "unet-3d", "unet-2d"])
def test_main_branch_equals_the_plain_network(name: Any) -> None:
    torch.manual_seed(0)
    networks = tiny(name)
    images = torch.randn(2, 1, *[8] * networks.dimensions)
    main: Any = networks.build()
    others: Any = [networks.build() for _ in range(2)]
    plain, branches = copy.deepcopy(main).train(), Branches(main, others).train()
    torch.manual_seed(1)
    expected = plain(images)
    torch.manual_seed(1)
    assert torch.equal(branches(images), expected)
    branches.eval()
    outputs = branches(images, all_outputs=True)
    assert len(outputs) == 3 and torch.equal(outputs[0], branches(images))
    assert not any(torch.equal(output, outputs[0]) for output in outputs[1:])
    assert parameter_count(branches.head) < parameter_count(plain) and not parameter_count(
        branches.get_submodule("decoder.stages.1")
    )
