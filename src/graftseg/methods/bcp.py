"""Bidirectional copy-paste between labeled and unlabeled scans (CVPR 2023)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from graftseg.losses import DiceName, mixed_loss
from graftseg.masks import copy_paste_mask, mix
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.ema import Scope, ema_update, teacher_of
from graftseg.pseudo_labels import Decision, pseudo_label
from graftseg.settings import Settings
from graftseg.types import Batch, Objective, Progress, halves


class BcpConfig(Settings):
    """Settings of self-training, with the paper's values as defaults.

    ``joint`` sends both mixtures through the student together, and both unlabeled halves through the teacher: faster,
    with batch statistics over all of them instead of each half's own.
    """

    alpha: float = Field(0.5, ge=0)
    beta: float = Field(2 / 3, gt=0, lt=1)
    ema_decay: float = Field(0.99, ge=0, le=1)
    ema_scope: Scope = "parameters"
    decision: Decision = "argmax"
    largest_component: bool = True
    connectivity: int | None = Field(None, ge=1, le=3)
    dice: DiceName = "per-sample"
    legacy_background_mask: bool = False
    joint: bool = False

    @model_validator(mode="after")
    def _all_is_read(self) -> Self:
        if self.legacy_background_mask and self.dice != "over-batch":
            raise ValueError("legacy_background_mask needs dice: over-batch")
        if self.connectivity is not None and not self.largest_component:
            raise ValueError("connectivity is read only with largest_component: true")
        return self


class Bcp(Method):
    """A student learns inward and outward mixtures, supervised by true labels and a mean teacher's pseudo-labels.

    The two mixtures, like the two unlabeled halves, go through their network one after the other, so that each has
    batch statistics of its own, unless ``joint``; the teacher stays in training mode, as published.
    """

    Config = BcpConfig
    hot = ("mixed_loss",)
    config: BcpConfig

    def __init__(self, config: BcpConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.teacher = teacher_of(self.student)
        self.mixed_loss = partial(mixed_loss, dice=config.dice, legacy_background_mask=config.legacy_background_mask)

    @classmethod
    def check(cls, config: BcpConfig, *, labeled: int, unlabeled: int, dimensions: int) -> None:
        """Each labeled image meets an unlabeled one, in two halves."""
        if labeled % 2 or labeled != unlabeled:
            raise ValueError(
                f"batches.labeled is {labeled} and batches.unlabeled {unlabeled}; copy-paste pairs them up in two "
                "halves and needs the same even number of both"
            )
        if config.connectivity is not None and config.connectivity > dimensions:
            raise ValueError(f"connectivity is {config.connectivity} and there are only {dimensions} axes")

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``L_all = L_in + L_out``, Eqs. (1) to (9)."""
        i, j = batch.labeled.halves()
        u_p, u_q = halves(batch.unlabeled)
        p_p, p_q = halves(self._pseudo_label(partial(self._logits, self.teacher), batch.unlabeled))
        M = copy_paste_mask(i.labels.shape[1:], self.config.beta, i.images.device)
        X_in, X_out = mix(j.images, u_p, M), mix(u_q, i.images, M)
        Q_in, Q_out = halves(self._logits(self.student, torch.cat([X_in, X_out])))
        alpha = self.config.alpha
        L_in = self.mixed_loss(Q_in, j.labels, p_p, M, (1.0, alpha))
        L_out = self.mixed_loss(Q_out, p_q, i.labels, M, (alpha, 1.0))
        shows = {
            "X_in": X_in,
            "Y_in": mix(j.labels, p_p, M),
            "X_out": X_out,
            "Y_out": mix(p_q, i.labels, M),
            "M": M,
        }
        yield Objective("student", {"L_in": L_in, "L_out": L_out}, shows=shows)

    def after_step(self, now: Progress) -> None:
        """Eq. (10): the teacher follows the student."""
        ema_update(self.teacher, self.student, self.config.ema_decay, self.config.ema_scope)

    def start_from(self, previous: Method) -> None:
        """Student and teacher both begin with the pre-trained network."""
        super().start_from(previous)
        self.teacher.load_state_dict(self.student.state_dict())

    @torch.no_grad()
    def watch(self, images: Tensor) -> Tensor:
        """The teacher's pseudo-labels in evaluation mode, which leaves its statistics and the dice alone."""
        training = self.teacher.training
        self.teacher.eval()
        labels = self._pseudo_label(self.teacher, images)
        self.teacher.train(training)
        return labels

    def _pseudo_label(self, teacher: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        config = self.config
        return pseudo_label(
            teacher,
            images,
            decision=config.decision,
            clean=config.largest_component,
            connectivity=config.connectivity,
        )

    def _logits(self, network: nn.Module, images: Tensor) -> Tensor:
        """Logits of both halves, each with batch statistics of its own unless ``joint``."""
        parts = [images] if self.config.joint else halves(images)
        return torch.cat([network(part) for part in parts])
