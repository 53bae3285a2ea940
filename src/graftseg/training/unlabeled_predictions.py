"""Predictions of the unlabeled scans between two stages: foreground positions and the check of the teacher.

Depending on its settings, the next stage draws patches around the predicted foreground, or uses only scans with
plausible predictions. Positions and checks are saved in the run folder, so that a resumed run draws the same patches.
Labels of these scans are never read.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch

from graftseg.core import ranks
from graftseg.core.errors import in_one_line
from graftseg.core.files import write_checked
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.data.batches import Batches, Cases, training_cases
from graftseg.data.foreground import Positions, Voxels, positions_in
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.label_maps import ExtraMaps, clean_labels
from graftseg.inference.predictor import Predictor
from graftseg.inference.sliding_window import window_count
from graftseg.methods import METHODS, Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training.clock import StageWork, work_of
from graftseg.training.fresh_statistics import fresh_statistics, training_images
from graftseg.training.step import autocast, effective_precision, uncompiled
from graftseg.training.teacher_check import (
    INTERVALS,
    MAX_COMPARED,
    MAX_WATCHED,
    ScanSummary,
    UsualAnatomy,
    check_teacher,
    drifted_class,
    summarize,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CasePredictions:
    """The foreground positions of each scan after cleaning, and summaries before cleaning by the name of the scan.

    Cleaning removes components, as in the label maps of ``graftseg predict``.
    """

    positions: list[tuple[Voxels, ...]]
    summaries: dict[str, ScanSummary]


def predict_cases(
    recipe: Recipe,
    store: Store,
    method: Method,
    cases: Sequence[StoredCase],
    device: torch.device,
    *,
    located: bool = False,
    summarized: bool = True,
) -> CasePredictions:
    """Predict prepared scans without flips. ``located`` returns positions, and ``summarized`` returns summaries."""
    classes = len(store.classes)
    settings = recipe.inference.uncleaned().model_copy(update={"flips": False})
    predictor = Predictor.for_recipe(recipe, method.segment, classes, device, settings)
    predicted = CasePredictions([], {})
    with eval_mode(method), uncompiled():
        for case in track(cases, "Predicting unlabeled scans", len(cases)):
            extras = ExtraMaps(uncertainty=summarized)
            maps = predictor.prepared_maps(torch.from_numpy(store.read_image(case)), Grid.identity(case.shape), extras)
            if summarized:
                labels, uncertainty = maps.labels.cpu().numpy(), maps.mean_uncertainty
                predicted.summaries[case.name] = summarize(labels, classes, uncertainty, voxel=case.grid.prepared_voxel)
            if located:
                cleaned = clean_labels(maps.labels, recipe.inference, classes, case.grid.prepared_voxel_ml)
                predicted.positions.append(positions_in(cleaned.cpu().numpy()))
    return predicted


def labeled_summaries(store: Store, cases: Sequence[StoredCase]) -> list[ScanSummary]:
    """Summarize the label maps of labeled scans."""
    classes = len(store.classes)
    return [summarize(store.read_label(case), classes, voxel=case.grid.prepared_voxel) for case in cases]


def final_work(recipe: Recipe, cases: Cases) -> StageWork:
    """Return the work of the check of the networks after training; see ``shipping.check_networks``."""
    if not any(stage.check_teacher for stage in recipe.stages):
        return StageWork(0)
    has_occasional_class = len({frozenset(case.values) - {0} for case in cases.labeled}) > 1
    networks = 3 if recipe.average_with_baseline and has_occasional_class else 2
    return StageWork(0, before=networks * _cost_of_predicting(recipe, cases.unlabeled[:MAX_COMPARED]))


def _cost_of_predicting(recipe: Recipe, cases: Sequence[StoredCase]) -> float:
    """Return the cost to predict some scans, as in ``StageWork``."""
    batches = recipe.batches
    windows = sum(window_count(case.shape, batches.patch, recipe.inference, batches.fit) for case in cases)
    return windows / batches.labeled


class UnlabeledPredictions:
    """Predict the unlabeled scans before a stage that learns from them, with the network of the previous stage."""

    def __init__(self, recipe: Recipe, store: Store, batches: Batches, run: RunFolder) -> None:
        self._recipe, self._store, self._batches, self._run = recipe, store, batches, run
        self._cases = training_cases(store, recipe.batches)
        self.checks: list[TeacherCheck] = []

    def find(
        self,
        method: Method,
        before: StageSettings,
        stage: StageSettings,
        index: int,
        later: Sequence[StageSettings] = (),
    ) -> TeacherCheck | None:
        """Predict every scan once before stage number ``index``. Return the check if the stage has ``check_teacher``.

        ``later`` are the stages after this stage, which are skipped with it. Save the foreground positions and the
        check, and make the next stage use them. Of several ranks, rank 0 predicts and saves, and the others load.
        """
        if not self._is_needed(stage, index):
            return None
        check = self._from_main(partial(self._find, method, before, stage, index, later))
        if not ranks.is_main():
            self.restore(stage, index)
        return check

    def _from_main(self, function: Callable[[], TeacherCheck | None]) -> TeacherCheck | None:
        """Make a check on rank 0, and add it to the checks of the other ranks."""
        if ranks.count() == 1:
            return function()
        facts = ranks.on_main(lambda: None if (check := function()) is None else check.to_json())
        if facts is not None and not ranks.is_main():
            self.checks.append(TeacherCheck(**facts))
        return None if facts is None else TeacherCheck(**facts)

    def _find(
        self, method: Method, before: StageSettings, stage: StageSettings, index: int, later: Sequence[StageSettings]
    ) -> TeacherCheck | None:
        located = self._recipe.batches.foreground > 0
        predicted = self._predict(method, before, stage, index - 1, self._cases.unlabeled, located=located)
        if located:
            positions = Positions(tuple(predicted.positions))
            positions.save(self._run.foreground_file(index))
            self._batches.set_foreground(index, positions)
        if not stage.check_teacher:
            return None
        may_extend = stage.steps > 1 and all(check.decision != "extend" for check in self.checks)
        labeled = labeled_summaries(self._store, self._cases.labeled)
        check = check_teacher(labeled, predicted.summaries, stage=index, may_extend=may_extend)
        if check.decision == "skip":
            check = replace(check, added=self._added_steps(before, [stage, *later]))
        self._add(check)
        self._apply(check)
        return check

    def drift(self, method: Method, stage: StageSettings, index: int, step: int) -> TeacherCheck | None:
        """Predict the watched scans after ``step`` steps of a stage; return a check if a class changed too much."""
        return self._from_main(partial(self._drift, method, stage, index, step))

    def _drift(self, method: Method, stage: StageSettings, index: int, step: int) -> TeacherCheck | None:
        start = next((check for check in reversed(self.checks) if check.stage == index), None)
        if start is None or not start.watched:
            return None
        cases = [case for case in self._cases.unlabeled if case.name in start.watched]
        summaries = self._predict(method, stage, stage, index, cases).summaries
        now = {name: summary.volumes for name, summary in summaries.items()}
        volumes = UsualAnatomy.of(labeled_summaries(self._store, self._cases.labeled)).volumes
        voxels_per_volume = sum(1 / case.grid.prepared_voxel for case in cases)
        usual = [None if volume is None else volume * voxels_per_volume for volume in volumes]
        if (drifted := drifted_class(start.watched, now, usual)) is None:
            return None
        class_index, change = drifted
        check = TeacherCheck(index, start.scans, {self._store.classes[1 + class_index]: change}, "stop", step=step)
        self._add(check)
        return check

    def _add(self, check: TeacherCheck) -> None:
        """Save and log a check. A warning about an earlier check is followed by the result of the next check."""
        was_rejected = any(earlier.decision != "continue" for earlier in self.checks)
        self.checks.append(check)
        self._save_checks()
        is_shown = was_rejected or check.rejected or check.decision != "continue"
        level = logging.WARNING if is_shown else logging.INFO
        logger.log(level, "%s: %s", in_one_line(str(self._run.path)), check.sentence)

    def work(self, stage: StageSettings, index: int) -> StageWork:
        """Return the work of stage number ``index``, with the predictions before and during the stage."""
        work = work_of(stage, self._recipe.batches)
        if not self._is_needed(stage, index):
            return work
        work = replace(work, before=_cost_of_predicting(self._recipe, self._cases.unlabeled))
        if not stage.check_teacher:
            return work
        pause = _cost_of_predicting(self._recipe, self._cases.unlabeled[:MAX_WATCHED])
        return replace(work, pause=pause, pauses=INTERVALS - 1)

    def final_work(self) -> StageWork:
        """Return the work of the check of both networks after training."""
        return final_work(self._recipe, self._cases)

    def _added_steps(self, before: StageSettings, skipped: Sequence[StageSettings]) -> int:
        """Return the steps of the stage ``before`` in the time that all skipped stages need more than this stage."""
        cost, *costs = (work_of(one, self._recipe.batches).cost for one in (before, *skipped))
        steps = sum(stage.steps * (other / cost - 1) for stage, other in zip(skipped, costs, strict=True))
        return max(0, round(steps))

    def restore(self, stage: StageSettings, index: int) -> None:
        """Use the saved positions and checks in a resumed stage number ``index``."""
        if self._is_needed(stage, index) and self._recipe.batches.foreground > 0:
            self._batches.set_foreground(index, Positions.load(self._run.foreground_file(index)))
        for check in self.checks:
            self._apply(check)

    def load_checks(self, index: int, step: int) -> list[TeacherCheck]:
        """Load the checks up to step ``step`` of stage number ``index``.

        A later check is left out: the run was interrupted after the check, but before the next checkpoint.
        """
        saved = self._run.teacher_checks()
        self.checks = [check for check in saved if (check.stage, check.step) <= (index, step)]
        if len(self.checks) < len(saved) and ranks.is_main():
            self._save_checks()
        return self.checks

    def _save_checks(self) -> None:
        write_checked(self._run.teacher_file, {"checks": [check.to_json() for check in self.checks]})

    def _apply(self, check: TeacherCheck) -> None:
        if check.decision == "continue" and check.rejected:
            kept = [number for number, case in enumerate(self._cases.unlabeled) if case.name not in check.rejected]
            self._batches.keep_unlabeled(check.stage, kept)

    def _is_needed(self, stage: StageSettings, index: int) -> bool:
        """Return whether a stage uses predictions of the previous stage."""
        learns = METHODS[stage.method].uses_unlabeled
        return index > 0 and learns and (self._recipe.batches.foreground > 0 or stage.check_teacher)

    def _predict(
        self,
        method: Method,
        before: StageSettings,
        stage: StageSettings,
        index: int,
        cases: Sequence[StoredCase],
        *,
        located: bool = False,
    ) -> CasePredictions:
        """Predict scans with the network of the stage ``before``, whose number is ``index``.

        If ``stage`` checks its teacher, return summaries, and use batch-norm statistics of the present weights.
        """
        device = self._batches.device
        precision = effective_precision(self._recipe.loop.precision, METHODS[before.method], device)
        predict = partial(predict_cases, located=located, summarized=stage.check_teacher)
        with autocast(precision, device), self._statistics(method, before, stage, index):
            return predict(self._recipe, self._store, method, cases, device)

    def _statistics(
        self, method: Method, before: StageSettings, stage: StageSettings, index: int
    ) -> AbstractContextManager[None]:
        if not stage.check_teacher:
            return nullcontext()
        unlabeled = METHODS[before.method].uses_unlabeled
        return fresh_statistics(method, training_images(self._batches, index, unlabeled=unlabeled))
