"""Predict scans with a trained run and write label maps in the geometry of the scans."""

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import flushed_together, make_folder
from graftseg.core.names import nfc
from graftseg.core.predictions import Manifest, PredictedCase, append_to_journal
from graftseg.core.progress import ScanProgress, progress_bar
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.core.software import versions
from graftseg.data.scans import READABLE, is_scan
from graftseg.data.scans_to_predict import check_channels, is_list
from graftseg.data.unsupported_files import CONVERSION_ADVICE, unsupported_ending
from graftseg.inference.ensemble import Ensemble, predict_maps
from graftseg.inference.inputs import Source, sources_in
from graftseg.inference.label_maps import ExtraMaps, names_of, write_maps
from graftseg.inference.output_folder import (
    OutputFolder,
    check_inputs,
    find_long_names,
    now,
    output_files,
    refuse_file_name,
)
from graftseg.inference.prediction_settings import DEFAULT_SETTINGS, PredictionSettings
from graftseg.inference.predictor import check_memory
from graftseg.inference.resuming import case_key, checksums, is_finished, settings_key

FLIPS = "inference.flips=true"
FLIPS_WARNING = (
    "the network was trained without mirrored scans (batches.augment.rotate_flip is 0), so flips may harm label maps"
)
NO_FLIPS_WARNING = "the network was trained without mirrored scans (batches.warp.mirror is empty), so no flips are used"
SCORES_REMOVED = "{}: removed the scores of label maps that have been predicted again; test or evaluate again"

EarlierCases = Mapping[str, PredictedCase]  # cases of earlier predictions, by name
CaseResult = tuple[str, PredictedCase | UserError | None]  # case, and its label map, its error or None if skipped
PredictCases = Callable[[EarlierCases], Iterable[CaseResult]]


@dataclass(frozen=True)
class Predicted:
    """The result of a prediction."""

    folder: Path
    cases: tuple[PredictedCase, ...]  # predicted cases, and cases that an earlier prediction finished
    failures: tuple[UserError, ...]  # errors of cases that failed
    warnings: tuple[str, ...] = ()
    unfound: tuple[str, ...] = ()  # names of the classes that none of the label maps contains
    network: str = ""  # which network was used and why, if a run has several
    others: int = 0  # number of label maps in the folder that belong to other cases
    skipped: int = 0  # number of cases that an earlier prediction finished


def predict_scans(
    run: RunFolder, scans: Path, out: Path, device: torch.device, settings: PredictionSettings = DEFAULT_SETTINGS
) -> Predicted:
    """Predict every scan. A scan that fails is reported in the result, and the other scans are still predicted.

    ``scans`` is a scan, a folder, a list of scans, or a prepared store, whose test cases are predicted. ``run`` may be
    a cross-validation, which predicts with the mean of all folds. Label maps of other cases in ``out`` are kept if the
    same networks wrote them.
    """
    return plan_prediction(run, scans, out, device, settings).predict()


def plan_prediction(
    run: RunFolder, scans: Path, out: Path, device: torch.device, settings: PredictionSettings = DEFAULT_SETTINGS
) -> "PlannedPrediction":
    """Load the networks and list the scans. Raise an error for invalid input. Write nothing."""
    refuse_file_name(out)
    runs = ensemble_members(run, settings.fold)
    networks = Ensemble.load(runs, device, settings.overrides, settings.checkpoint)
    cases, failures = sources_in(
        scans, networks.recipe.data, networks.channels, settings.only, runs[0].training_case_names()
    )
    _check_ending(scans)
    failures |= find_long_names(cases, settings.extras)
    if settings.shard is not None:
        cases = [case for case in cases if settings.shard.contains(case.name)]
        failures = {name: error for name, error in failures.items() if settings.shard.contains(name)}
    cases = [case for case in cases if case.name not in failures]
    names = (*failures, *(case.name for case in cases))
    files = output_files(names, settings.extras)
    if scans.is_dir() and scans.resolve() == out.resolve():
        finding = "label maps in this folder would be mistaken for scans"
        raise UserError(Code.UNSAFE_TARGET, out, finding, settings.remedy)
    check_inputs(out, cases, files, settings.remedy)
    networks.try_out()
    target = OutputFolder(out, _new_manifest(run, networks, settings.extras), names, files, settings)
    return PlannedPrediction(networks, cases, failures, target)


def _check_ending(scans: Path) -> None:
    if scans.is_file() and not is_scan(scans) and not is_list(scans):
        remedy = f"use {READABLE} files with their usual endings"
        remedy = CONVERSION_ADVICE.get(unsupported_ending(scans.name) or "", remedy)
        raise UserError(Code.NOT_A_SCAN, scans, "the file ending is not a supported scan format", remedy)


