"""Mixup: labeled and unlabeled images are superimposed, and their predictions are decoupled.

The BCP paper lists this method in a table of interpolation strategies, without details. We reconstructed the method
from one sentence of the paper, and from GuidedMix-Net, which this sentence cites. As in GuidedMix-Net, the unmixed
labeled images have a separate loss, and gradients pass through the subtracted logits.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.teachers import SelfTraining, SelfTrainingConfig, check_pairs
from graftseg.networks import Networks
from graftseg.ops.losses import segmentation_loss


class MixupConfig(SelfTrainingConfig):
    """Settings of mixup.

    - ``unlabeled_ratio``: weight of the unlabeled image relative to the labeled image. The labeled image has the weight
      λ = 1 / (1 + ``unlabeled_ratio``). With None, λ is uniform between 0 and ½ in every step, as in GuidedMix-Net.
    - ``direct``: weight of the loss on unmixed labeled images. With 0, no term supervises unmixed images.
    """

    unlabeled_ratio: float | None = Field(2.0, gt=0, le=1e9)
    direct: float = Field(1.0, ge=0, le=1e9)


def superimpose(labeled: Tensor, unlabeled: Tensor, weight: float | Tensor) -> Tensor:
    """Return ``λ x_l + (1 - λ) x_u`` for λ = ``weight``."""
    return weight * labeled + (1 - weight) * unlabeled


def decouple(mixed: Tensor, labeled: Tensor, unlabeled: Tensor, weight: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits ``z_mix - (1 - λ) z_u`` and ``z_mix - λ z_l`` of the labeled and of the unlabeled image."""
    return mixed - (1 - weight) * unlabeled, mixed - weight * labeled


class Mixup(SelfTraining):
    """A student that segments superimposed images, supervised by true labels and a mean teacher's pseudo-labels.

    Mixed, labeled and unlabeled images go through the student one after the other, with separate batch statistics and
    with gradients. Labels and pseudo-labels are fixed targets.
    """

    Config = MixupConfig
    compiled_functions = ("loss",)
    config: MixupConfig

    def __init__(self, config: MixupConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.loss = partial(segmentation_loss, dice=config.dice)

    @classmethod
    def check(cls, config: MixupConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError unless each labeled image can be paired with an unlabeled image."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        check_pairs(labeled, unlabeled, "mixup")

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``L_seg(z'_l, y_l) + alpha L_seg(z'_u, ŷ_u) + direct L_seg(z_l, y_l)`` with decoupled logits z'."""
        config = self.config
        x_l, y_l, x_u = batch.labeled.images, batch.labeled.labels, batch.unlabeled
        y_u = self._pseudo_label(self.teacher, x_u)
        weight = self._labeled_weight(x_u.device)
        x_mixed = superimpose(x_l, x_u, weight)
        z_mixed, z_l, z_u = (self.student(images).float() for images in (x_mixed, x_l, x_u))
        decoupled_l, decoupled_u = decouple(z_mixed, z_l, z_u, weight)
        terms = {"L_labeled": self.loss(decoupled_l, y_l), "L_unlabeled": self.loss(decoupled_u, y_u)}
        weights: dict[str, float | Tensor] = {"L_unlabeled": config.alpha}
        if config.direct > 0:
            terms["L_direct"], weights["L_direct"] = self.loss(z_l, y_l), config.direct
        shows = {"X_mixed": x_mixed, "Y_labeled": y_l, "Y_unlabeled": y_u}
        yield Objective("student", terms, weights, shows)

    def _labeled_weight(self, device: torch.device) -> float | Tensor:
        """Return λ, the weight of the labeled images in the mixture."""
        ratio = self.config.unlabeled_ratio
        return torch.rand((), device=device) / 2 if ratio is None else 1 / (1 + ratio)
