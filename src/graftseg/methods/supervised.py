"""The baseline: labeled scans alone."""

from collections.abc import Iterator
from typing import Literal

from graftseg.losses import dice_over_batch, dice_per_sample, masked_cross_entropy
from graftseg.methods.base import Method
from graftseg.settings import Settings
from graftseg.types import Batch, Objective, Progress


class SupervisedConfig(Settings):
    """Which Dice stands beside the cross-entropy.

    ``foreground``: squared sums over the batch, without the background (LA). ``classes``: the same with it (ACDC).
    ``per-sample``: every sample and class by itself.
    """

    dice: Literal["foreground", "classes", "per-sample"] = "classes"


class Supervised(Method):
    """``½ (CE + Dice)`` on the labeled images."""

    Config = SupervisedConfig
    uses_unlabeled = False
    config: SupervisedConfig

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the cross-entropy and the Dice loss of the labeled images, half each."""
        x, y = batch.labeled.images, batch.labeled.labels
        logits = self.student(x)
        probabilities = logits.float().softmax(1)
        if self.config.dice == "per-sample":
            dice = dice_per_sample(probabilities, y)
        else:
            dice = dice_over_batch(probabilities, y, epsilon=1e-5, background=self.config.dice == "classes")
        terms = {"cross_entropy": masked_cross_entropy(logits, y), "dice": dice}
        yield Objective("student", terms, dict.fromkeys(terms, 0.5), shows={"X_labeled": x, "Y_labeled": y})
