"""Which checkpoint is reported: the last one, or the best one by a score; and how the best is kept."""

import copy
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graftseg.methods import Method
from graftseg.networks.modes import evaluating
from graftseg.ops.optimizers import load_state
from graftseg.recipes.settings import Listed, SelectionSettings

logger = logging.getLogger(__name__)

Score = Callable[[Method], dict[str, float]]
"""From a method in evaluation mode to scores by name; ``dice`` is the one that selects."""


@dataclass(frozen=True)
class Best:
    """The student with the best score of its stage; ``step`` counts from the beginning of the training.

    ``optimizers`` are the states of that moment, where the next stage goes on with them.
    """

    on: Listed
    stage: int
    step: int
    dice: float
    student: dict[str, Tensor] = field(repr=False)
    optimizers: dict[str, Any] = field(repr=False, default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """All but the weights."""
        return {"on": self.on, "step": self.step, "stage": self.stage, "dice": self.dice}


class Selector:
    """Scores students as the training goes on and keeps the best of the stage, for each list of cases.

    Its state belongs into every checkpoint: what was scored after a checkpoint is scored again by a run that resumes
    from it. ``carried`` are the stages whose optimisers the next stage goes on with.
    """

    def __init__(
        self, settings: SelectionSettings, scores: Mapping[Listed, Score], carried: Collection[int] = ()
    ) -> None:
        self.settings, self._scores, self._carried = settings, scores, carried
        self.best: dict[Listed, Best] = {}

    def is_due(self, step: int) -> bool:
        """Whether the student is scored after so many steps of the training."""
        every = self.settings.every
        return every is not None and step >= self.settings.first and step % every == 0

    def look(
        self, method: Method, optimizers: Mapping[str, torch.optim.Optimizer], *, stage: int, step: int
    ) -> dict[str, float]:
        """Score the student, keep it where it is the best so far, and return all scores by name."""
        found: dict[str, float] = {}
        for on, score in self._scores.items():
            with evaluating(method), torch.inference_mode():
                scores = score(method)
            found |= scores if on == "validation" else {f"{on} {name}": value for name, value in scores.items()}
            if on not in self.best or scores["dice"] > self.best[on].dice:
                self.best[on] = self._kept(on, method, optimizers, stage, step, scores["dice"])
        return found

    def rewind(self, method: Method, optimizers: Mapping[str, torch.optim.Optimizer], stage: int) -> None:
        """At the end of a stage: go back to its best student, where the protocol asks for it."""
        if self.settings.decides is None:
            return
        if self.chosen is None:
            logger.warning(
                "stage %d ended without a score (selection.every is %d, selection.first %d): its last state is used",
                stage + 1,
                self.settings.every,
                self.settings.first,
            )
            return
        method.student.load_state_dict(self.chosen.student)
        for name, state in self.chosen.optimizers.items():
            load_state(optimizers[name], state)

    def forget(self) -> None:
        """Begin a stage: the students of the one before no longer compete."""
        self.best = {}

    def state(self) -> dict[Listed, dict[str, Any]]:
        """What a checkpoint keeps."""
        return {on: dict(vars(best)) for on, best in self.best.items()}

    def load_state(self, state: Mapping[Listed, Mapping[str, Any]]) -> None:
        """Go on from a checkpoint."""
        self.best = {on: Best(**best) for on, best in state.items()}

    @property
    def chosen(self) -> Best | None:
        """The best student by the protocol, or None where none was chosen."""
        decides = self.settings.decides
        return None if decides is None else self.best.get(decides)

    @property
    def record(self) -> Best | None:
        """The best student that is kept beside the reported one: the oracle's, or else the best one of all."""
        on = "test" if self.settings.oracle else self.settings.decides or "validation"
        return self.best.get(on)

    @property
    def checkpoint(self) -> str:
        """The reported checkpoint in words."""
        if self.chosen is None:
            return "last"
        protocol = " (protocol paper)" if self.settings.protocol == "paper" else ""
        return f"best on {self.chosen.on}, step {self.chosen.step}{protocol}"

    def _kept(
        self,
        on: Listed,
        method: Method,
        optimizers: Mapping[str, torch.optim.Optimizer],
        stage: int,
        step: int,
        dice: float,
    ) -> Best:
        student = {name: tensor.detach().clone() for name, tensor in method.student.state_dict().items()}
        momenta: dict[str, Any] = {}
        if stage in self._carried and on == self.settings.decides:
            momenta = {name: copy.deepcopy(optimizer.state_dict()) for name, optimizer in optimizers.items()}
        return Best(on, stage, step, dice, student, momenta)
