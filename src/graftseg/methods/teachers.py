"""What methods share in which a teacher follows the student."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from graftseg.core.settings import Settings
from graftseg.core.types import Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.ema import Scope, ema_update, make_teacher, warmup_decay
from graftseg.networks.layers import eval_mode
from graftseg.ops.components import ComponentRule
from graftseg.ops.losses import DiceName
from graftseg.ops.pseudo_labels import Decision, pseudo_label


class MeanTeacherMethod(Method):
    """A student, and a teacher that is its running average, begins where it begins and stays in training mode.

    ``config.ema_decay`` is the largest λ; the average begins as the plain mean of all students so far.
    """

    teacher: nn.Module

    def __init__(self, config: Any, networks: Networks) -> None:
        super().__init__(config, networks)
        self.teacher = make_teacher(self.student)

    def after_step(self, now: Progress) -> None:
        """The teacher follows the student; at first it is a copy."""
        decay: Tensor = warmup_decay(now.step, self.config.ema_decay)
        ema_update(self.teacher, self.student, decay, "parameters")

    def start_from(self, previous: Method) -> None:
        """Student and teacher both begin with the network of the stage before."""
        super().start_from(previous)
        self.teacher.load_state_dict(self.student.state_dict())


class SelfTrainingConfig(Settings):
    """Settings of self-training, with the paper's values as defaults.

    ``alpha`` is the weight of what a pseudo-label supervises. The teacher averages the student by ``ema_decay``; its
    ``decision`` is cleaned by the ``largest_component`` of each class, or of those whose numbers are given, with
    neighbours by ``connectivity``.
    """

    alpha: float = Field(0.5, ge=0, le=1e9)
    ema_decay: float = Field(0.99, ge=0, le=1)
    ema_scope: Scope = "parameters"
    decision: Decision = "argmax"
    largest_component: ComponentRule = True
    connectivity: int | None = Field(None, ge=1, le=3)
    dice: DiceName = "per-sample"

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> Self:
        if self.connectivity is not None and not self.largest_component:
            raise ValueError("connectivity is read only with largest_component: true")
        return self


class SelfTraining(MeanTeacherMethod):
    """A student, and a teacher that is its running average and labels what has no label."""

    config: SelfTrainingConfig

    @classmethod
    def check(cls, config: Any, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Neighbours are those of a space of so many axes."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        if config.connectivity is not None and config.connectivity > len(patch):
            raise ValueError(f"connectivity is {config.connectivity} and there are only {len(patch)} axes")

    def after_step(self, now: Progress) -> None:
        """Eq. (10): the teacher follows the student."""
        ema_update(self.teacher, self.student, self.config.ema_decay, self.config.ema_scope)

    @torch.no_grad()
    def preview_labels(self, images: Tensor) -> Tensor:
        """The teacher's pseudo-labels in evaluation mode, which leaves its statistics and the dice alone."""
        with eval_mode(self.teacher):
            return self._pseudo_label(self.teacher, images)

    def _pseudo_label(self, teacher: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        config = self.config
        return pseudo_label(
            teacher,
            images,
            decision=config.decision,
            clean=config.largest_component,
            connectivity=config.connectivity,
        )
