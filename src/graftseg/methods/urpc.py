"""Uncertainty-rectified pyramid consistency between the levels of a decoder (MICCAI 2021)."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from graftseg.core.ranks import all_mean
from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.pyramid import Pyramid
from graftseg.ops.losses import SupervisedDice, half_each, supervised_terms
from graftseg.ops.optimizers import RampLength, consistency_ramp


class UrpcConfig(Settings):
    """Settings of URPC; the defaults are the values of URPC's public code for ACDC.

    - ``dice``: the Dice loss on labeled images.
    - ``weight``: weight of the consistency, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    """

    dice: SupervisedDice = "classes"
    weight: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 200


class Urpc(Method):
    """A student with a head at every decoder level. On unlabeled images, all heads learn to agree with their mean.

    Labeled and unlabeled images go through the student in one batch. Prediction uses only the finest logits.
    """

    Config = UrpcConfig
    compiled_functions = ("terms", "consistency")
    config: UrpcConfig

    def __init__(self, config: UrpcConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.terms = partial(pyramid_terms, dice=config.dice)
        self.consistency = rectified_consistency

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with a head at every level."""
        return Pyramid(networks.build())

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``½ (CE + Dice) + w mean_k L_k``; cross-entropy and Dice loss are averaged over the heads."""
        config, x_l, x_u, y = self.config, batch.labeled.images, batch.unlabeled, batch.labeled.labels
        z = self.student(torch.cat([x_l, x_u]), all_outputs=True)
        n = len(x_l)
        terms = self.terms([z_k[:n] for z_k in z], y)
        weights = half_each(terms)
        terms["consistency"] = self.consistency([z_k[n:] for z_k in z])
        weights["consistency"] = config.weight * consistency_ramp(now.step, config.ramp)
        shows = {"X_labeled": x_l, "Y_labeled": y, "X_unlabeled": x_u, "Y_unlabeled": z[0][n:].argmax(1)}
        yield Objective("student", terms, weights, shows)


def pyramid_terms(logits: list[Tensor], labels: Tensor, dice: SupervisedDice) -> dict[str, Tensor]:
    """Return cross-entropy and Dice loss of labeled images, averaged over the heads."""
    heads = [supervised_terms(z_k, labels, dice) for z_k in logits]
    return {name: torch.stack([head[name] for head in heads]).mean() for name in heads[0]}


def rectified_consistency(logits: list[Tensor]) -> Tensor:
    """Return ``mean_k L_k``: L_k compares head k with the mean p̄ of all heads, with less weight at uncertain voxels.

    ``L_k = mean(E_k (p̄ - p_k)²) / (mean(E_k) + 1e-8) + mean(D_k)``. D_k is the Kullback-Leibler divergence of a voxel,
    ``D_k = Σ_c p̄ (ln p̄ - ln p_k)``, and ``E_k = exp(-D_k)``. Gradients also pass through p̄. Logarithms are computed
    from logits, so a probability of zero causes no infinite value.
    """
    log_p = torch.stack([z_k.float().log_softmax(1) for z_k in logits])
    log_mean = log_p.logsumexp(0) - math.log(len(logits))
    p_mean = log_mean.exp()
    losses = []
    for log_k in log_p.unbind():
        D = (p_mean * (log_mean - log_k)).sum(1, keepdim=True)
        E = torch.exp(-D)
        squares = all_mean((E * (p_mean - log_k.exp()).square()).mean())
        losses.append(squares / (all_mean(E.mean()) + 1e-8) + D.mean())
    return torch.stack(losses).mean()
