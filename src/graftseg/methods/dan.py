"""Deep adversarial network: a discriminator compares labeled and unlabeled predictions (MICCAI 2017)."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch
from pydantic import Field

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.discriminator import MIN_SIDE, Discriminator, frozen_discriminator, verdict_loss
from graftseg.networks.layers import eval_mode
from graftseg.ops.losses import SupervisedDice, half_each, supervised_terms
from graftseg.ops.optimizers import DISCRIMINATOR_OPTIMIZER, RampLength, consistency_ramp


class DanConfig(Settings):
    """Settings of DAN; the defaults are the values of SSL4MIS's public code.

    - ``dice``: the Dice loss on labeled images.
    - ``weight``: weight of the adversarial term, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 200


class Dan(Method):
    """A student, and a discriminator that predicts whether a segmentation belongs to a labeled image.

    The discriminator gets the probabilities of all classes and the image. The student learns to make predictions of
    unlabeled images similar to those of labeled images. Each of the two networks is in eval mode while the other is
    trained.
    """

    Config = DanConfig
    trained_modules = ("student", "discriminator")
    default_optimizers: ClassVar = {"discriminator": DISCRIMINATOR_OPTIMIZER}
    min_patch_side = MIN_SIDE
    compiled_functions = ("terms",)
    config: DanConfig

    def __init__(self, config: DanConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.discriminator = Discriminator(networks.classes, networks.in_channels, networks.dimensions)
        self.terms = partial(supervised_terms, dice=config.dice)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w CE(D(p_u), 1)`` for the student, then the discriminator's cross-entropy."""
        config, x_l, x_u = self.config, batch.labeled.images, batch.unlabeled
        x = torch.cat([x_l, x_u])
        z = self.student(x)
        terms = self.terms(z[: len(x_l)], batch.labeled.labels)
        weights = half_each(terms)
        with frozen_discriminator(self.discriminator):
            verdict = self.discriminator(z[len(x_l) :].float().softmax(1), x_u)
        terms["adversarial"] = verdict_loss(verdict, labeled=len(x_u))
        weights["adversarial"] = config.weight * consistency_ramp(now.step, config.ramp)
        yield Objective("student", terms, weights, {"X_labeled": x_l, "Y_labeled": batch.labeled.labels})

        with eval_mode(self.student), torch.no_grad():
            p = self.student(x).float().softmax(1)
        terms = {"discriminator": verdict_loss(self.discriminator(p, x), labeled=len(x_l))}
        yield Objective("discriminator", terms, shows={"X_unlabeled": x_u, "Y_unlabeled": p[len(x_l) :].argmax(1)})
