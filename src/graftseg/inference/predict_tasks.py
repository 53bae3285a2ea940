"""Predict groups of scans as tasks, for example on a cluster. Every task writes its label maps into the same folder.

The scans are listed once, and each task receives its scans. A scan that a worker does not see is a failed scan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import torch

from graftseg.core.files import PARTIAL
from graftseg.core.names import nfc
from graftseg.core.predictions import PredictedCase
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.core.tasks import LOCAL, Executor, Work
from graftseg.data.scans_to_predict import is_list
from graftseg.inference.ensemble import Ensemble
from graftseg.inference.inputs import Source
from graftseg.inference.output_folder import OutputFolder
from graftseg.inference.predict import CaseResult, EarlierCases, PlannedPrediction, Predicted, plan_prediction
from graftseg.inference.prediction_settings import PredictionSettings

MAX_FOLDERS = 100
"""Number of folders of listed scans that every worker must see. If there are more, their parent folders are checked."""


@dataclass(frozen=True)
class _Request:
    """The networks of a prediction. ``key`` is unique, so that networks are not reused for another prediction."""

    key: str
    run: RunFolder
    device: str
    settings: PredictionSettings


def predict_in_tasks(
    run: RunFolder, scans: Path, out: Path, device: torch.device, settings: PredictionSettings, executor: Executor
) -> Predicted:
    """Predict groups of scans as tasks of an executor. The result is that of ``predict_scans``."""
    if executor is LOCAL:
        return plan_prediction(run, scans, out, device, settings).predict()
    # The machine that starts the tasks may have no GPU.
    here = device if device.type == "cpu" or torch.cuda.is_available() else torch.device("cpu")
    settings = replace(settings, overrides=tuple(settings.overrides))
    planned = plan_prediction(run, scans, out, here, settings)
    target = replace(planned.target, new_manifest=replace(planned.target.new_manifest, device=str(device)))
    request = _Request(uuid4().hex, run, str(device), settings)
    reads = (run.path, scans, *(_folders_of(planned.cases) if is_list(scans) else ()))
    return replace(planned, target=target).predict(
        partial(_predict_groups, request, target, planned.cases, reads, executor)
    )


def _folders_of(cases: Sequence[Source]) -> list[Path]:
    """Return the folders of all cases, or if these are too many, their parent folders."""
    folders = {file.parent for case in cases for file in case.files}
    while len(folders) > MAX_FOLDERS:
        folders = {folder.parent for folder in folders}
    return sorted(folders)


def _predict_groups(
    request: _Request,
    target: OutputFolder,
    cases: Sequence[Source],
    reads: tuple[Path, ...],
    executor: Executor,
    earlier: EarlierCases,
) -> Iterator[CaseResult]:
    """Start all tasks, and yield the results of the cases in order. Remove unfinished files of killed workers."""
    out, device = target.path, torch.device(request.device)
    groups = executor.groups([(case, earlier.get(nfc(case.name))) for case in cases], device)
    work = Work("Predicting", reads, (out,), device)
    # tasks do not need the names of all cases
    task = partial(_predict_group, request, replace(target, case_names=(), file_names=set()))
    with executor.running(task, groups, work) as finished:
        for group, wait in zip(groups, finished, strict=True):
            results = wait()
            assert [name for name, _ in results] == [case.name for case, _ in group], "a task lost a scan"
            yield from results
    for unfinished in out.glob(f"{PARTIAL}*") if request.settings.shard is None else ():
        unfinished.unlink()


def _predict_group(
    request: _Request, target: OutputFolder, group: Sequence[tuple[Source, PredictedCase | None]]
) -> list[CaseResult]:
    """Predict a group of cases, each with its result of an earlier prediction, if any."""
    earlier = {nfc(case.name): done for case, done in group if done is not None}
    cases = [case for case, _ in group]
    planned = PlannedPrediction(_load(request), cases, {}, target)
    return list(planned.predict_here(earlier, lambda name: None))


@lru_cache(maxsize=1)
def _load(request: _Request) -> Ensemble:
    """Load the networks once in each process."""
    settings = request.settings
    runs = ensemble_members(request.run, settings.fold)
    return Ensemble.load(runs, torch.device(request.device), settings.overrides, settings.checkpoint)


def forget_networks() -> None:
    """Free the networks of earlier tasks of this process."""
    _load.cache_clear()
