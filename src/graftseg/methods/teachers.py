"""What methods share in which a teacher follows the student."""

from typing import Any

from torch import Tensor, nn

from graftseg.core.types import Progress
from graftseg.methods.base import Method
from graftseg.networks import Networks
from graftseg.networks.ema import ema_update, teacher_of, warmup_decay


class Taught(Method):
    """A student, and a teacher that is its running average, begins where it begins and stays in training mode.

    ``config.ema_decay`` is the largest λ; the average begins as the plain mean of all students so far.
    """

    teacher: nn.Module

    def __init__(self, config: Any, networks: Networks) -> None:
        super().__init__(config, networks)
        self.teacher = teacher_of(self.student)

    def after_step(self, now: Progress) -> None:
        """The teacher follows the student; at first it is a copy."""
        decay: Tensor = warmup_decay(now.step, self.config.ema_decay)
        ema_update(self.teacher, self.student, decay, "parameters")

    def start_from(self, previous: Method) -> None:
        """Student and teacher both begin with the network of the stage before."""
        super().start_from(previous)
        self.teacher.load_state_dict(self.student.state_dict())
