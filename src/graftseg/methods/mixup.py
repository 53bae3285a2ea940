"""Mixup: labeled and unlabeled images superimposed, and their predictions taken apart again.

A row of the paper's table of interpolations, whose details were not published. This is a reconstruction from the
paper's sentence on it and from GuidedMix-Net, on which that is based.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.teachers import SelfTraining, SelfTrainingConfig
from graftseg.networks import Networks
from graftseg.ops.losses import segmentation_loss


class MixupConfig(SelfTrainingConfig):
    """``unlabeled_ratio``: parts of the unlabeled image to one part of the labeled one.

    The labeled share is λ = 1 / (1 + ``unlabeled_ratio``). None draws it in every step as GuidedMix-Net does, uniformly
    between 0 and ½. ``direct`` is the weight of the loss of the labeled images as they are, which the reconstruction
    does not have: without it nothing says what an image that is not mixed shows.
    """

    unlabeled_ratio: float | None = Field(2.0, gt=0, le=1e9)
    direct: float = Field(0.0, ge=0, le=1e9)


def superimpose(labeled: Tensor, unlabeled: Tensor, share: float | Tensor) -> Tensor:
    """``λ x_l + (1 - λ) x_u``."""
    return share * labeled + (1 - share) * unlabeled


def decouple(mixed: Tensor, labeled: Tensor, unlabeled: Tensor, share: float | Tensor) -> tuple[Tensor, Tensor]:
    """Logits of the mixed images less what the other image has in them: ``z_mix - (1 - λ) z_u``, ``z_mix - λ z_l``.

    What is subtracted carries no gradient.
    """
    return mixed - (1 - share) * unlabeled.detach(), mixed - share * labeled.detach()


class Mixup(SelfTraining):
    """A student learns to tell apart what it sees superimposed, by true labels and a mean teacher's pseudo-labels.

    The student sees the mixed, the labeled and the unlabeled images one after the other, each with batch statistics of
    their own; gradients come from the mixed ones alone, and from the labeled ones where ``direct`` is not 0.
    """

    Config = MixupConfig
    compiled_functions = ("loss",)
    config: MixupConfig

    def __init__(self, config: MixupConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.loss = partial(segmentation_loss, dice=config.dice)

    @classmethod
    def check(cls, config: MixupConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Each labeled image meets an unlabeled one."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        if labeled != unlabeled:
            raise ValueError(
                f"batches.labeled is {labeled} and batches.unlabeled {unlabeled}; mixup pairs them up and needs the "
                "same number of both"
            )

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``L_seg`` of the decoupled labeled logits, and ``alpha`` times that of the unlabeled ones."""
        config = self.config
        x_l, y_l, x_u = batch.labeled.images, batch.labeled.labels, batch.unlabeled
        y_u = self._pseudo_label(self.teacher, x_u)
        share = self._share(x_u.device)
        x_mixed = superimpose(x_l, x_u, share)
        z_mixed = self.student(x_mixed).float()
        with torch.set_grad_enabled(config.direct > 0):
            z_l = self.student(x_l).float()
        with torch.no_grad():
            z_u = self.student(x_u).float()
        left_l, left_u = decouple(z_mixed, z_l, z_u, share)
        terms = {"L_labeled": self.loss(left_l, y_l), "L_unlabeled": self.loss(left_u, y_u)}
        weights: dict[str, float | Tensor] = {"L_unlabeled": config.alpha}
        if config.direct > 0:
            terms["L_direct"], weights["L_direct"] = self.loss(z_l, y_l), config.direct
        shows = {"X_mixed": x_mixed, "Y_labeled": y_l, "Y_unlabeled": y_u}
        yield Objective("student", terms, weights, shows)

    def _share(self, device: torch.device) -> float | Tensor:
        """λ, the share of the labeled images."""
        ratio = self.config.unlabeled_ratio
        return torch.rand((), device=device) / 2 if ratio is None else 1 / (1 + ratio)
