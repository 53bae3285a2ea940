"""Pseudo-labels: a teacher's predicted labels, reduced to largest components."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from graftseg.ops.components import ComponentRule, chosen_classes, largest_components

Decision = Literal["threshold", "argmax"]


def decide(probabilities: Tensor, decision: Decision) -> Tensor:
    """Return the most probable class; for ``threshold`` (two classes), class 1 if its probability is at least 0.5.

    As in the public code of BCP, 0.5 is class 1 in a pseudo-label and background in a predicted label map.
    """
    if decision == "argmax":
        return probabilities.max(1).indices  # on a CPU, ten times as fast as argmax
    if probabilities.shape[1] != 2:
        raise ValueError(f"a threshold needs two classes, not {probabilities.shape[1]}")
    return (probabilities[:, 1] >= 0.5).long()


@torch.no_grad()
def pseudo_label(
    teacher: Callable[[Tensor], Tensor],
    images: Tensor,
    *,
    decision: Decision = "argmax",
    clean: ComponentRule = True,
    connectivity: int | None = None,
) -> Tensor:
    """Return pseudo-labels: the labels that the teacher predicts, Eq. (3), reduced to the largest component per class.

    ``clean`` selects the classes that keep only their largest component: all, none or some. The mode of the teacher is
    not changed. In BCP, the teacher is in training mode, with batch statistics and dropout.
    """
    return labels_of(teacher(images).float().softmax(1), decision, clean=clean, connectivity=connectivity)


def labels_of(
    probabilities: Tensor, decision: Decision, *, clean: ComponentRule = True, connectivity: int | None = None
) -> Tensor:
    """Return labels of probabilities ``(B, K, *space)``; classes in ``clean`` keep only their largest component."""
    labels = decide(probabilities, decision)
    if not clean:
        return labels
    return largest_components(labels, probabilities.shape[1], connectivity, chosen_classes(clean))


def confidence(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``max(0, (p_y - 1/K) / (1 - 1/K))`` of every voxel with label y: 1 at p_y = 1, and 0 at p_y ≤ 1/K."""
    chance = 1 / probabilities.shape[1]
    p_y = probabilities.gather(1, labels.unsqueeze(1)).squeeze(1)
    return ((p_y - chance) / (1 - chance)).clamp(min=0)
