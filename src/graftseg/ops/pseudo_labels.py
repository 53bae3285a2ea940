"""A teacher's decision, cleaned by components."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from graftseg.ops.components import ComponentRule, chosen_classes, largest_components

Decision = Literal["threshold", "argmax"]


def decide(probabilities: Tensor, decision: Decision) -> Tensor:
    """The initial pseudo-label: foreground where its probability is at least 0.5 (two classes), or the argmax."""
    if decision == "argmax":
        return probabilities.argmax(1)
    if probabilities.shape[1] != 2:
        raise ValueError(f"a threshold decides between two classes, not {probabilities.shape[1]}")
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
    """Eq. (3) and what follows it: the teacher's probabilities, decided, then the largest component of each class.

    ``clean`` names the classes of which only the largest component stays: all, none or some.
    The teacher runs in the mode it is in; as published that is training mode, with batch statistics and dropout.
    """
    probabilities = teacher(images).float().softmax(1)
    labels = decide(probabilities, decision)
    if not clean:
        return labels
    return largest_components(labels, probabilities.shape[1], connectivity, chosen_classes(clean))
