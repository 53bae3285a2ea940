"""Measurement of all scans of a ranking. Groups of scans are tasks, for example on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import Executor, Work
from graftseg.inference.model import TrainedNetwork, load_network
from graftseg.inference.ranking.cases import CaseToMeasure, cases_in
from graftseg.inference.ranking.observe import Observation, observe


@dataclass(frozen=True)
class Measured:
    """The measured scans, the class names, and the errors of scans that could not be read."""

    unlabeled: list[Observation]
    labeled: list[Observation]
    classes: Sequence[str]
    failures: tuple[UserError, ...]


@dataclass(frozen=True)
class _Request:
    """The network of a ranking. ``key`` is unique, so that the network is not reused for another ranking."""

    key: str
    run: RunFolder
    device: str


def measure(run: RunFolder, data: Path, device: torch.device, executor: Executor) -> Measured:
    """Measure all scans. Raise a UserError if no labeled or no unlabeled scan can be read."""
    # The machine that starts the tasks may have no GPU.
    here = device if device.type == "cpu" or torch.cuda.is_available() else torch.device("cpu")
    request = _Request(uuid4().hex, run, str(here))
    try:
        network = _load(request)
        labeled, unlabeled = cases_in(data, network.recipe)
        measure_cases = partial(_measure_all, replace(request, device=str(device)), data, device, executor)
        measured_labeled, labeled_failures = measure_cases("labeled", labeled)
        measured_unlabeled, failures = measure_cases("unlabeled", unlabeled)
        return Measured(measured_unlabeled, measured_labeled, network.classes, (*labeled_failures, *failures))
    finally:
        _load.cache_clear()


def _measure_all(
    request: _Request, data: Path, device: torch.device, executor: Executor, kind: str, cases: Sequence[CaseToMeasure]
) -> tuple[list[Observation], list[UserError]]:
    """Measure the cases in tasks. A task receives its cases, so that it does not list the scans again."""
    description = f"Measuring {kind} scans"
    work = Work(description, (request.run.path, data), (), device)
    task = partial(_measure_group, request, description)
    with executor.running(task, executor.groups(cases, device), work) as finished:
        results = [result for wait in finished for result in wait()]
    observed = [result for result in results if isinstance(result, Observation)]
    failures = [result for result in results if isinstance(result, UserError)]
    if not observed:
        raise failures[0]
    return observed, failures


def _measure_group(
    request: _Request, description: str, cases: Sequence[CaseToMeasure]
) -> list[Observation | UserError]:
    network = _load(request)
    return [_measure(network, case) for case in track(cases, description, len(cases))]


@lru_cache(maxsize=1)
def _load(request: _Request) -> TrainedNetwork:
    """Load the network once in each process."""
    return load_network(request.run, torch.device(request.device))


def _measure(network: TrainedNetwork, case: CaseToMeasure) -> Observation | UserError:
    try:
        return observe(network, case.name, case.read())
    except UserError as error:
        return error
    except (torch.OutOfMemoryError, MemoryError):
        remedy = "use --device cpu or a larger machine"
        return UserError(Code.OUT_OF_MEMORY, case.name, "does not fit into memory", remedy)
