"""Predict scans with a trained run and write label maps in the geometry of the scans."""

import resource
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from graftseg.core.devices import versions
from graftseg.core.errors import Code, UserError
from graftseg.core.files import locked, make_folder
from graftseg.core.predictions import Manifest, PredictedCase
from graftseg.core.progress import ScanProgress, scan_progress
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.data.folders import CONVERSION_ADVICE, unsupported_ending
from graftseg.data.scans import READABLE, is_scan
from graftseg.data.scans_to_predict import check_channels
from graftseg.inference.ensemble import Checkpoint, Ensemble, predict_maps
from graftseg.inference.inputs import Source, sources_in
from graftseg.inference.label_maps import LABELS_ONLY, ExtraMaps, names_of, write_maps
from graftseg.inference.memory import check_memory
from graftseg.inference.output_folder import (
    OTHER_FOLDER,
    OutputFolder,
    check_inputs,
    find_long_names,
    now,
    output_files,
)

FLIPS = "inference.flips=true"
FLIPS_WARNING = (
    "the network was trained without mirrored scans (batches.augment.rotate_flip is 0), so flips may harm label maps"
)
NO_FLIPS = "the network was trained without mirrored scans (batches.warp.mirror is empty), so no flips are used"
SCORES_REMOVED = "{}: removed the scores of label maps that have been predicted again; test or evaluate again"


@dataclass(frozen=True)
class Predicted:
    """The written label maps, the errors of cases that failed, and warnings.

    ``unfound`` are the classes that none of the label maps contains. ``network`` says which network was used and why,
    if a run has several. ``others`` is the number of label maps that were in the folder before and are still there.
    """

    folder: Path
    cases: tuple[PredictedCase, ...]
    failures: tuple[UserError, ...]
    warnings: tuple[str, ...] = ()
    unfound: tuple[str, ...] = ()
    network: str = ""
    others: int = 0


@dataclass(frozen=True)
class PredictionSettings:
    """Options of a prediction.

    ``overrides`` change settings under ``inference``. ``only`` selects cases by name, from any split of a store.
    ``fold`` selects one network of a cross-validation. ``extras`` are additional files. Errors about unrelated
    files in the output folder end in ``remedy``.
    """

    overrides: Iterable[str] = ()
    checkpoint: Checkpoint = "shipped"
    only: Collection[str] = ()
    fold: int | None = None
    extras: ExtraMaps = LABELS_ONLY
    remedy: str = OTHER_FOLDER


DEFAULT = PredictionSettings()


def predict_scans(
    run: RunFolder, scans: Path, out: Path, device: torch.device, settings: PredictionSettings = DEFAULT
) -> Predicted:
    """Predict every scan. A scan that fails is reported in the result, and the other scans are still predicted.

    ``scans`` is a scan, a folder of scans or a prepared store, whose test cases are predicted. A cross-validation
    predicts with the mean of all folds. Label maps of other cases that the same networks wrote into ``out`` are kept.
    """
    return plan_prediction(run, scans, out, device, settings).predict()


def plan_prediction(
    run: RunFolder, scans: Path, out: Path, device: torch.device, settings: PredictionSettings = DEFAULT
) -> "PlannedPrediction":
    """Load the networks and list the scans. Raise an error for invalid input. Nothing is written."""
    runs = ensemble_members(run, settings.fold)
    networks = Ensemble.load(runs, device, settings.overrides, settings.checkpoint)
    cases, failures = sources_in(
        scans, networks.recipe.data, networks.channels, settings.only, runs[0].training_case_names()
    )
    if scans.is_file() and not is_scan(scans):
        usual = f"use {READABLE} files with their usual endings"
        remedy = CONVERSION_ADVICE.get(unsupported_ending(scans.name) or "", usual)
        raise UserError(Code.NOT_A_SCAN, scans, "the file ending is not a supported scan format", remedy)
    failures |= find_long_names(cases, settings.extras)
    cases = [case for case in cases if case.name not in failures]
    names = (*failures, *(case.name for case in cases))
    files = output_files(names, settings.extras)
    if scans.is_dir() and scans.resolve() == out.resolve():
        finding = "label maps in this folder would be mistaken for scans"
        raise UserError(Code.UNSAFE_TARGET, out, finding, settings.remedy)
    check_inputs(out, cases, files, settings.remedy)
    networks.try_out()
    target = OutputFolder(out, _new_manifest(run, networks, settings.extras), names, files, settings.remedy)
    return PlannedPrediction(networks, settings.extras, cases, failures, target)


