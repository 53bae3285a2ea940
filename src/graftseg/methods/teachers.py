"""Base classes of methods with a mean teacher: an exponential moving average (EMA) of the student."""

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
    """A method with a student and an EMA teacher.

    The teacher starts as a copy of the student and stays in training mode. ``config.ema_decay`` is the EMA decay after
    a warm-up. During the warm-up, the teacher is the mean of the student's weights after each step so far.
    """

    teacher: nn.Module

    def __init__(self, config: Any, networks: Networks) -> None:
        super().__init__(config, networks)
        self.teacher = make_teacher(self.student)

    def after_step(self, now: Progress) -> None:
        """Update the teacher; in the first step it becomes a copy of the student."""
        decay: Tensor = warmup_decay(now.step, self.config.ema_decay)
        ema_update(self.teacher, self.student, decay, "parameters")

    def start_from(self, previous: Method) -> None:
        """Load the student of the previous stage into student and teacher."""
        super().start_from(previous)
        self.teacher.load_state_dict(self.student.state_dict())


class SelfTrainingConfig(Settings):
    """Settings of self-training; the defaults are the values of the BCP paper.

    - ``alpha``: loss weight of voxels with pseudo-labels.
    - ``ema_decay``: EMA decay λ of the teacher.
    - ``ema_scope``: ``parameters`` averages parameters only, ``state`` also buffers.
    - ``decision``: pseudo-labels are the ``argmax`` of the probabilities or, for two classes, a ``threshold`` at 0.5.
    - ``largest_component``: classes that keep only their largest component: true (all), false (none) or a list.
    - ``connectivity``: number of axes along which neighbors in a component may differ; by default all axes.
    - ``dice``: name of the Dice loss, ``per-sample`` (in BCP: LA, Pancreas) or ``over-batch`` (in BCP: ACDC).
    """

    alpha: float = Field(0.5, ge=0, le=1e9)
    ema_decay: float = Field(0.99, ge=0, le=1)
    ema_scope: Scope = "parameters"
    decision: Decision = "argmax"
    largest_component: ComponentRule = True
    connectivity: int | None = Field(None, ge=1, le=3)
    dice: DiceName = "per-sample"

    @model_validator(mode="after")
    def _reject_unused_connectivity(self) -> Self:
        if self.connectivity is not None and not self.largest_component:
            raise ValueError("connectivity needs largest_component")
        return self


def check_pairs(labeled: int, unlabeled: int, strategy: str, *, even: bool = False) -> None:
    """Raise a ValueError if the batches have different numbers of labeled and unlabeled images, or odd ones."""
    if labeled != unlabeled or (even and labeled % 2):
        needed = f"{strategy} needs the same {'even ' if even else ''}number of both"
        raise ValueError(f"batches.labeled is {labeled} and batches.unlabeled is {unlabeled}, but {needed}")


class SelfTraining(MeanTeacherMethod):
    """A student and an EMA teacher that makes pseudo-labels for unlabeled images."""

    config: SelfTrainingConfig

    @classmethod
    def check(cls, config: Any, *, labeled: int, unlabeled: int, patch: Sequence[int]) -> None:
        """Raise a ValueError if connectivity does not fit the number of axes."""
        super().check(config, labeled=labeled, unlabeled=unlabeled, patch=patch)
        if config.connectivity is not None and config.connectivity > len(patch):
            raise ValueError(f"connectivity is {config.connectivity}, but images have only {len(patch)} axes")

    def after_step(self, now: Progress) -> None:
        """Update the teacher by Eq. (10) of the BCP paper, without a warm-up."""
        ema_update(self.teacher, self.student, self.config.ema_decay, self.config.ema_scope)

    @torch.no_grad()
    def preview_labels(self, images: Tensor) -> Tensor:
        """Return teacher pseudo-labels in eval mode; batch-norm statistics and the random state are unchanged."""
        with eval_mode(self.teacher):
            return self._pseudo_label(self.teacher, images)

    def _pseudo_label(self, teacher: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        config = self.config
        return pseudo_label(
            teacher, images, decision=config.decision, clean=config.largest_component, connectivity=config.connectivity
        )
