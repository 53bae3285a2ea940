"""Losses of logits or probabilities ``(B, K, *space)`` of K classes and label maps ``(B, *space)``.

A boolean mask ``(*space)`` or ``(B, *space)`` limits a loss to the voxels where the mask is True. A mask of numbers
weights the voxels. Sums are computed in float32, even if the network computes in bfloat16. ``all_sum`` adds the sums
of several ranks.

In formulas, p are probabilities, Y one-hot labels, m is the mask, and CE the cross-entropy of every voxel.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.ranks import all_sum
from graftseg.ops.masks import mix

DiceName = Literal["per-sample", "over-batch"]
SupervisedDice = Literal["foreground", "classes", "per-sample"]
ClassWeights = tuple[float, float]
"""Weight of the background, and weight of all other classes."""


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Convert integers ``(B, *space)`` to booleans ``(B, K, *space)``."""
    values = torch.arange(classes, device=labels.device).view(1, -1, *[1] * (labels.dim() - 1))
    return labels.unsqueeze(1) == values


def dice_per_sample(
    probabilities: Tensor, labels: Tensor, mask: Tensor | None = None, *, epsilon: float = 1e-5
) -> Tensor:
    """Return one minus the mean Dice of samples and classes, including the background.

    ``1 - mean_{n,c} [(2 Σ m p Y + ε) / (Σ m (p + Y) + ε)]`` for sample n and class c, with sums over space. BCP uses
    this loss for LA and Pancreas.
    """
    p, Y, m = _broadcastable(probabilities, labels, mask)
    space = tuple(range(2, p.dim()))
    intersection = (m * p * Y).sum(space)
    total = (m * (p + Y)).sum(space)
    return 1 - ((2 * intersection + epsilon) / (total + epsilon)).mean()


def dice_over_batch(
    probabilities: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    epsilon: float = 1e-10,
    background: bool = True,
    squares: bool = True,
    legacy_background_mask: bool = False,
) -> Tensor:
    """Return one minus the mean Dice of classes, with sums over the whole batch.

    ``1 - mean_c [(2 Σ m p Y + ε) / (Σ m p² + Σ m Y + ε)]`` with sums over batch and space.
    The defaults are the loss of BCP for ACDC.

    - ``background``: whether class 0 is included.
    - ``squares``: if false, p² is replaced by p.
    - ``legacy_background_mask``: ignore the mask for class 0. The public code of BCP did this until October 2023,
      also for the paper's results.
    """
    p, Y, m = _broadcastable(probabilities, labels, mask)
    if legacy_background_mask:
        foreground = torch.arange(p.shape[1], device=p.device).view(1, -1, *[1] * (p.dim() - 2)) > 0
        m = torch.where(foreground, m, torch.ones_like(m))
    summed_axes = (0, *range(2, p.dim()))
    intersection = all_sum((m * p * Y).sum(summed_axes))
    total = all_sum((m * (p.square() if squares else p)).sum(summed_axes) + (m * Y).sum(summed_axes))
    loss = 1 - (2 * intersection + epsilon) / (total + epsilon)
    return (loss if background else loss[1:]).mean()


