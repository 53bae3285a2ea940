"""Predictions of the unlabeled scans between two stages: foreground positions and the check of the teacher.

The next stage draws patches around the predicted foreground, and uses only scans with plausible predictions. Positions
and checks are saved in the run folder, so that a resumed run draws the same patches. Labels of these scans are never
read.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from graftseg.core.errors import in_one_line
from graftseg.core.files import read_json, write_checked
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches, training_cases
from graftseg.data.foreground import Positions, positions_in
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.label_maps import ExtraMaps, clean_labels
from graftseg.inference.predictor import Predictor
from graftseg.inference.sliding_window import window_count
from graftseg.methods import METHODS, Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import StageSettings
from graftseg.training.remaining_time import StageWork, work_of
from graftseg.training.step import autocast, effective_precision, uncompiled
from graftseg.training.teacher_check import (
    INTERVALS,
    MAX_WATCHED,
    ScanSummary,
    TeacherCheck,
    Usual,
    check_teacher,
    drifted_class,
    summarize,
)

WITH_UNCERTAINTY = ExtraMaps(uncertainty=True)
logger = logging.getLogger(__name__)


class UnlabeledPredictions:
    """Predict the unlabeled scans before a stage that learns from them, with the network of the previous stage."""

    def __init__(self, recipe: Recipe, store: Store, batches: Batches, run: RunFolder) -> None:
        self._recipe, self._store, self._batches, self._run = recipe, store, batches, run
        self._cases = training_cases(store, recipe.batches)
        self.checks: list[TeacherCheck] = []

    def find(self, method: Method, before: StageSettings, stage: StageSettings, index: int) -> TeacherCheck | None:
        """Predict every scan once before stage number ``index``. Return the check if the stage has ``check_teacher``.

        Save the foreground positions and the check, and make the next stage use them.
        """
        if not self._is_needed(stage, index):
            return None
        labels, summaries = self._predict(method, before, stage, self._cases.unlabeled)
        if self._recipe.batches.foreground > 0:
            positions = Positions(tuple(positions_in(label) for label in labels))
            positions.save(self._run.foreground_file(index))
            self._batches.aim(index, positions)
        if not stage.check_teacher:
            return None
        named = dict(zip((case.name for case in self._cases.unlabeled), summaries, strict=True))
        may_extend = stage.steps > 1 and all(check.decision != "extend" for check in self.checks)
        check = check_teacher(self._labeled(), named, stage=index, may_extend=may_extend)
        self.checks.append(check)
        write_checked(self._run.teacher_file, {"checks": [one.facts() for one in self.checks]})
        self._apply(check)
        level = logging.WARNING if check.rejected or check.decision != "continue" else logging.INFO
        logger.log(level, "%s: %s", in_one_line(str(self._run.path)), check.sentence)
        return check

    def drift(self, method: Method, stage: StageSettings, index: int, step: int) -> TeacherCheck | None:
        """Predict the watched scans after ``step`` steps of a stage; return a check if a class changed too much."""
        start = next((check for check in reversed(self.checks) if check.stage == index), None)
        if start is None or not start.watched:
            return None
        cases = [case for case in self._cases.unlabeled if case.name in start.watched]
        _, summaries = self._predict(method, stage, stage, cases)
        now = {case.name: summary.volumes for case, summary in zip(cases, summaries, strict=True)}
        found = drifted_class(start.watched, now, Usual.of(self._labeled()).volumes)
        if found is None:
            return None
        rejected = {self._store.classes[1 + found[0]]: found[1]}
        check = TeacherCheck(index, start.scans, rejected, "stop", step=step)
        self.checks.append(check)
        write_checked(self._run.teacher_file, {"checks": [one.facts() for one in self.checks]})
        logger.warning("%s: %s", in_one_line(str(self._run.path)), check.sentence)
        return check

    def work(self, stage: StageSettings, index: int) -> StageWork:
        """Return the work of stage number ``index``, with the predictions before and during the stage."""
        batches = self._recipe.batches
        work = work_of(stage, batches.labeled, batches.unlabeled)
        if not self._is_needed(stage, index):
            return work
        settings, patch = self._recipe.inference, batches.patch
        windows = [window_count(case.shape, patch, settings, batches.fit) for case in self._cases.unlabeled]
        watched = sum(windows[:MAX_WATCHED]) / batches.labeled if stage.check_teacher else 0.0
        pauses = INTERVALS if stage.check_teacher else 0
        return replace(work, before=sum(windows) / batches.labeled, pause=watched, pauses=pauses)

    def restore(self, stage: StageSettings, index: int) -> None:
        """Use the saved positions and checks in a resumed stage number ``index``."""
        if self._is_needed(stage, index) and self._recipe.batches.foreground > 0:
            self._batches.aim(index, Positions.load(self._run.foreground_file(index)))
        for check in self.checks:
            self._apply(check)

    def load_checks(self, index: int, step: int) -> list[TeacherCheck]:
        """Load the checks up to step ``step`` of stage number ``index``.

        A later check is left out: the run was interrupted after the check, but before the next checkpoint.
        """
        if self._run.teacher_file.is_file():
            saved = [TeacherCheck(**check) for check in read_json(self._run.teacher_file)["checks"]]
            self.checks = [check for check in saved if (check.stage, check.step) <= (index, step)]
        return self.checks

    def _apply(self, check: TeacherCheck) -> None:
        if check.decision == "continue" and check.rejected:
            kept = [number for number, case in enumerate(self._cases.unlabeled) if case.name not in check.rejected]
            self._batches.keep_unlabeled(check.stage, kept)

    def _is_needed(self, stage: StageSettings, index: int) -> bool:
        """Return whether a stage uses predictions of the previous stage."""
        learns = METHODS[stage.method].uses_unlabeled
        return index > 0 and learns and (self._recipe.batches.foreground > 0 or stage.check_teacher)

    def _predict(
        self, method: Method, before: StageSettings, stage: StageSettings, cases: Sequence[StoredCase]
    ) -> tuple[list[NDArray[np.uint8]], list[ScanSummary]]:
        """Return the cleaned label map of every scan and, for a check, summaries of the label maps before cleaning."""
        recipe, device, classes = self._recipe, self._batches.device, len(self._store.classes)
        settings = recipe.inference.uncleaned().model_copy(update={"flips": False})
        patch, fit = recipe.batches.patch, recipe.batches.fit
        predictor = Predictor(method.segment, patch=patch, settings=settings, classes=classes, device=device, fit=fit)
        precision = effective_precision(recipe.loop.precision, METHODS[before.method], device)
        extras = WITH_UNCERTAINTY if stage.check_teacher else ExtraMaps()
        labels, summaries = [], []
        with eval_mode(method), uncompiled(), autocast(precision, device):
            for case in track(cases, "Predicting unlabeled scans", len(cases)):
                maps = predictor.prepared_maps(self._image(case), Grid.identity(case.shape), extras)
                if stage.check_teacher:
                    summaries.append(summarize(maps.labels.cpu().numpy(), classes, maps.mean_uncertainty))
                cleaned = clean_labels(maps.labels, recipe.inference, classes, case.grid.prepared_voxel_ml)
                labels.append(cleaned.cpu().numpy())
        return labels, summaries

    def _labeled(self) -> Sequence[ScanSummary]:
        return [
            summarize(np.asarray(self._store.label(case)), len(self._store.classes)) for case in self._cases.labeled
        ]

    def _image(self, case: StoredCase) -> torch.Tensor:
        self._store.verify_file(case, case.image)
        return torch.from_numpy(np.array(self._store.image(case)))
