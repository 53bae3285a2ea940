"""Dual-task consistency between class probabilities and signed distances (AAAI 2021)."""

from collections.abc import Iterator
from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.branches import DualTask
from graftseg.ops.distances import dual_task_terms
from graftseg.ops.losses import SupervisedDice
from graftseg.ops.optimizers import RampLength, consistency_ramp


class DtcConfig(Settings):
    """Settings of DTC; except for ``dice``, the defaults are the values of DTC's public code.

    - ``dice``: Dice loss of the segmentation head; the public code uses ``foreground``. There is no cross-entropy.
    - ``distance_weight``: weight of the squared error of the distance head.
    - ``weight``: weight of the consistency, multiplied by a ramp that reaches 1 after ``ramp`` times 150 steps.
    - ``sharpness``: slope of the sigmoid that turns distances into a map from 0 to 1.
    - ``absent``: signed distance for a class that is missing from a patch, from 0 (as published) to 1 (far outside).
    """

    dice: SupervisedDice = "classes"
    distance_weight: float = Field(0.3, ge=0, le=1e9)
    weight: float = Field(1.0, ge=0, le=1e9)
    ramp: RampLength = 40
    sharpness: float = Field(1500.0, gt=0, le=1e9)
    absent: float = Field(0.0, ge=0, le=1)


class Dtc(Method):
    """A student with a second head for signed distances. The two heads learn to agree on all images.

    Gradients of the consistency pass through both heads. The publication covers two classes only. With more classes,
    every class including the background has a distance map here, which is compared with the probability of the class.

    The networks compute in float32: in bfloat16, gradients of the steep sigmoid would be mostly rounding noise.
    """

    Config = DtcConfig
    min_precision = "float32"
    compiled_functions = ("terms", "consistency")
    config: DtcConfig

    def __init__(self, config: DtcConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.terms = partial(dual_task_terms, dice=config.dice, absent=config.absent)
        self.consistency = partial(dual_task_consistency, sharpness=config.sharpness)

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with a second head for signed distances."""
        return DualTask(networks.build(), networks.classes)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``Dice + 0.3 (s_l - S)² + w L_dtc``.

        s_l are the predicted distances of labeled images. S are the signed distances of their labels. 0.3 is the
        default of ``distance_weight``.
        """
        config, x_l, x_u, y = self.config, batch.labeled.images, batch.unlabeled, batch.labeled.labels
        z, s = self.student(torch.cat([x_l, x_u]), all_outputs=True)
        n = len(x_l)
        terms = self.terms(z[:n], s[:n], y)
        terms["consistency"] = self.consistency(z, s)
        weights: dict[str, float | Tensor] = {
            "distance": config.distance_weight,
            "consistency": config.weight * consistency_ramp(now.step, config.ramp),
        }
        shows = {"X_labeled": x_l, "Y_labeled": y, "X_unlabeled": x_u, "X_distance": s[n:, -1:].detach()}
        yield Objective("student", terms, weights, shows)


def dual_task_consistency(logits: Tensor, distances: Tensor, sharpness: float) -> Tensor:
    """Return ``L_dtc = mean (σ(-k s) - q)²`` for distances s, probabilities q and sharpness k.

    The mean is over samples, voxels and classes; for two classes, it includes only class 1.
    """
    q = logits.float().softmax(1)[:, -distances.shape[1] :]
    return F.mse_loss(sigmoid_map(distances, sharpness), q)


def sigmoid_map(distances: Tensor, sharpness: float) -> Tensor:
    """Return ``σ(-k s)`` for sharpness k: near 1 inside (where s < 0), near 0 outside, ½ at the boundary."""
    return torch.sigmoid(-sharpness * distances.float())
