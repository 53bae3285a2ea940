"""Checkpoint selection: score students during training and keep the best."""

import copy
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.ranks import own_rows, sum_now
from graftseg.data.batches import training_cases
from graftseg.data.dataset import Dataset
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.predictor import Predictor
from graftseg.methods import Method
from graftseg.networks.layers import eval_mode
from graftseg.ops.optimizers import load_optimizer_state
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import ScoredSplit, SelectionSettings

logger = logging.getLogger(__name__)
PUBLIC_DIGITS = 4
"""Digits to which the public code for LA rounds the best Dice before the next comparison."""
Score = Callable[[Method], dict[str, float]]
"""A function that scores a method in eval mode and returns scores by name; ``dice`` selects the checkpoint."""


@dataclass(frozen=True)
class Best:
    """The best student of a stage on the split ``on`` (validation or test), after ``step`` steps of training.

    ``optimizers`` contains the optimizer states of this step if the next stage takes them over.
    """

    on: ScoredSplit
    stage: int
    step: int
    dice: float
    student: dict[str, Tensor] = field(repr=False)
    optimizers: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything except the weights and the optimizer states."""
        return {"on": self.on, "step": self.step, "stage": self.stage, "dice": self.dice}


class Selector:
    """Score students during training and keep the best of the stage for each split, validation and test.

    Every checkpoint contains the selector's state, so a resumed run selects the same student.
    ``carried`` are the stages whose optimizer states the next stage takes over.
    """

    def __init__(
        self, settings: SelectionSettings, scores: Mapping[ScoredSplit, Score], carried: Collection[int] = ()
    ) -> None:
        self.settings, self._scores, self._carried = settings, scores, carried
        self.best: dict[ScoredSplit, Best] = {}

    def is_due(self, step: int) -> bool:
        """Return whether the student is scored after ``step`` steps of training."""
        every = self.settings.every
        return every is not None and step >= self.settings.first and step % every == 0

    def score(
        self, method: Method, optimizers: Mapping[str, torch.optim.Optimizer], *, stage: int, step: int
    ) -> dict[str, float]:
        """Score the student, keep it if it is the best so far, and return all scores by name."""
        found: dict[str, float] = {}
        for on, score in self._scores.items():
            with eval_mode(method), torch.inference_mode():
                scores = score(method)
            found |= scores if on == "validation" else {f"{on} {name}": value for name, value in scores.items()}
            if on not in self.best or scores["dice"] > self._to_exceed(on):
                kept = optimizers if stage in self._carried and on == self.settings.selected_on else {}
                momenta = {name: copy.deepcopy(optimizer.state_dict()) for name, optimizer in kept.items()}
                self.best[on] = Best(on, stage, step, scores["dice"], copied_state(method.student), momenta)
        return found

    def _to_exceed(self, on: ScoredSplit) -> float:
        """Return the best Dice. With protocol ``paper`` and test cases, it has four digits, as in the code for LA."""
        best = self.best[on].dice
        return round(best, PUBLIC_DIGITS) if self.settings.protocol == "paper" and on == "test" else best

    def rewind(self, method: Method, optimizers: Mapping[str, torch.optim.Optimizer], stage: int) -> None:
        """At the end of a stage, load the best student and its optimizer states if the protocol selects checkpoints."""
        if self.settings.selected_on is None:
            return
        if self.chosen is None:
            message = "stage %d ended without a score (selection.every: %d, selection.first: %d); using its last state"
            logger.warning(message, stage + 1, self.settings.every, self.settings.first)
            return
        method.student.load_state_dict(self.chosen.student)
        for name, state in self.chosen.optimizers.items():
            load_optimizer_state(optimizers[name], state)

    def reset(self) -> None:
        """Drop the students of the previous stage."""
        self.best = {}

    def state(self) -> dict[ScoredSplit, dict[str, Any]]:
        """Return the state to save in a checkpoint."""
        return {on: dict(vars(best)) for on, best in self.best.items()}

    def load_state(self, state: Mapping[ScoredSplit, Mapping[str, Any]]) -> None:
        """Load the state from a checkpoint."""
        self.best = {on: Best(**best) for on, best in state.items()}

    @property
    def chosen(self) -> Best | None:
        """The student that the protocol selects, or None if the protocol selects none or none was scored yet."""
        selected_on = self.settings.selected_on
        return None if selected_on is None else self.best.get(selected_on)

    @property
    def best_to_save(self) -> Best | None:
        """The student to save as ``best.safetensors``: the best on the test cases if ``oracle`` is true.

        Otherwise, the best student on the split by which the protocol selects, or on validation cases if it selects
        no checkpoint.
        """
        on = "test" if self.settings.oracle else self.settings.selected_on or "validation"
        return self.best.get(on)

    @property
    def checkpoint(self) -> str:
        """A description of the reported checkpoint."""
        if self.chosen is None:
            return "last"
        protocol = " (protocol paper)" if self.settings.protocol == "paper" else ""
        return f"best on {self.chosen.on}, step {self.chosen.step}{protocol}"


def copied_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all weights and buffers by name."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def scored_cases(recipe: Recipe, store: Store) -> dict[ScoredSplit, tuple[StoredCase, ...]]:
    """Return the cases to score: validation cases if there are any, and test cases if the recipe scores them."""
    selection = recipe.selection
    if selection.every is None:
        return {}
    validation = training_cases(store, recipe.batches).validation
    test = tuple(case for case in store.of("test") if case.label is not None and selection.reads_test_labels)
    _require_cases(selection, store.path, validation=bool(validation), test=bool(test))
    cases: dict[ScoredSplit, tuple[StoredCase, ...]] = {"validation": validation, "test": test}
    return {on: listed for on, listed in cases.items() if listed}


def check_scored(recipe: Recipe, data: Dataset) -> None:
    """Raise a UserError if the data lack the cases to be scored, before anything is prepared."""
    validation = recipe.batches.validation_cases > 0 or bool(data.of("validation"))
    test = any(case.label is not None for case in data.of("test"))
    _require_cases(recipe.selection, data.root, validation=validation, test=test)


def _require_cases(selection: SelectionSettings, where: Path, *, validation: bool, test: bool) -> None:
    if selection.needs_validation and not validation:
        finding = f"selection.protocol is {selection.protocol}, but there are no validation cases"
        remedy = "set batches.validation_cases, or set selection.every to null and selection.protocol to last"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, remedy)
    if selection.reads_test_labels and not test:
        finding = "the recipe scores test cases, but no test case has a label"
        remedy = "add test labels, or change selection.cases and selection.oracle"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, remedy)


def build_selector(recipe: Recipe, store: Store, device: torch.device) -> Selector | None:
    """Return the selector of a run, with the scored cases in device memory, or None if no case is scored."""
    cases = scored_cases(recipe, store)
    if not cases:
        return None
    scores: dict[ScoredSplit, Score] = {on: CaseScores(recipe, store, listed, device) for on, listed in cases.items()}
    carried = {index - 1 for index, stage in enumerate(recipe.stages) if stage.carry_optimizer}
    return Selector(recipe.selection, scores, carried)


class CaseScores:
    """Score a method on cases in device memory.

    Label maps are predicted as in ``predict``, but keep all components and use ``selection.stride`` if set. Prediction
    and reference are compared on the prepared grid. A case is a float16 image ``(C, *space)`` and a uint8 label map
    ``(*space)``. Cases that are not ``resident`` are read from disk for every score. Each of several ranks predicts a
    part of the cases. With ``present_only``, the mean of a class is over the cases whose reference contains it, and NaN
    if there are none.
    """

    def __init__(
        self,
        recipe: Recipe,
        store: Store,
        cases: Sequence[StoredCase],
        device: torch.device,
        *,
        resident: bool = True,
        present_only: bool = False,
    ) -> None:
        self._recipe, self._classes, self._device = recipe, store.classes, device
        self._empty = 0.0 if recipe.selection.protocol == "paper" else 1.0
        self._present_only = present_only
        self._store, self._cases = store, cases
        self._loaded = [self._read(case) for case in cases] if resident else None

    def __call__(self, method: Method) -> dict[str, float]:
        """Return the mean Dice of each class over cases, and ``dice``, the mean over classes."""
        recipe, device, classes = self._recipe, self._device, len(self._classes)
        stride = recipe.selection.stride or recipe.inference.stride
        settings = recipe.inference.uncleaned().model_copy(update={"stride": stride})
        predictor = Predictor.for_recipe(recipe, method.segment, classes, device, settings)
        counts = torch.zeros(len(self._cases), 3, classes - 1, dtype=torch.int64, device=device)
        for index, case in own_rows(list(enumerate(self._cases))):
            counts[index] = self._overlap(predictor, *(self._loaded[index] if self._loaded else self._read(case)))
        sum_now(counts)
        by_class = mean_dice(counts.cpu().numpy(), empty=self._empty, present_only=self._present_only)
        named = {f"dice {name}": float(score) for name, score in zip(self._classes[1:], by_class, strict=True)}
        return {"dice": float(by_class.mean()), **named}

    def _overlap(self, predictor: Predictor, image: Tensor, label: Tensor) -> Tensor:
        """Return voxel counts ``(3, classes - 1)`` of the overlap, the prediction and the reference."""
        labels = predictor.prepared_maps(image, Grid.identity(tuple(label.shape))).labels
        counts = []
        for value in range(1, len(self._classes)):
            predicted, expected = labels == value, label == value
            counts.append(torch.stack([(predicted & expected).sum(), predicted.sum(), expected.sum()]))
        return torch.stack(counts, dim=1)

    def _read(self, case: StoredCase) -> tuple[Tensor, Tensor]:
        image, label = self._store.read_image(case), self._store.read_label(case)
        return torch.from_numpy(image).to(self._device), torch.from_numpy(label).to(self._device)


def mean_dice(counts: npt.NDArray[np.int64], *, empty: float, present_only: bool = False) -> npt.NDArray[np.float64]:
    """Return mean Dice by foreground class from voxel counts ``(cases, 3, classes - 1)``.

    The counts are those of the overlap, the prediction and the reference. Two empty maps score ``empty``. With
    ``present_only``, the mean of a class is over the cases whose reference contains it, and NaN if there are none.
    """
    common, reference = counts[:, 0].astype(np.float64), counts[:, 2]
    total = counts[:, 1] + reference
    dice = np.where(total > 0, 2 * common / np.maximum(total, 1), empty)
    counted = np.ma.masked_where(present_only & (reference == 0), dice)
    mean: npt.NDArray[np.float64] = counted.mean(axis=0).filled(np.nan)
    return mean


class TrainingDice:
    """Scores of a student on all labeled training scans, and on the unlabeled ones whose label is in the store.

    This is the only code that opens labels of unlabeled scans while a run trains, and only if the recipe sets
    ``loop.training_dice_every``, for the figure ``dice-over-time``. Training never sees the scores: weights and random
    state are the same as without them.
    """

    def __init__(self, recipe: Recipe, store: Store, device: torch.device, every: int) -> None:
        labeled, hidden = training_cases(store, recipe.batches).labeled, hidden_cases(recipe, store)
        for case in hidden:
            store.verify_file(case, str(case.label))
        self._every = every
        self._scores = {
            name: CaseScores(recipe, store, cases, device, resident=False)
            for name, cases in (("labeled", labeled), ("unlabeled", hidden))
        }

    def is_due(self, step: int, *, ends_stage: bool) -> bool:
        """Return whether the scans are scored after ``step`` steps of training: at intervals, and after each stage."""
        return step % self._every == 0 or ends_stage

    def score(self, method: Method) -> dict[str, float]:
        """Return the mean Dice of labeled and of unlabeled scans. Batch statistics and random state are unchanged."""
        with eval_mode(method), torch.inference_mode():
            return {name: score(method)["dice"] for name, score in self._scores.items()}


def hidden_cases(recipe: Recipe, store: Store) -> list[StoredCase]:
    """Return the unlabeled training cases whose label is in the store."""
    return [case for case in training_cases(store, recipe.batches).unlabeled if case.label is not None]


def build_training_dice(recipe: Recipe, store: Store, device: torch.device) -> TrainingDice | None:
    """Return the scores that the recipe asks for, or None."""
    every = recipe.loop.training_dice_every
    return None if every is None else TrainingDice(recipe, store, device, every)


def check_training_dice(recipe: Recipe, store: Store | None, where: Path) -> None:
    """Raise a UserError if the recipe asks for scores of unlabeled scans and the store has no labels of them.

    A run on a folder of scans has no labels of unlabeled scans, so it always fails this check.
    """
    if recipe.loop.training_dice_every is not None and (store is None or not hidden_cases(recipe, store)):
        finding = "loop.training_dice_every is set, but no unlabeled scan has a label in the store"
        remedy = "prepare labeled scans, pass the store as --data, and set batches.labeled_cases to use few labels"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, remedy)
