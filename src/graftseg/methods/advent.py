"""ADVENT: entropy minimization on unlabeled images, direct or adversarial (CVPR 2019)."""

import math
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.discriminator import MIN_SIDE, EntropyDiscriminator, frozen_discriminator
from graftseg.ops.losses import SupervisedDice, entropy, half_each, supervised_terms
from graftseg.ops.optimizers import DISCRIMINATOR_OPTIMIZER, RampLength, consistency_ramp


class AdventConfig(Settings):
    """Settings of entropy minimization; the defaults are the values of SSL4MIS's public code.

    - ``dice``: the Dice loss on labeled images.
    - ``weight``: weight of the entropy, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 200


class Advent(Method):
    """MinEnt: ``½ (CE + Dice)`` of labeled images, plus the weighted entropy of the predictions for all images."""

    Config = AdventConfig
    compiled_functions = ("terms", "entropy")
    config: AdventConfig

    def __init__(self, config: AdventConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.terms = partial(supervised_terms, dice=config.dice)
        self.entropy = mean_entropy

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w H``."""
        config, x_l, x_u = self.config, batch.labeled.images, batch.unlabeled
        z = self.student(torch.cat([x_l, x_u]))
        terms = self.terms(z[: len(x_l)], batch.labeled.labels)
        weights = half_each(terms)
        terms["entropy"] = self.entropy(z)
        weights["entropy"] = config.weight * consistency_ramp(now.step, config.ramp)
        shows = {"X_labeled": x_l, "Y_labeled": batch.labeled.labels, "X_unlabeled": x_u}
        yield Objective("student", terms, weights, shows)


class AdventAdversarialConfig(Settings):
    """Settings of adversarial entropy minimization; the defaults are the values of ADVENT's public code.

    - ``dice``: the Dice loss on labeled images.
    - ``weight``: constant weight of the adversarial term.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.001, ge=0, le=1e9)


class AdventAdversarial(Method):
    """AdvEnt: a discriminator separates entropy maps of labeled images (0) from those of unlabeled images (1).

    The student learns to make entropy maps of unlabeled images similar to those of labeled images. Student and
    discriminator learn from the same predictions, which are made before either is updated.
    """

    Config = AdventAdversarialConfig
    trained_modules = ("student", "discriminator")
    default_optimizers: ClassVar = {"discriminator": DISCRIMINATOR_OPTIMIZER}
    min_patch_side = MIN_SIDE
    compiled_functions = ("terms", "information")
    config: AdventAdversarialConfig

    def __init__(self, config: AdventAdversarialConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.discriminator = EntropyDiscriminator(networks.classes, networks.dimensions)
        self.terms = partial(supervised_terms, dice=config.dice)
        self.information = self_information

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w BCE(D(I_u), 0)`` for the student, then ``½ (BCE(D(I_l), 0) + BCE(D(I_u), 1))``.

        I_l and I_u are the entropy maps of labeled and unlabeled images, D is the discriminator.
        """
        x_l, x_u = batch.labeled.images, batch.unlabeled
        z = self.student(torch.cat([x_l, x_u]))
        terms = self.terms(z[: len(x_l)], batch.labeled.labels)
        weights = half_each(terms)
        maps = self.information(z)
        with frozen_discriminator(self.discriminator):
            terms["adversarial"] = discriminator_loss(self.discriminator(maps[len(x_l) :]), unlabeled=False)
        weights["adversarial"] = self.config.weight
        yield Objective("student", terms, weights, {"X_labeled": x_l, "Y_labeled": batch.labeled.labels})

        verdict = self.discriminator(maps.detach())
        terms = {
            "discriminator_labeled": discriminator_loss(verdict[: len(x_l)], unlabeled=False),
            "discriminator_unlabeled": discriminator_loss(verdict[len(x_l) :], unlabeled=True),
        }
        shows = {"X_unlabeled": x_u, "X_entropy": maps[len(x_l) :].detach().sum(1, keepdim=True)}
        yield Objective("discriminator", terms, half_each(terms), shows)


def mean_entropy(logits: Tensor) -> Tensor:
    """Return ``H``: the entropy divided by its maximum ln K, averaged over samples and voxels."""
    return entropy(logits.float().softmax(1)).mean() / math.log(logits.shape[1])


def self_information(logits: Tensor) -> Tensor:
    """Return ``I_c = -p_c log p_c / log K``, ``(B, K, *space)``: the contribution of each class to the entropy."""
    p = logits.float().softmax(1)
    return -p * (p + 1e-30).log() / math.log(logits.shape[1])


def discriminator_loss(verdict: Tensor, *, unlabeled: bool) -> Tensor:
    """Return the binary cross-entropy of discriminator logits whose target is 1 (unlabeled) or 0 (labeled)."""
    z = verdict.float()
    return F.softplus(-z if unlabeled else z).mean()
