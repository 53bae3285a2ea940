"""Graft: copy-paste with unmixed labeled images, confidence weights and a rising weight of pseudo-labels."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer
from torch import Tensor

from graftseg.core.devices import side_stream
from graftseg.core.settings import ClassNumber, without_unused
from graftseg.core.types import Batch, Labeled, Objective, Progress, halves
from graftseg.methods.teachers import SelfTraining, SelfTrainingConfig, check_pairs
from graftseg.networks import Networks
from graftseg.networks.ema import Scope
from graftseg.networks.layers import disable_dropout
from graftseg.ops.losses import DiceName, deep_loss, segmentation_loss
from graftseg.ops.masks import copy_paste_mask, mix
from graftseg.ops.pseudo_labels import confidence, labels_of

FIRST_FRACTION = 0.1
"""Fraction of ``alpha`` with which the stage begins."""


class GraftConfig(SelfTrainingConfig):
    """Settings of graft.

    - ``alpha``: final loss weight of voxels with pseudo-labels.
    - ``rise``: fraction of the stage in which the weight rises from a tenth of ``alpha`` to ``alpha``.
    - ``confidence``: whether each voxel with a pseudo-label is weighted by the confidence of the teacher.
    - ``ignored_classes``: classes whose pseudo-labels get no weight.
    - ``direction``: ``both`` pastes in both directions, as BCP does. ``none`` pastes nothing.
    - ``beta``: size of the pasted box relative to the image, along each axis.
    - ``labeled_weight``: loss weight of unmixed labeled images; with pasting, only the first half of them is used.
    - ``average``: at the end of the stage, replace the student by the teacher, which is its moving average.
    - ``joint``: pass all images through the student in one batch. Otherwise the student gets two batches with separate
      batch statistics: images without pseudo-labels, and images with pseudo-labels.
    """

    alpha: float = Field(1.0, ge=0, le=1e9)
    ema_scope: Scope = "state"
    dice: DiceName = "over-batch"
    rise: float = Field(0.3, ge=0, le=1)
    confidence: bool = True
    ignored_classes: tuple[ClassNumber, ...] = ()
    direction: Literal["both", "none"] = "both"
    beta: float = Field(2 / 3, gt=0, lt=1)
    labeled_weight: float = Field(1.0, gt=0, le=1e9)
    average: bool = False
    joint: bool = False

    @model_serializer(mode="wrap")
    def _without_unused_classes(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(self, handler, "ignored_classes")


class Graft(SelfTraining):
    """A student that learns from labeled images and from images with pseudo-labels, which copy-paste mixes.

    If the network has deep supervision, each loss is a weighted mean over the decoder levels.

    The teacher labels the unlabeled images before intensity augmentation, with batch statistics and without dropout.
    The student gets all images after intensity augmentation.
    """

    Config = GraftConfig
    supervises_levels = True
    compiled_functions = ("loss", "target")
    config: GraftConfig

    def __init__(self, config: GraftConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        disable_dropout(self.teacher)
        self.loss = partial(deep_loss, partial(segmentation_loss, dice=config.dice))
        self.is_deep = networks.settings.deep_supervision
        self.target = confidence

    @classmethod
    def check(cls, config: GraftConfig, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if pasting is on and the numbers of labeled and unlabeled images are odd or different."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        if config.direction == "both":
            check_pairs(labeled, unlabeled, "copy-paste", even=True)

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``w L_labeled + L_in + L_out``, or ``w L_labeled + α L_unlabeled`` without pasting.

        L_in and L_out contain α as the weight of voxels with pseudo-labels.
        """
        with side_stream(batch.unlabeled) as wait_for_labels:
            P, c = self._targets(batch.for_teacher)
        alpha = self._alpha(now)
        if self.config.direction == "none":
            Q, Q_u = self._logits(batch.labeled.images, batch.unlabeled)
            wait_for_labels()
            terms = {"L_labeled": self.loss(Q, batch.labeled.labels), "L_unlabeled": self.loss(Q_u, P, c)}
            weights: dict[str, float | Tensor] = {"L_labeled": self.config.labeled_weight, "L_unlabeled": alpha}
            shows = {"X_unlabeled": batch.unlabeled, "Y_unlabeled": P}
            yield Objective("student", terms, weights, shows)
            return
        M = copy_paste_mask(P.shape[1:], self.config.beta, P.device)
        (i, j), (p, q) = batch.labeled.halves(), Labeled(batch.unlabeled, P).halves()
        c_p, c_q = halves(c)
        X_in, X_out = mix(j.images, p.images, M), mix(q.images, i.images, M)
        Q, mixed = self._logits(i.images, torch.cat([X_in, X_out]))
        Q_in, Q_out = zip(*map(halves, mixed), strict=True)
        wait_for_labels()
        Y_in, Y_out = mix(j.labels, p.labels, M), mix(q.labels, i.labels, M)
        terms = {
            "L_labeled": self.loss(Q, i.labels),
            "L_in": self.loss(Q_in, Y_in, M) + alpha * self.loss(Q_in, Y_in, ~M * c_p),
            "L_out": self.loss(Q_out, Y_out, ~M) + alpha * self.loss(Q_out, Y_out, M * c_q),
        }
        shows = {"X_in": X_in, "X_out": X_out, "Y_in": Y_in, "Y_out": Y_out, "M": M}
        yield Objective("student", terms, {"L_labeled": self.config.labeled_weight}, shows)

    def finish(self) -> None:
        """Replace the student by its moving average if ``average`` is set."""
        if self.config.average:
            self.student.load_state_dict(self.teacher.state_dict())

    def _alpha(self, now: Progress) -> Tensor:
        """Return α, which rises linearly during the first part of the stage."""
        steps = max(self.config.rise * now.total, 1.0)
        return self.config.alpha * (FIRST_FRACTION + (1 - FIRST_FRACTION) * (now.step / steps).clamp(max=1.0))

    @torch.no_grad()
    def _targets(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pseudo-labels of the teacher and the weight of every voxel."""
        config = self.config
        p = self.teacher(images).float().softmax(1)
        P = labels_of(p, config.decision, clean=config.largest_component, connectivity=config.connectivity)
        c = self.target(p, P) if config.confidence else torch.ones_like(p[:, 0])
        for value in config.ignored_classes:
            c = c * (value != P)
        return P, c

    def _logits(self, labeled: Tensor, pseudo_labeled: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the student's logits of images without and with pseudo-labels, at every supervised level."""
        if not self.config.joint:
            return self._levels(labeled), self._levels(pseudo_labeled)
        count, levels = len(labeled), self._levels(torch.cat([labeled, pseudo_labeled]))
        return [Q[:count] for Q in levels], [Q[count:] for Q in levels]

    def _levels(self, images: Tensor) -> list[Tensor]:
        """Return the student's logits at full resolution and, with deep supervision, at the coarser levels."""
        return self.student(images, all_levels=True) if self.is_deep else [self.student(images)]
