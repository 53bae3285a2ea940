"""Losses of three branches, by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.ops.losses import branch_loss, certain_loss, uncertain_loss, voxel_weights


def example(seed: int, classes: int = 2) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    outputs = [torch.randn(2, classes, 4, 4, generator=generator) for _ in range(3)]
    return outputs, torch.randint(classes, (2, 4, 4), generator=generator)


def test_undecided_by_hand() -> None:
    """Probabilities of ½, a quarter is foreground: each CE is ln 2, the Dices are ¾ / (5/4) and ¼ / (3/4)."""
    outputs = [torch.zeros(1, 2, 2, 2)] * 3
    labels = torch.tensor([[[0, 0], [0, 1]]])
    dice = 1 - (0.75 / 1.25 + 0.25 / 0.75) / 2
    assert branch_loss(outputs, labels, 5).item() == pytest.approx((3 * math.log(2) + dice) / 4, abs=1e-5)
    # all voxels are certain: the weights of the four voxels sum to 8 for (1, 5) and 16 for (5, 1), divided by 4
    everywhere = torch.ones(1, 2, 2, dtype=torch.bool)
    certain = (math.log(2) * (1 + 8 / 4 + 16 / 4) + dice) / 4
    for swap in (False, True):
        assert certain_loss(outputs, labels, everywhere, 5, swap=swap).item() == pytest.approx(certain, abs=1e-5)


def test_weighted_means_equal_pytorch() -> None:
    outputs, labels = example(1, classes=3)
    silent = [torch.zeros_like(outputs[0]), *outputs[1:]]
    parts = branch_loss(silent, labels, 5) - branch_loss([silent[0]] * 3, labels, 5)
    W1, W2 = torch.tensor([1.0, 5, 5]), torch.tensor([5.0, 1, 1])
    expected = F.cross_entropy(outputs[1], labels, W1) + F.cross_entropy(outputs[2], labels, W2) - 2 * math.log(3)
    assert parts.item() == pytest.approx(expected.item() / 4, abs=1e-5)


def test_voxel_weights_depend_on_labels() -> None:
    assert voxel_weights(torch.tensor([0, 1, 2]), (1.0, 5.0)).tolist() == [1, 5, 5]
    assert voxel_weights(torch.tensor([0, 1, 2]), (5.0, 1.0)).tolist() == [5, 1, 1]


def test_swap_exchanges_the_branches() -> None:
    (main, one, two), labels = example(2)
    M = labels.bool() | (torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.5)
    swapped = certain_loss([main, one, two], labels, M, 5, swap=True)
    assert torch.allclose(swapped, certain_loss([main, two, one], labels, M, 5, swap=False))
    assert not torch.allclose(swapped, certain_loss([main, one, two], labels, M, 5, swap=False))


def test_uncertain_voxels_do_not_affect_the_certain_loss() -> None:
    outputs, labels = example(3)
    M = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    changed = [torch.where(M.unsqueeze(1), out, -out) for out in outputs]
    assert torch.allclose(
        certain_loss(outputs, labels, M, 5, swap=True), certain_loss(changed, labels, M, 5, swap=True)
    )
    assert uncertain_loss(outputs, changed, M) > 0 == uncertain_loss(outputs, changed, ~M)


def test_uncertain_loss_by_hand() -> None:
    """(½, ½) and (¼, ¾) have a squared difference of 1/16 per class, in one branch of three."""
    zeros, teacher = torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2, 2)
    teacher[:, 1] = math.log(3)
    M = torch.tensor([[[True, False], [False, True]]])
    loss = uncertain_loss([zeros] * 3, [zeros, teacher, zeros], M)
    assert loss.item() == pytest.approx(2 / 16 / 3, abs=1e-6)
    assert uncertain_loss([zeros] * 3, [teacher] * 3, torch.ones_like(M)).item() == 0
