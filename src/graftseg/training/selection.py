"""Which checkpoint is reported: the last one, or the best one by a score; and how the best is kept."""

import copy
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.data.batches import training_cases
from graftseg.data.dataset import Dataset
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.predictor import Predictor
from graftseg.methods import Method
from graftseg.networks.layers import evaluating
from graftseg.ops.optimizers import load_state
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import InferenceSettings, Listed, SelectionSettings

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


def scored_cases(recipe: Recipe, store: Store) -> dict[Listed, tuple[StoredCase, ...]]:
    """The cases that are scored, by list: validation cases where there are any, test cases where they are asked for."""
    selection = recipe.selection
    if selection.every is None:
        return {}
    cases: dict[Listed, tuple[StoredCase, ...]] = {"validation": training_cases(store, recipe.batches).validation}
    cases["test"] = tuple(case for case in store.of("test") if case.label is not None and selection.opens_test)
    _refuse_none(selection, store.path, validation=bool(cases["validation"]), test=bool(cases["test"]))
    return {on: listed for on, listed in cases.items() if listed}


def check_scored(recipe: Recipe, data: Dataset) -> None:
    """Refuse scans that lack the cases to be scored, before they are prepared."""
    validation = recipe.batches.validation_cases > 0 or bool(data.of("validation"))
    test = any(case.label is not None for case in data.of("test"))
    _refuse_none(recipe.selection, data.root, validation=validation, test=test)


def _refuse_none(selection: SelectionSettings, where: Path, *, validation: bool, test: bool) -> None:
    if selection.needs_validation and not validation:
        raise UserError(
            Code.RECIPE_MISMATCH,
            where,
            f"selection.protocol is {selection.protocol} and there are no validation cases to score",
            "hold some out with batches.validation_cases or set selection.every to null and selection.protocol to last",
        )
    if selection.opens_test and not test:
        finding = "the recipe scores test cases and there are none with labels"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, "add them or change selection.cases and selection.oracle")


def build_selector(recipe: Recipe, store: Store, device: torch.device) -> Selector | None:
    """What scores the students of a training, its cases in the memory of the device; None where nothing is scored."""
    cases = scored_cases(recipe, store)
    if not cases:
        return None
    scores: dict[Listed, Score] = {on: CaseScores(recipe, store, listed, device) for on, listed in cases.items()}
    carried = {index - 1 for index, stage in enumerate(recipe.stages) if stage.carry_optimizer}
    return Selector(recipe.selection, scores, carried)


@dataclass(frozen=True)
class _Held:
    """An image ``(C, *space)`` float16 and its label map ``(*space)`` uint8, on the device."""

    image: Tensor
    label: Tensor


class CaseScores:
    """Scores a method on cases that stay in the memory of the device, as ``predict`` would but without clean-up.

    Label maps are compared on the prepared grid and never reduced to their largest components.
    """

    def __init__(self, recipe: Recipe, store: Store, cases: Sequence[StoredCase], device: torch.device) -> None:
        self._recipe, self._classes, self._device = recipe, store.classes, device
        self._empty = 0.0 if recipe.selection.protocol == "paper" else 1.0
        self._held = [_read(store, case, device) for case in cases]

    def __call__(self, method: Method) -> dict[str, float]:
        """The Dice of each class, a mean over cases, and ``dice``, the mean over classes."""
        predictor = Predictor(
            method.segment,
            patch=self._recipe.batches.patch,
            settings=scoring_settings(self._recipe),
            classes=len(self._classes),
            device=self._device,
            fit=self._recipe.batches.fit,
        )
        counts = torch.stack([self._overlap(predictor, held) for held in self._held])
        by_class = mean_dice(counts.cpu().numpy(), empty=self._empty)
        named = {f"dice {name}": float(score) for name, score in zip(self._classes[1:], by_class, strict=True)}
        return {"dice": float(by_class.mean()), **named}

    def _overlap(self, predictor: Predictor, held: _Held) -> Tensor:
        """Voxels ``(2, classes - 1)`` of each foreground class: common to both label maps, and of both in sum."""
        labels = predictor.prepared_labels(held.image, Grid.identity(tuple(held.label.shape)))
        counts = []
        for value in range(1, len(self._classes)):
            predicted, expected = labels == value, held.label == value
            counts.append(torch.stack([(predicted & expected).sum(), predicted.sum() + expected.sum()]))
        return torch.stack(counts, dim=1)


def scoring_settings(recipe: Recipe) -> InferenceSettings:
    """How label maps are made while a training is scored: those of ``inference``, without clean-up."""
    stride = recipe.selection.stride or recipe.inference.stride
    return recipe.inference.model_copy(update={"largest_component": False, "stride": stride})


def mean_dice(counts: npt.NDArray[np.int64], *, empty: float) -> npt.NDArray[np.float64]:
    """Mean over cases of each class's Dice, from counts ``(cases, 2, classes)``; ``empty`` where both are empty."""
    common, total = counts[:, 0].astype(np.float64), counts[:, 1]
    dice = np.where(total > 0, 2 * common / np.maximum(total, 1), empty)
    mean: npt.NDArray[np.float64] = dice.mean(axis=0)
    return mean


def _read(store: Store, case: StoredCase, device: torch.device) -> _Held:
    for file in (case.image, str(case.label)):
        store.verify_file(case, file)
    image, label = (torch.from_numpy(np.array(array)) for array in (store.image(case), store.label(case)))
    return _Held(image.to(device), label.to(device))
