"""The baseline: labeled scans alone."""

from collections.abc import Iterator
from functools import partial
from typing import Literal

from torch import Tensor

from graftseg.losses import dice_over_batch, dice_per_sample, masked_cross_entropy
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.settings import Settings
from graftseg.types import Batch, Objective, Progress

DiceOver = Literal["foreground", "classes", "per-sample"]


class SupervisedConfig(Settings):
    """Which Dice stands beside the cross-entropy.

    ``foreground``: squared sums over the batch, without the background (LA). ``classes``: the same with it (ACDC).
    ``per-sample``: every sample and class by itself.
    """

    dice: DiceOver = "classes"


class Supervised(Method):
    """``½ (CE + Dice)`` on the labeled images."""

    Config = SupervisedConfig
    uses_unlabeled = False
    hot = ("losses",)
    config: SupervisedConfig

    def __init__(self, config: SupervisedConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.losses = partial(_losses, config.dice)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the cross-entropy and the Dice loss of the labeled images, half each."""
        x, y = batch.labeled.images, batch.labeled.labels
        cross_entropy, dice = self.losses(self.student(x), y)
        terms = {"cross_entropy": cross_entropy, "dice": dice}
        yield Objective("student", terms, dict.fromkeys(terms, 0.5), shows={"X_labeled": x, "Y_labeled": y})


def _losses(dice: DiceOver, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = logits.float().softmax(1)
    if dice == "per-sample":
        overlap = dice_per_sample(probabilities, labels)
    else:
        overlap = dice_over_batch(probabilities, labels, epsilon=1e-5, background=dice == "classes")
    return masked_cross_entropy(logits, labels), overlap