@dataclass(frozen=True)
class PlannedPrediction:
    """Loaded networks, the cases to predict, the errors of unusable cases, and the output folder."""

    networks: Ensemble
    extras: ExtraMaps
    cases: list[Source]
    failures: dict[str, UserError]
    target: OutputFolder

    def predict(self) -> Predicted:
        """Predict all cases and write their label maps."""
        out, networks, failures = self.target.path, self.networks, dict(self.failures)
        done: list[PredictedCase] = []
        found = {0}
        make_folder(out)
        with locked(out, "another prediction writes into this folder"):
            manifest, has_removed_scores = self.target.begin()
            others = self.target.count_others()
            try:
                with scan_progress(len(self.cases), "Predicting") as progress:
                    for case in self.cases:
                        try:
                            done.append(self.predict_case(case, progress, found))
                        except UserError as error:
                            failures[case.name] = error
                        progress.end()
            finally:
                self.target.end(replace(manifest, peak_memory=_peak_memory(networks.device)), done, failures)
        is_unusual = networks.recipe.inference.flips and not networks.is_trained_with_flips
        warnings = [FLIPS_WARNING if networks.flip_axes is None else NO_FLIPS] if is_unusual else []
        warnings += [SCORES_REMOVED.format(out)] if has_removed_scores else []
        unfound = tuple(name for value, name in enumerate(networks.classes) if done and value not in found)
        return Predicted(out, tuple(done), tuple(failures.values()), tuple(warnings), unfound, others=others)

    def predict_case(self, case: Source, progress: ScanProgress, found: set[int]) -> PredictedCase:
        """Read a case and write its maps. Add the label values of the label map to ``found``."""
        began, where, channels = perf_counter(), case.files[0], self.networks.channels
        predictor = replace(self.networks.predictor, on_windows=progress.tick)
        grid = case.grid()
        if self.extras.pictures and len(grid.source_shape) > 2:
            finding = "the label map of a volume cannot be written as a picture"
            raise UserError(Code.OPTION_CONFLICT, where, finding, "leave out --pictures")
        check_memory(grid, channels, predictor, self.extras, where)
        given = case.read()
        check_channels(where, len(given.image), channels)
        progress.begin(predictor.windows_in(given.grid.prepared_shape))
        maps = predict_maps(predictor, given.image, given.grid, self.extras, where)
        names = names_of(case.name, self.extras)
        write_maps(self.target.path, names, maps, given.geometry)
        if len(found) < len(self.networks.classes):
            found.update(np.unique(maps.labels).tolist())
        return PredictedCase(
            case.name,
            tuple(str(path.resolve()) for path in case.files),
            names.labels,
            round(perf_counter() - began, 3),
            is_empty=not maps.labels.any(),
            probabilities=names.probabilities,
            uncertainty=names.uncertainty,
            mean_uncertainty=maps.mean_uncertainty,
            picture=names.picture,
            sha256=case.sha256,
        )


def _new_manifest(run: RunFolder, networks: Ensemble, extras: ExtraMaps) -> Manifest:
    return Manifest(
        run=str(run.path.resolve()),
        weights=networks.identity(),
        inference=networks.recipe.inference.model_dump(mode="json"),
        classes=networks.classes,
        checkpoint=networks.checkpoint_text,
        device=str(networks.device),
        versions=versions(),
        networks=len(networks.members),
        opinions=networks.uncertainty_source if extras.uncertainty else None,
        started=now(),
    )


def _peak_memory(device: torch.device) -> dict[str, int]:
    """Return the peak memory of this process in bytes, in main memory and on a GPU."""
    host = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    return host | ({"device": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {})
