"""Predict groups of scans as tasks, for example on a cluster. Every task writes its label maps into the same folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import torch

from graftseg.core.files import PARTIAL
from graftseg.core.names import nfc
from graftseg.core.predictions import PredictedCase
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import LOCAL, Executor, Work
from graftseg.inference.predict import (
    CaseResult,
    PlannedPrediction,
    Predicted,
    PredictionSettings,
    plan_prediction,
)


@dataclass(frozen=True)
class _Request:
    """The arguments of a prediction. ``key`` is unique, because networks may change between requests."""

    key: str
    run: RunFolder
    scans: Path
    out: Path
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
    planned = plan_prediction(run, scans, out, here, settings)
    target = replace(planned.target, new_manifest=replace(planned.target.new_manifest, device=str(device)))
    settings = replace(settings, overrides=tuple(settings.overrides))
    request = _Request(uuid4().hex, run, scans, out, str(device), settings)
    return replace(planned, target=target).predict(partial(_predict_groups, request, planned, executor))


def _predict_groups(
    request: _Request, planned: PlannedPrediction, executor: Executor, earlier: Mapping[str, PredictedCase]
) -> Iterator[CaseResult]:
    """Start all tasks, and yield the results of the cases in order. Remove unfinished files of killed workers."""
    device = torch.device(request.device)
    groups = executor.groups([(case.name, earlier.get(nfc(case.name))) for case in planned.cases], device)
    work = Work("Predicting", (request.run.path, request.scans), (request.out,), device)
    with executor.running(partial(_predict_group, request), groups, work) as finished:
        for wait in finished:
            yield from wait()
    for unfinished in request.out.glob(f"{PARTIAL}*") if request.settings.shard is None else ():
        unfinished.unlink()


def _predict_group(request: _Request, group: Sequence[tuple[str, PredictedCase | None]]) -> list[CaseResult]:
    """Predict a group of cases. Each name comes with the case of an earlier prediction, if there is one."""
    planned, names = _planned(request), {name for name, _ in group}
    earlier = {nfc(name): case for name, case in group if case is not None}
    cases = [case for case in planned.cases if case.name in names]
    return list(replace(planned, cases=cases).predict_here(earlier, lambda name: None))


@lru_cache(maxsize=1)
def _planned(request: _Request) -> PlannedPrediction:
    """Load the networks once in each process."""
    return plan_prediction(request.run, request.scans, request.out, torch.device(request.device), request.settings)
