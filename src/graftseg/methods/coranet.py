"""CoraNet: agreement of a conservative and a radical branch (IEEE Transactions on Medical Imaging 2022)."""

from collections.abc import Iterator
from functools import partial
from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.branches import build_branches
from graftseg.networks.ema import ema_update, make_teacher
from graftseg.ops.losses import branch_loss, certain_loss, uncertain_loss
from graftseg.ops.optimizers import RampLength, consistency_ramp


class CoraNetConfig(Settings):
    """Settings of self-training; the defaults are the values of the public code, except for ``swap_weights``.

    - ``emphasis``: weight of the foreground in the second branch, and of the background in the third branch.
    - ``swap_weights``: exchange the weights of the last two branches on unlabeled images, as the public code does.
    - ``unlabeled_weight``: weight of the two terms on unlabeled images, the certain and the uncertain term.
    - ``consistency``: additional weight of the uncertain term, multiplied by a ramp that reaches 1 after ``ramp`` times
      ``ramp_every`` steps.
    - ``refresh_every``: number of steps between updates of the labeler, which makes pseudo-labels.
    - ``ema_decay``: EMA decay λ of the teacher.
    """

    emphasis: float = Field(5.0, ge=1, le=1e9)
    swap_weights: bool = False
    unlabeled_weight: float = Field(0.5, ge=0, le=1e9)
    consistency: float = Field(0.1, ge=0, le=1e9)
    ramp: RampLength = 40.0
    ramp_every: int = Field(6, ge=1, le=10**9)
    refresh_every: int = Field(30, ge=1, le=10**9)
    ema_decay: float = Field(0.99, ge=0, le=1)


class CoraNet(Method):
    """Three branches learn pseudo-labels at certain voxels, and a mean teacher's probabilities at uncertain voxels.

    A voxel is certain if the last two branches predict the same class. The labeler, a copy of the student without
    dropout, makes the pseudo-labels. Every ``refresh_every`` steps, it becomes equal to the student. The public code
    instead stores pseudo-labels between updates, which gives the same pseudo-labels for instance norm and fixed
    unlabeled crops.

    The teacher stays in training mode. Batch norms of labeler and teacher use batch statistics, because running
    statistics fit badly if unlabeled scans look different from labeled scans.
    """

    Config = CoraNetConfig
    compiled_functions = ("supervised", "certain", "uncertain")
    config: CoraNetConfig

    def __init__(self, config: CoraNetConfig, networks: Networks) -> None:
        super().__init__(config, networks)
        self.teacher, self.labeler = make_teacher(self.student), make_teacher(self.student)
        self.supervised = partial(branch_loss, emphasis=config.emphasis)
        self.certain = partial(certain_loss, emphasis=config.emphasis, swap=config.swap_weights)
        self.uncertain = uncertain_loss

    def build_student(self, networks: Networks) -> nn.Module:
        """Build the recipe's network with three branches; prediction uses the first."""
        return build_branches(networks)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. In the labeler, only batch norms enter training mode, so that it has no dropout."""
        super().train(mode)
        for part in self.labeler.modules():
            part.training = mode and isinstance(part, _BatchNorm)
        return self

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        """Yield ``L_sup + 0.5 (L_certain + w L_uncertain)``, where 0.5 is the default of ``unlabeled_weight``."""
        config, u = self.config, batch.unlabeled
        self._refresh(now)
        pseudo_labels, M = self.pseudo_labels(u)
        with torch.no_grad():
            T = self.teacher(u, all_outputs=True)
        L_sup = self.supervised(self.student(batch.labeled.images, all_outputs=True), batch.labeled.labels)
        Q = self.student(u, all_outputs=True)
        terms = {"L_sup": L_sup, "L_certain": self.certain(Q, pseudo_labels, M), "L_uncertain": self.uncertain(Q, T, M)}
        w = config.consistency * consistency_ramp(now.step, config.ramp, config.ramp_every)
        weights: dict[str, float | Tensor] = {
            "L_certain": config.unlabeled_weight,
            "L_uncertain": config.unlabeled_weight * w,
        }
        yield Objective("student", terms, weights, shows={"X_unlabeled": u, "Y_pseudo": pseudo_labels, "M": M})

    @torch.no_grad()
    def pseudo_labels(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels of the main branch, ``(B, *space)``, and the mask where the two other branches agree."""
        main, first, second = (logits.argmax(1) for logits in self.labeler(images, all_outputs=True))
        return main, first == second

    def after_step(self, now: Progress) -> None:
        """Update the teacher."""
        ema_update(self.teacher, self.student, self.config.ema_decay, "parameters")

    def start_from(self, previous: Method) -> None:
        """Load the pre-trained network into student, teacher and labeler."""
        super().start_from(previous)
        for network in (self.teacher, self.labeler):
            network.load_state_dict(self.student.state_dict())

    def preview_labels(self, images: Tensor) -> Tensor:
        """Return the current pseudo-labels."""
        return self.pseudo_labels(images)[0]

    def _refresh(self, now: Progress) -> None:
        """Copy the student to the labeler every ``refresh_every`` steps: an EMA update with a decay of 0 or 1."""
        keep = (now.step % self.config.refresh_every != 0).float()
        ema_update(self.labeler, self.student, keep, "state")
