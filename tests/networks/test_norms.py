"""Batch norms without a batch count equal PyTorch's in all other respects; networks have the norm of their name."""

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from graftseg.networks import NetworkName, NetworkSettings, build_network
from graftseg.networks.layers import BatchNorm2d, BatchNorm3d


@pytest.mark.parametrize(
    ("own_type", "torch_type", "axes"), [(BatchNorm2d, nn.BatchNorm2d, 2), (BatchNorm3d, nn.BatchNorm3d, 3)]
)
def test_batch_norms_equal_pytorch_except_for_the_count(
    own_type: type[nn.Module], torch_type: type[nn.Module], axes: int
) -> None:
    torch.manual_seed(0)
    own, torch_norm = own_type(3), torch_type(3)
    for _ in range(2):
        images = torch.randn(2, 3, *[4] * axes) * 2 + 1
        assert torch.equal(own(images), torch_norm(images))
    own_state, torch_state = own.state_dict(), torch_norm.state_dict()
    assert list(own_state) == list(torch_state)
    counts = (own_state.pop("num_batches_tracked"), torch_state.pop("num_batches_tracked"))
    assert counts == (0, 2)
    assert all(torch.equal(value, torch_state[name]) for name, value in own_state.items())
    assert torch.equal(own.eval()(images), torch_norm.eval()(images))


def test_batch_statistics_are_used_but_not_stored_without_tracking() -> None:
    norm, images = BatchNorm2d(1), torch.randn(2, 1, 3, 3) + 5
    norm.track_running_stats = False
    assert norm(images).mean().abs() < 1e-5
    assert norm.running_mean is not None and norm.running_mean.item() == 0


@pytest.mark.parametrize(
    ("name", "has_batch_norm", "has_dropout"),
    [
        ("vnet-bn", True, True),
        ("vnet-in", False, False),
        ("unet-3d", False, True),
        ("unet-2d", True, True),
        ("unet-2d-in", False, False),
    ],
)
def test_the_name_of_a_network_decides_norm_and_dropout(
    name: NetworkName, has_batch_norm: bool, has_dropout: bool
) -> None:
    with torch.device("meta"):
        parts = list(build_network(NetworkSettings(name=name, width=2, levels=3), 1, 2).modules())
    assert any(isinstance(part, _BatchNorm) for part in parts) is has_batch_norm
    assert any(isinstance(part, _DropoutNd) for part in parts) is has_dropout
