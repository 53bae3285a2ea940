"""SS-Net: smoothness under adversarial noise and class separation in feature space (MICCAI 2022)."""

from collections.abc import Iterator
from functools import partial
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from graftseg.core.ranks import all_sum
from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.prototypes import ClassSeparation, KeptScores, PrototypeNetwork
from graftseg.ops.losses import dice_over_batch, foreground_dice_of_sums
from graftseg.ops.optimizers import RampLength, consistency_ramp
from graftseg.ops.perturbations import adversarial_direction, batch_statistics_only, probabilities

SsNetDice = Literal["foreground", "classes"]


class SsNetConfig(Settings):
    """Settings of SS-Net; the defaults are the values for the left atrium.

    - ``dice``: formula of the Dice loss and of the smoothness loss L_v. ``foreground`` (LA) has plain sums: the Dice
      loss omits the background, and L_v sums over all classes at once. ``classes`` (ACDC) has sums of squares for every
      class, including the background.
    - ``weight``: weight of all terms except the Dice loss, multiplied by a ramp that reaches 1 after ``ramp`` times 150
      steps.
    - ``separation``: additional factor for the distances from prototypes.
    - ``noise``: length of the adversarial noise of an image.
    - ``probe``: length of the noise at which the gradient for the adversarial direction is computed.
    - ``iterations``: number of times that this gradient is computed.
    - ``prototypes``: number of prototypes of each class.
    - ``keep``: whether voxels with the lowest or the highest selector scores become prototypes.
    - ``weigh_prototypes``: weight prototypes by separate selectors; the public code intends this but does not do it.
    """

    dice: SsNetDice = "foreground"
    weight: float = Field(1.0, ge=0, le=1e9)
    ramp: RampLength = 40.0
    separation: float = Field(0.1, ge=0, le=1e9)
    noise: float = Field(10.0, gt=0, le=1e6)
    probe: float = Field(10.0, gt=0, le=1e6)
    iterations: int = Field(1, ge=1, le=64)
    prototypes: int = Field(32, ge=2, le=4096)
    keep: KeptScores = "lowest"
    weigh_prototypes: bool = False


class SsNet(Method):
    """``Dice + w (L_v + 0.1 (L_l + L_u))``, where L_v is the change of the prediction under adversarial noise.

    L_l is the distance of labeled voxels from the prototypes of their label. L_u is the distance of unlabeled voxels
    from the prototypes of the predicted class. L_l and L_u include only foreground voxels, because the background has
    no prototypes. Prototypes are correctly predicted, labeled voxels. The logits of the student do not depend on its
    projection and selection heads.
    """

    Config = SsNetConfig
    compiled_functions = ("dice", "distance", "separate")
    config: SsNetConfig

    def __init__(self, config: SsNetConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.dice = partial(supervised_dice, dice=config.dice)
        self.distance = pooled_dice if config.dice == "foreground" else class_dice
        self.separate = cast(PrototypeNetwork, self.student).separation.forward

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with projection and selection heads on its features."""
        config: SsNetConfig = self.config
        separation = ClassSeparation(
            networks.settings.width,
            networks.classes,
            slots=config.prototypes,
            keep=config.keep,
            weigh_memory=config.weigh_prototypes,
        )
        return PrototypeNetwork(networks.build(), separation)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield the Dice loss of labeled images, and the smoothness and separation losses of all images."""
        config, y, n = self.config, batch.labeled.labels, len(batch.labeled.images)
        X = torch.cat([batch.labeled.images, batch.unlabeled])
        z, f = self.student(X, all_outputs=True)
        Y = z.argmax(1)
        L_l, L_u = self.separate((f[:n], y, Y[:n]), (f[n:], Y[n:]))
        L_v, X_noisy = self._smoothness(X)
        terms = {"dice": self.dice(z[:n], y), "L_v": L_v, "L_l": L_l, "L_u": L_u}
        w = config.weight * consistency_ramp(now.step, config.ramp)
        weights: dict[str, float | Tensor] = {"L_v": w, "L_l": config.separation * w, "L_u": config.separation * w}
        yield Objective("student", terms, weights, shows={"X_noisy": X_noisy, "Y_decided": Y})

    def _smoothness(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the change of the prediction under adversarial noise, and the noisy images.

        The target is a separate prediction with new dropout and without gradient.
        """
        config = self.config
        with torch.no_grad():
            target = probabilities(self.student, images)
        direction = adversarial_direction(
            self.student, images, target, self.distance, probe=config.probe, iterations=config.iterations
        )
        noisy = images + config.noise * direction
        with batch_statistics_only(self.student):
            return self.distance(probabilities(self.student, noisy), target), noisy


def supervised_dice(logits: Tensor, labels: Tensor, dice: SsNetDice) -> Tensor:
    """Return the Dice loss of labeled images: ``foreground`` (plain sums) or ``classes`` (sums of squares)."""
    p = logits.float().softmax(1)
    return foreground_dice_of_sums(p, labels) if dice == "foreground" else dice_over_batch(p, labels)


def pooled_dice(p: Tensor, q: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Return ``1 - (2 Σ p q + ε) / (Σ p + Σ q + ε)`` of two predictions; sums run over all axes."""
    return 1 - (2 * all_sum((p * q).sum()) + epsilon) / (all_sum(p.sum() + q.sum()) + epsilon)


def class_dice(p: Tensor, q: Tensor, epsilon: float = 1e-10) -> Tensor:
    """Return ``mean_c 1 - (2 Σ p q + ε) / (Σ p² + Σ q² + ε)`` of two predictions; sums run over batch and space."""
    summed_axes = (0, *range(2, p.dim()))
    total = all_sum(p.square().sum(summed_axes) + q.square().sum(summed_axes))
    return (1 - (2 * all_sum((p * q).sum(summed_axes)) + epsilon) / (total + epsilon)).mean()
