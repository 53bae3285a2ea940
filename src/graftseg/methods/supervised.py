"""Supervised baseline: training on labeled images only."""

from collections.abc import Iterator
from functools import partial

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.ops.losses import SupervisedDice, deep_terms, half_each, supervised_terms


class SupervisedConfig(Settings):
    """``dice``: the Dice loss, which is averaged with the cross-entropy.

    - ``foreground``: sums of squares over the batch, without the background (recipes for LA).
    - ``classes``: sums of squares over the batch, with the background (recipes for ACDC).
    - ``per-sample``: Dice of each sample and class.
    """

    dice: SupervisedDice = "classes"


class Supervised(Method):
    """``½ (CE + Dice)`` on labeled images, at all decoder levels if the network has deep supervision."""

    Config = SupervisedConfig
    uses_unlabeled = False
    supervises_levels = True
    compiled_functions = ("terms",)
    config: SupervisedConfig

    def __init__(self, config: SupervisedConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.terms = partial(supervised_terms, dice=config.dice)
        self.is_deep = networks.settings.deep_supervision

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice)``."""
        x, y = batch.labeled.images, batch.labeled.labels
        if self.is_deep:
            terms = deep_terms(self.terms, self.student(x, all_levels=True), y)
        else:
            terms = self.terms(self.student(x), y)
        yield Objective("student", terms, half_each(terms), shows={"X_labeled": x, "Y_labeled": y})