def foreground_dice_of_sums(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``dice_over_batch`` of the foreground classes without squares: the loss of MC-Net and SS-Net for LA."""
    return dice_over_batch(probabilities, labels, epsilon=1e-8, background=False, squares=False)


def masked_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the cross-entropy averaged over the mask: ``Σ m CE / (Σ m + 1e-16)`` with sums over the batch."""
    cross_entropy = _cross_entropy(logits, labels)
    if mask is None:
        return cross_entropy.mean()
    m = mask.expand_as(cross_entropy).float()
    return all_sum((m * cross_entropy).sum()) / (all_sum(m.sum()) + 1e-16)


def segmentation_loss(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    dice: DiceName = "per-sample",
    legacy_background_mask: bool = False,
) -> Tensor:
    """Return ``L_seg``: the mean of Dice loss and cross-entropy, inside the mask if given."""
    probabilities = logits.float().softmax(1)
    if dice == "per-sample":
        dice_loss = dice_per_sample(probabilities, labels, mask)
    else:
        dice_loss = dice_over_batch(probabilities, labels, mask, legacy_background_mask=legacy_background_mask)
    return (dice_loss + masked_cross_entropy(logits, labels, mask)) / 2


def mixed_loss(
    logits: Tensor,
    background_labels: Tensor,
    foreground_labels: Tensor,
    M: Tensor,
    weights: tuple[float, float],
    *,
    dice: DiceName = "per-sample",
    legacy_background_mask: bool = False,
) -> Tensor:
    """Return ``w_b L_seg(M) + w_f L_seg(1 - M)``: weighted losses of the background image and the pasted foreground.

    ``weights`` are ``(w_b, w_f)``: ``(1, α)`` for X_in, Eq. (6), and ``(α, 1)`` for X_out, Eq. (7). The loss of each
    region is normalized by the size of the region.
    """
    w_b, w_f = weights
    if legacy_background_mask:
        # unmixed as in the public code: the Dice loss of class 0 uses labels outside of the mask, too
        background, foreground = background_labels, foreground_labels
    else:
        background = foreground = mix(background_labels, foreground_labels, M)
    seg = partial(segmentation_loss, logits, dice=dice, legacy_background_mask=legacy_background_mask)
    return w_b * seg(background, M) + w_f * seg(foreground, ~M)


def supervised_terms(logits: Tensor, labels: Tensor, dice: SupervisedDice) -> dict[str, Tensor]:
    """Return cross-entropy and Dice loss of labeled images."""
    return {"cross_entropy": masked_cross_entropy(logits, labels), "dice": supervised_dice(logits, labels, dice)}


def supervised_dice(logits: Tensor, labels: Tensor, dice: SupervisedDice) -> Tensor:
    """Return the Dice loss of labeled images.

    - ``foreground``: ``dice_over_batch`` without the background.
    - ``classes``: ``dice_over_batch`` with the background.
    - ``per-sample``: ``dice_per_sample``.
    """
    probabilities = logits.float().softmax(1)
    if dice == "per-sample":
        return dice_per_sample(probabilities, labels)
    return dice_over_batch(probabilities, labels, epsilon=1e-5, background=dice == "classes")


def half_each(terms: Iterable[str]) -> dict[str, float | Tensor]:
    """Return a weight of ½ for each term."""
    return dict.fromkeys(terms, 0.5)


def entropy(probabilities: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """Return the entropy ``-Σ_c p ln(p + ε)`` of every voxel, ``(B, *space)``, from 0 to ln K, apart from ε."""
    p = probabilities.float()
    return -(p * (p + epsilon).log()).sum(1)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Return ``p^(1/T) / (p^(1/T) + (1 - p)^(1/T))`` of each class.

    With T < 1, values move away from ½; 0, ½ and 1 are unchanged. The results of more than two classes do not sum to 1.
    """
    p = probabilities.float().clamp(0, 1)
    high, low = p.pow(1 / temperature), (1 - p).pow(1 / temperature)
    return high / (high + low)


def branch_loss(outputs: Sequence[Tensor], labels: Tensor, emphasis: float) -> Tensor:
    """Return ``¼ [CE(out0) + Dice(out0) + CE_W1(out1) + CE_W2(out2)]`` for the logits of three branches (CoraNet).

    CE_W is the weighted mean ``Σ W CE / Σ W``. W1 is ``emphasis`` at foreground voxels and 1 at background voxels, and
    W2 is the reverse.
    """
    main, *further = outputs
    loss = masked_cross_entropy(main, labels) + dice_per_sample(main.float().softmax(1), labels)
    for logits, weights in zip(further, opposite_weights(emphasis), strict=True):
        w = voxel_weights(labels, weights)
        loss = loss + all_sum((w * _cross_entropy(logits, labels)).sum()) / all_sum(w.sum())
    return loss / 4


def certain_loss(outputs: Sequence[Tensor], labels: Tensor, M: Tensor, emphasis: float, *, swap: bool) -> Tensor:
    """Return ``branch_loss`` limited to the voxels in M, but with ``Σ M W CE / Σ M`` as CE_W.

    ``swap`` exchanges W1 and W2.
    """
    main, *further = outputs
    W1, W2 = opposite_weights(emphasis)
    loss = masked_cross_entropy(main, labels, M) + dice_per_sample(main.float().softmax(1), labels, M)
    m = M.float()
    for logits, weights in zip(further, (W2, W1) if swap else (W1, W2), strict=True):
        w = voxel_weights(labels, weights)
        loss = loss + all_sum((m * w * _cross_entropy(logits, labels)).sum()) / (all_sum(m.sum()) + 1e-16)
    return loss / 4


def uncertain_loss(outputs: Sequence[Tensor], teacher_outputs: Sequence[Tensor], M: Tensor) -> Tensor:
    """Return the squared difference of the student's and the teacher's probabilities, where M is False.

    ``⅓ Σ_k [Σ (1 - M) |p_k - t_k|² / (Σ (1 - M) + 1e-16)]`` for p_k of the student and t_k of the teacher in branch k.
    """
    m = (~M).float()
    differences = [
        (student.float().softmax(1) - teacher.float().softmax(1)).square().sum(1)
        for student, teacher in zip(outputs, teacher_outputs, strict=True)
    ]
    total = sum(((m * difference).sum() for difference in differences), start=m.new_zeros(()))
    return all_sum(total) / (all_sum(m.sum()) + 1e-16) / len(differences)


def opposite_weights(emphasis: float) -> tuple[ClassWeights, ClassWeights]:
    """Return the class weights of W1 and W2 in ``branch_loss``."""
    return (1.0, emphasis), (emphasis, 1.0)


def voxel_weights(labels: Tensor, weights: ClassWeights) -> Tensor:
    """Return the weight of each voxel."""
    background, foreground = weights
    return background + (foreground - background) * (labels > 0)


def _broadcastable(probabilities: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, one-hot labels and mask in float32, broadcastable to ``(B, K, *space)``."""
    p = probabilities.float()
    Y = one_hot(labels, p.shape[1]).float()
    if mask is None:
        return p, Y, torch.ones((1,) * p.dim(), device=p.device)
    return p, Y, mask.expand(labels.shape).unsqueeze(1).float()


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels, reduction="none")


def deep_loss(loss: Callable[..., Tensor], logits: Sequence[Tensor], *targets: Tensor) -> Tensor:
    """Return the weighted mean of ``loss(logits, *targets)`` over the levels; see ``levels``."""
    parts = [weight * loss(*tensors) for weight, tensors in levels(logits, *targets)]
    return sum(parts[1:], parts[0])


def deep_terms(
    terms: Callable[[Tensor, Tensor], dict[str, Tensor]], logits: Sequence[Tensor], labels: Tensor
) -> dict[str, Tensor]:
    """Return the weighted mean of every term of ``terms(logits, labels)`` over the levels; see ``levels``."""
    parts = [(weight, terms(*tensors)) for weight, tensors in levels(logits, labels)]
    weighted = [{name: weight * value for name, value in values.items()} for weight, values in parts]
    return {name: sum((level[name] for level in weighted[1:]), start=finest) for name, finest in weighted[0].items()}


def levels(logits: Sequence[Tensor], *targets: Tensor) -> Iterator[tuple[float, tuple[Tensor, ...]]]:
    """Yield the weight, the logits and the targets ``(..., *space)`` of every level, finest first.

    The weight halves from level to level, and all weights sum to 1. Targets are subsampled to the size of the logits.
    """
    total = sum(0.5**level for level in range(len(logits)))
    for level, coarse in enumerate(logits):
        subsampled = (subsample(target, 2**level, axes=coarse.dim() - 2) for target in targets)
        yield 0.5**level / total, (coarse, *subsampled)


def subsample(target: Tensor, step: int, axes: int) -> Tensor:
    """Return every ``step``-th voxel along each of the last ``axes`` axes, beginning with voxel ``step // 2``."""
    index: tuple[Any, ...] = (..., *[slice(step // 2, None, step)] * axes)
    return target[index]
