"""Losses of a network with three branches: a main one and two that weigh the classes in opposite ways."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from graftseg.ops.losses import dice_per_sample, masked_cross_entropy

Weights = tuple[float, float]


def opposite_weights(emphasis: float) -> tuple[Weights, Weights]:
    """Weights of the background and of every other class: (1, w) for the one branch, (w, 1) for the other."""
    return (1.0, emphasis), (emphasis, 1.0)


def branch_loss(outputs: Sequence[Tensor], labels: Tensor, emphasis: float) -> Tensor:
    """``¼ [CE(out0) + Dice(out0) + CE_W1(out1) + CE_W2(out2)]``, a weighted one divided by the sum of its weights."""
    main, *others = outputs
    loss = masked_cross_entropy(main, labels) + dice_per_sample(main.float().softmax(1), labels)
    for logits, weights in zip(others, opposite_weights(emphasis), strict=True):
        w = weights_of(labels, weights)
        loss = loss + (w * _cross_entropy(logits, labels)).sum() / w.sum()
    return loss / 4


def certain_loss(outputs: Sequence[Tensor], labels: Tensor, M: Tensor, emphasis: float, *, swap: bool) -> Tensor:
    """The same where the mask is true, every cross-entropy divided by its size; ``swap`` exchanges the weights."""
    main, *others = outputs
    first, second = opposite_weights(emphasis)
    loss = masked_cross_entropy(main, labels, M) + dice_per_sample(main.float().softmax(1), labels, M)
    m = M.float()
    for logits, weights in zip(others, (second, first) if swap else (first, second), strict=True):
        w = weights_of(labels, weights)
        loss = loss + (m * w * _cross_entropy(logits, labels)).sum() / (m.sum() + 1e-16)
    return loss / 4


def uncertain_loss(outputs: Sequence[Tensor], teacher_outputs: Sequence[Tensor], M: Tensor) -> Tensor:
    """``⅓ Σ_k Σ (1 - M) |p_k - t_k|² / (Σ (1 - M) + 1e-16)``: what a teacher says of each branch, where M is false."""
    m = (~M).float()
    differences = [
        (out.float().softmax(1) - teacher.float().softmax(1)).square().sum(1)
        for out, teacher in zip(outputs, teacher_outputs, strict=True)
    ]
    total = sum(((m * difference).sum() for difference in differences), start=m.new_zeros(()))
    return total / (m.sum() + 1e-16) / len(differences)


def weights_of(labels: Tensor, weights: Weights) -> Tensor:
    """The weight of each voxel by its label: the first for the background, the second for every other class."""
    background, others = weights
    return background + (others - background) * (labels > 0)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels, reduction="none")
