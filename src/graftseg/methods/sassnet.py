"""SASSNet: a discriminator compares signed distances of labeled and unlabeled images (MICCAI 2020)."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.branches import DualTask
from graftseg.networks.discriminator import MIN_SIDE, Discriminator, frozen_discriminator, verdict_loss
from graftseg.networks.layers import eval_mode
from graftseg.ops.distances import distance_channels, dual_task_terms
from graftseg.ops.losses import SupervisedDice
from graftseg.ops.optimizers import DISCRIMINATOR_OPTIMIZER, RampLength, consistency_ramp


class SassNetConfig(Settings):
    """Settings of SASSNet; except for ``dice``, the defaults are the values of SASSNet's public code.

    - ``dice``: Dice loss of the segmentation head; the public code uses ``foreground``. There is no cross-entropy.
    - ``distance_weight``: weight of the squared error of the distance head.
    - ``adversarial_weight``: weight of the adversarial term, multiplied by a ramp that reaches 1 after ``ramp`` times
      150 steps. The published weight is 0.01 for 16 labeled scans and 0.015 for 8.
    - ``absent``: signed distance for a class that is missing from a patch, from 0 (as published) to 1 (far outside).
    """

    dice: SupervisedDice = "classes"
    distance_weight: float = Field(0.3, ge=0, le=1e9)
    adversarial_weight: float = Field(0.01, ge=0, le=1e9)
    ramp: RampLength = 40
    absent: float = Field(0.0, ge=0, le=1)


class SassNet(Method):
    """A student with a second head for signed distances, and a discriminator for these distance maps.

    The discriminator gets a distance map and its image and predicts whether the image is labeled. The student learns to
    make distance maps of unlabeled images similar to those of labeled images. Each of the two networks is in eval mode
    while the other is trained. The publication covers two classes only. With more classes, every class including the
    background has a distance map here, and the discriminator gets all maps.
    """

    Config = SassNetConfig
    trained_modules = ("student", "discriminator")
    default_optimizers: ClassVar = {"discriminator": DISCRIMINATOR_OPTIMIZER}
    min_patch_side = MIN_SIDE
    compiled_functions = ("terms",)
    config: SassNetConfig

    def __init__(self, config: SassNetConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        maps = distance_channels(networks.classes)
        self.discriminator = Discriminator(maps, networks.in_channels, networks.dimensions)
        self.terms = partial(dual_task_terms, dice=config.dice, absent=config.absent)

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with a second head for signed distances."""
        return DualTask(networks.build(), networks.classes)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``Dice + 0.3 (s_l - S)² + w CE(D(s_u), 1)`` for the student, then the discriminator's cross-entropy.

        s are predicted distances, S are the signed distances of the labels, and 0.3 is the default ``distance_weight``.
        """
        config, x_l, x_u = self.config, batch.labeled.images, batch.unlabeled
        x, y, n = torch.cat([x_l, x_u]), batch.labeled.labels, len(x_l)
        z, s = self.student(x, all_outputs=True)
        terms = self.terms(z[:n], s[:n], y)
        with frozen_discriminator(self.discriminator):
            verdict = self.discriminator(s[n:], x_u)
        terms["adversarial"] = verdict_loss(verdict, labeled=len(x_u))
        weights: dict[str, float | Tensor] = {
            "distance": config.distance_weight,
            "adversarial": config.adversarial_weight * consistency_ramp(now.step, config.ramp),
        }
        yield Objective("student", terms, weights, {"X_labeled": x_l, "Y_labeled": y})

        with eval_mode(self.student), torch.no_grad():
            _, s = self.student(x, all_outputs=True)
        terms = {"discriminator": verdict_loss(self.discriminator(s, x), labeled=n)}
        yield Objective("discriminator", terms, shows={"X_unlabeled": x_u, "X_distance": s[n:, -1:]})
