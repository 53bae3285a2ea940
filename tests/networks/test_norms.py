"""Batch norms without a batch count equal PyTorch's in all other respects."""

import pytest
import torch
from torch import nn

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
