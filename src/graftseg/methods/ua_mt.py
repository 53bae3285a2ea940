"""Uncertainty-aware mean teacher: consistency only where the teacher is certain (MICCAI 2019)."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.ranks import all_sum
from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.teachers import MeanTeacherMethod
from graftseg.networks import Networks
from graftseg.ops.losses import SupervisedDice, entropy, half_each, supervised_terms
from graftseg.ops.optimizers import RampLength, consistency_ramp, ramp_up
from graftseg.ops.perturbations import Deviation, add_noise

COPIES_PER_FORWARD = 2  # noisy copies of the batch in a forward pass of the teacher


class UaMtConfig(Settings):
    """Settings of UA-MT; except for ``dice``, the defaults are the values of UA-MT's public code for two classes.

    - ``dice``: the Dice loss on labeled images; the public code uses ``foreground``.
    - ``weight``: weight of the consistency, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    - ``noise``: standard deviation of the noise added to the teacher's images.
    - ``passes``: number of teacher predictions that are averaged to estimate the uncertainty.
    - ``threshold_start``, ``threshold_end``: a voxel is used if its entropy is below a fraction of
      ``entropy_limit``. This fraction grows from ``threshold_start`` to ``threshold_end`` during the stage.
    - ``entropy_limit``: ``ln 2``, as in the public code for any number of classes, or ``ln K``, the maximum entropy of
      K classes.
    - ``ema_decay``: EMA decay of the teacher after the warm-up, which ``MeanTeacherMethod`` describes.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 40
    noise: Deviation = 0.1
    passes: int = Field(8, ge=COPIES_PER_FORWARD, le=64, multiple_of=COPIES_PER_FORWARD)
    threshold_start: float = Field(0.75, ge=0, le=1e9)
    threshold_end: float = Field(1.0, ge=0, le=1e9)
    entropy_limit: Literal["ln 2", "ln K"] = "ln 2"
    ema_decay: float = Field(0.99, ge=0, le=1)


class UaMt(MeanTeacherMethod):
    """A mean teacher whose consistency is limited to voxels of low entropy.

    The entropy is computed from the mean of several teacher predictions with different noise and dropout. The teacher
    stays in training mode, as published. Labeled and unlabeled images go through the student in one batch.
    """

    Config = UaMtConfig
    compiled_functions = ("terms", "consistency")
    config: UaMtConfig

    def __init__(self, config: UaMtConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.limit = math.log(2 if config.entropy_limit == "ln 2" else networks.classes)
        self.terms = partial(supervised_terms, dice=config.dice)
        self.consistency = masked_squared_difference

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w L_con``."""
        config, x_l, x_u = self.config, batch.labeled.images, batch.unlabeled
        X = add_noise(x_u, config.noise)
        with torch.no_grad():
            z_teacher = self.teacher(X)
            M = entropy(self._mean_probabilities(x_u)) < self._threshold(now)
        z = self.student(torch.cat([x_l, x_u]))
        terms = self.terms(z[: len(x_l)], batch.labeled.labels)
        weights = half_each(terms)
        terms["consistency"] = self.consistency(z[len(x_l) :], z_teacher, M)
        weights["consistency"] = config.weight * consistency_ramp(now.step, config.ramp)
        shows = {"X_labeled": x_l, "Y_labeled": batch.labeled.labels, "X_unlabeled": X, "M_certain": M[0]}
        yield Objective("student", terms, weights, shows)

    def _mean_probabilities(self, images: Tensor) -> Tensor:
        """Return the mean of the teacher's predictions; each forward pass gets two noisy copies of the batch."""
        copies = torch.cat([images] * COPIES_PER_FORWARD)
        forwards = range(self.config.passes // COPIES_PER_FORWARD)
        predictions = [self.teacher(add_noise(copies, self.config.noise)).float().softmax(1) for _ in forwards]
        return torch.stack([p for prediction in predictions for p in prediction.chunk(COPIES_PER_FORWARD)]).mean(0)

    def _threshold(self, now: Progress) -> Tensor:
        """Return the entropy below which a voxel is used; this threshold rises during the stage."""
        start, end = self.config.threshold_start, self.config.threshold_end
        return (start + (end - start) * ramp_up(now.step, now.total)) * self.limit


def masked_squared_difference(logits: Tensor, teacher_logits: Tensor, M: Tensor) -> Tensor:
    """Return ``Σ M Σ_c (p - p_teacher)² / (2 Σ M + 1e-16)``; the factor 2 is published for any number of classes."""
    difference = (logits.float().softmax(1) - teacher_logits.float().softmax(1)).square().sum(1)
    return all_sum((M * difference).sum()) / (2 * all_sum(M.sum()) + 1e-16)
