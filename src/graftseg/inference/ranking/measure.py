"""Measurement of the labeled and unlabeled scans of a ranking. Groups of scans are tasks, for example on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import Executor, Work
from graftseg.inference.model import TrainedNetwork, load_network
from graftseg.inference.ranking.cases import Candidate, candidates_in
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
    """The network and the scans. ``key`` is unique, because the network may change between requests."""

    key: str
    run: RunFolder
    data: Path
    device: str


def measure(run: RunFolder, data: Path, device: torch.device, executor: Executor) -> Measured:
    """Measure all scans. Raise a UserError if no labeled or no unlabeled scan can be read."""
    # The machine that starts the tasks may have no GPU.
    here = device if device.type == "cpu" or torch.cuda.is_available() else torch.device("cpu")
    request = _Request(uuid4().hex, run, data, str(here))
    try:
        network, cases = _load(request)
        request = _Request(request.key, run, data, str(device))
        labeled, labeled_failures = _measure_all(request, len(cases[0]), device, executor, is_labeled=True)
        unlabeled, failures = _measure_all(request, len(cases[1]), device, executor, is_labeled=False)
        return Measured(unlabeled, labeled, network.classes, (*labeled_failures, *failures))
    finally:
        _load.cache_clear()


def _measure_all(
    request: _Request, count: int, device: torch.device, executor: Executor, *, is_labeled: bool
) -> tuple[list[Observation], list[UserError]]:
    description = f"Measuring {'labeled' if is_labeled else 'unlabeled'} scans"
    work = Work(description, (request.run.path, request.data), (), device)
    task = partial(_measure_group, request, description, is_labeled)
    with executor.running(task, executor.groups(range(count), device), work) as finished:
        results = [result for wait in finished for result in wait()]
    observed = [result for result in results if isinstance(result, Observation)]
    failures = [result for result in results if isinstance(result, UserError)]
    if not observed:
        raise failures[0]
    return observed, failures


def _measure_group(
    request: _Request, description: str, is_labeled: bool, numbers: Sequence[int]
) -> list[Observation | UserError]:
    network, (labeled, unlabeled) = _load(request)
    cases = labeled if is_labeled else unlabeled
    group = [cases[number] for number in numbers]
    return [_measure(network, case) for case in track(group, description, len(group))]


@lru_cache(maxsize=1)
def _load(request: _Request) -> tuple[TrainedNetwork, tuple[list[Candidate], list[Candidate]]]:
    """Load the network and list the scans, once in each process."""
    network = load_network(request.run, torch.device(request.device))
    return network, candidates_in(request.data, network.recipe)


def _measure(network: TrainedNetwork, case: Candidate) -> Observation | UserError:
    try:
        return observe(network, case.name, case.read())
    except UserError as error:
        return error
    except (torch.OutOfMemoryError, MemoryError):
        remedy = "use --device cpu or a larger machine"
        return UserError(Code.OUT_OF_MEMORY, case.name, "does not fit into memory", remedy)
