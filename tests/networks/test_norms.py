"""Batch norms without a batch count equal PyTorch's in all other respects; networks have the norm of their name."""

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from graftseg.networks import NetworkName, NetworkSettings, build_network
from graftseg.networks.layers import BatchNorm2d, BatchNorm3d


@pytest.mark.parametrize(
    ("ours", "theirs", "space"), [(BatchNorm2d, nn.BatchNorm2d, 2), (BatchNorm3d, nn.BatchNorm3d, 3)]
)
def test_batch_norms_equal_pytorch_except_for_the_count(
    ours: type[nn.Module], theirs: type[nn.Module], space: int
) -> None:
    torch.manual_seed(0)
    one, two = ours(3), theirs(3)
    for _ in range(2):
        images = torch.randn(2, 3, *[4] * space) * 2 + 1
        assert torch.equal(one(images), two(images))
    ours_kept, theirs_kept = one.state_dict(), two.state_dict()
    assert list(ours_kept) == list(theirs_kept)
    counts = (ours_kept.pop("num_batches_tracked"), theirs_kept.pop("num_batches_tracked"))
    assert counts == (0, 2)
    assert all(torch.equal(value, theirs_kept[name]) for name, value in ours_kept.items())
    assert torch.equal(one.eval()(images), two.eval()(images))


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
