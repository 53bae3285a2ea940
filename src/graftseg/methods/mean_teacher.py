"""Mean teacher: consistency with an EMA teacher on unlabeled images (NeurIPS 2017)."""

from collections.abc import Iterator
from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.teachers import MeanTeacherMethod
from graftseg.networks import Networks
from graftseg.ops.losses import SupervisedDice, half_each, supervised_terms
from graftseg.ops.optimizers import RampLength, consistency_ramp
from graftseg.ops.perturbations import Deviation, add_noise


class MeanTeacherConfig(Settings):
    """Settings of the mean teacher; except for ``dice``, the defaults are the values of UA-MT's public code.

    - ``dice``: the Dice loss on labeled images; the public code uses ``foreground``.
    - ``weight``: weight of the consistency, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    - ``noise``: standard deviation of the noise added to the teacher's images.
    - ``ema_decay``: EMA decay of the teacher after the warm-up, which ``MeanTeacherMethod`` describes.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 40
    noise: Deviation = 0.1
    ema_decay: float = Field(0.99, ge=0, le=1)


class MeanTeacher(MeanTeacherMethod):
    """``½ (CE + Dice)`` on labeled images, and squared difference from teacher probabilities on unlabeled images.

    The teacher gets the same unlabeled images as the student, with added noise. Labeled and unlabeled images go through
    the student in one batch. The teacher stays in training mode.
    """

    Config = MeanTeacherConfig
    compiled_functions = ("terms", "consistency")
    config: MeanTeacherConfig

    def __init__(self, config: MeanTeacherConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.terms = partial(supervised_terms, dice=config.dice)
        self.consistency = mean_squared_difference

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w L_con``."""
        config, x_l, x_u = self.config, batch.labeled.images, batch.unlabeled
        X = add_noise(x_u, config.noise)
        with torch.no_grad():
            z_teacher = self.teacher(X)
        z = self.student(torch.cat([x_l, x_u]))
        terms = self.terms(z[: len(x_l)], batch.labeled.labels)
        weights = half_each(terms)
        terms["consistency"] = self.consistency(z[len(x_l) :], z_teacher)
        weights["consistency"] = config.weight * consistency_ramp(now.step, config.ramp)
        shows = {"X_labeled": x_l, "Y_labeled": batch.labeled.labels, "X_unlabeled": X}
        yield Objective("student", terms, weights, shows)


def mean_squared_difference(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Return the squared difference of probabilities, averaged over samples, classes and voxels."""
    return (logits.float().softmax(1) - teacher_logits.float().softmax(1)).square().mean()