@dataclass(frozen=True)
class PlannedPrediction:
    """Loaded networks, the cases to predict, the errors of unusable cases, and the output folder."""

    networks: Ensemble
    cases: list[Source]
    failures: dict[str, UserError]
    target: OutputFolder

    def predict(self, predict_cases: PredictCases | None = None) -> Predicted:
        """Write the label maps of all unfinished cases. By default, this process predicts them."""
        target, failures = self.target, dict(self.failures)
        is_resumed = target.settings.is_resumed
        done: list[PredictedCase] = []
        skipped: list[PredictedCase] = []
        removed: list[bool] = []
        make_folder(target.path)
        with target.lock():
            manifest, may_have_scores = target.begin()
            others = target.count_others()

            def remove_scores(*names: str) -> None:
                removed.append(may_have_scores and target.remove_scores(names))

            # with ``predict_cases``, it is not known in advance which cases are skipped
            remove_scores(*(failures if is_resumed and predict_cases is None else target.case_names))
            earlier = {nfc(case.case): case for case in manifest.cases} if is_resumed else {}
            for name, error in failures.items():
                self._log_failure(name, error)
            try:
                results = predict_cases(earlier) if predict_cases else self.predict_here(earlier, remove_scores)
                for name, result in results:
                    if isinstance(result, UserError):
                        failures[name] = result
                        self._log_failure(name, result)
                    elif result is None:
                        skipped.append(earlier[nfc(name)])
                    else:
                        done.append(result)
                        append_to_journal(target.journal, result)
            finally:
                remove_scores(*failures)
                target.end(manifest, done, failures, _peak_memory(self.networks.device))
        warnings = (*self._flip_warnings(), *([SCORES_REMOVED.format(target.path)] if any(removed) else []))
        cases, errors = (*done, *skipped), tuple(failures.values())
        unfound = self._unfound(cases)
        return Predicted(target.path, cases, errors, warnings, unfound, others=others, skipped=len(skipped))

    def _unfound(self, cases: Sequence[PredictedCase]) -> tuple[str, ...]:
        """Return the classes that none of the cases contains, or none without cases."""
        found = {0, *(value for case in cases for value in case.found)}
        return tuple(name for value, name in enumerate(self.networks.classes) if cases and value not in found)

    def _flip_warnings(self) -> list[str]:
        if not self.networks.recipe.inference.flips or self.networks.mirrored_axes:
            return []
        return [FLIPS_WARNING if self.networks.flip_axes is None else NO_FLIPS_WARNING]

    def predict_here(self, earlier: EarlierCases, before_writing: Callable[[str], None]) -> Iterator[CaseResult]:
        """Predict all unfinished cases in this process. Call ``before_writing`` with the name of each of them."""
        settings = settings_key(self.networks)
        with flushed_together(), progress_bar("Predicting", len(self.cases)) as show:
            progress = ScanProgress(len(self.cases), show)
            for case in self.cases:
                try:
                    key = case_key(case, settings)
                    if is_finished(earlier.get(nfc(case.name)), self.target.path, key):
                        yield case.name, None
                    else:
                        before_writing(case.name)
                        yield case.name, self.predict_case(case, progress, key)
                except UserError as error:
                    yield case.name, error
                except Exception as error:  # one scan must not stop the others
                    finding = f"cannot be predicted ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
                    remedy = "check the scan, or leave it out"
                    yield case.name, UserError(Code.READ_FAILED, case.files[0], finding, remedy)
                progress.end()

    def _log_failure(self, name: str, error: UserError) -> None:
        append_to_journal(self.target.journal, {"case": name, "failure": str(error)})

    def predict_case(self, case: Source, progress: ScanProgress, key: str) -> PredictedCase:
        """Read a case and write its maps. ``key`` is a checksum of everything that the maps depend on."""
        started, where, channels = perf_counter(), case.files[0], self.networks.channels
        extras = self.target.settings.extras
        predictor = replace(self.networks.predictor, on_windows=progress.tick)
        grid = case.grid()
        if extras.pictures and len(grid.source_shape) > 2:
            finding = "the label map of a volume cannot be written as a picture"
            raise UserError(Code.OPTION_CONFLICT, where, finding, "leave out --pictures")
        check_memory(grid, channels, predictor, extras, where)
        prepared = case.read()
        check_channels(where, len(prepared.image), channels)
        progress.begin(predictor.windows_in(prepared.grid.prepared_shape))
        maps = predict_maps(predictor, prepared.image, prepared.grid, extras, where)
        names = names_of(case.name, extras)
        write_maps(self.target.path, names, maps, prepared.geometry)
        found = tuple(value for value in range(len(self.networks.classes)) if (maps.labels == value).any())
        return PredictedCase(
            case.name,
            tuple(str(path.resolve()) for path in case.files),
            names.labels,
            round(perf_counter() - started, 3),
            is_empty=not any(found),
            probabilities=names.probabilities,
            uncertainty=names.uncertainty,
            mean_uncertainty=maps.mean_uncertainty,
            picture=names.picture,
            sha256=case.sha256,
            precision=self.networks.precision,
            found=found,
            key=key,
            checksums=checksums(self.target.path, names.all),
        )


def _new_manifest(run: RunFolder, networks: Ensemble, extras: ExtraMaps) -> Manifest:
    return Manifest(
        run=str(run.path.resolve()),
        weights=networks.identity(),
        inference=networks.recipe.inference.model_dump(mode="json", exclude={"precision"}),
        classes=networks.classes,
        checkpoint="; ".join(sorted({weights.chosen for weights in networks.weights})),
        selected_on=networks.selected_on,
        device=str(networks.device),
        versions=versions(),
        networks=len(networks.members),
        opinions=networks.uncertainty_source if extras.uncertainty else None,
        started=now(),
    )


def _peak_memory(device: torch.device) -> dict[str, int]:
    host = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    return host | ({"device": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {})
