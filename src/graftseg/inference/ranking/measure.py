"""Measurement of the labeled and unlabeled scans of a ranking. Groups of scans are tasks, for example on a cluster.

Labels that the run did not use are never read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import Executor, Work
from graftseg.core.types import Case, Geometry
from graftseg.data.batches import training_cases
from graftseg.data.dataset import Dataset
from graftseg.data.grid import Grid, to_grid
from graftseg.data.labels import checked_values
from graftseg.data.prepare import PrepareSettings, prepare_image
from graftseg.data.store import Store, StoredCase, is_store, open_store
from graftseg.inference.inputs import check_settings, read_training_cases, stored_source
from graftseg.inference.model import TrainedNetwork, load_network
from graftseg.inference.ranking.observe import Observation, Prepared, observe
from graftseg.recipes.recipe import Recipe


@dataclass(frozen=True)
class Candidate:
    """A labeled or unlabeled case, and the function that reads it. A task on another machine receives it by pickle."""

    name: str
    read: Callable[[], Prepared]


@dataclass(frozen=True)
class Measured:
    """The measured scans, the class names, and the errors of scans that could not be read."""

    unlabeled: list[Observation]
    labeled: list[Observation]
    classes: Sequence[str]
    failures: tuple[UserError, ...]


@dataclass(frozen=True)
class _Request:
    """The network of a ranking. ``key`` is unique, because the network may change between requests."""

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
        labeled, unlabeled = candidates_in(data, network.recipe)
        start = partial(_measure_all, replace(request, device=str(device)), data, device, executor)
        seen_labeled, labeled_failures = start("labeled", labeled)
        seen_unlabeled, failures = start("unlabeled", unlabeled)
        return Measured(seen_unlabeled, seen_labeled, network.classes, (*labeled_failures, *failures))
    finally:
        _load.cache_clear()


def _measure_all(
    request: _Request, data: Path, device: torch.device, executor: Executor, kind: str, cases: Sequence[Candidate]
) -> tuple[list[Observation], list[UserError]]:
    """Measure cases, which are sent to the tasks, so that the tasks do not list the scans again."""
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


def _measure_group(request: _Request, description: str, cases: Sequence[Candidate]) -> list[Observation | UserError]:
    network = _load(request)
    return [_measure(network, case) for case in track(cases, description, len(cases))]


@lru_cache(maxsize=1)
def _load(request: _Request) -> TrainedNetwork:
    """Load the network once in each process."""
    return load_network(request.run, torch.device(request.device))


def _measure(network: TrainedNetwork, case: Candidate) -> Observation | UserError:
    try:
        return observe(network, case.name, case.read())
    except UserError as error:
        return error
    except (torch.OutOfMemoryError, MemoryError):
        remedy = "use --device cpu or a larger machine"
        return UserError(Code.OUT_OF_MEMORY, case.name, "does not fit into memory", remedy)


def candidates_in(data: Path, recipe: Recipe) -> tuple[list[Candidate], list[Candidate]]:
    """Return the labeled and the unlabeled cases of a store or a folder, divided as in training."""
    labeled: Sequence[Case | StoredCase]
    unlabeled: Sequence[Case | StoredCase]
    if is_store(data):
        store = open_store(data)
        check_settings(store, recipe.data)
        used = training_cases(store, recipe.batches)
        labeled, unlabeled = (*used.labeled, *used.validation), used.unlabeled
        read: Callable[..., Prepared] = partial(_read_stored, replace(store, cases=()))
    else:
        dataset = read_training_cases(data, recipe.batches)
        labeled, unlabeled = (*dataset.of("labeled"), *dataset.of("validation")), dataset.of("unlabeled")
        read = partial(_read_scan, replace(dataset, cases=()), recipe.data)
    if not unlabeled:
        raise UserError(Code.TOO_FEW_CASES, data, "no unlabeled scans to rank", "put unlabeled scans into imagesUn")
    if not labeled:
        raise UserError(Code.TOO_FEW_CASES, data, "no labeled scans to compare with", "put label maps into labelsTr")
    return (
        [Candidate(case.name, partial(read, case, labeled=True)) for case in labeled],
        [Candidate(case.name, partial(read, case, labeled=False)) for case in unlabeled],
    )


def _read_stored(store: Store, case: StoredCase, *, labeled: bool) -> Prepared:
    stored = stored_source(store, case).read()
    label = store.read_label(case) if labeled else None
    return Prepared(stored.image, voxel_size(case.geometry, case.grid), label)


def _read_scan(dataset: Dataset, settings: PrepareSettings, case: Case, *, labeled: bool) -> Prepared:
    scan = dataset.reader.image(case)
    image, grid = prepare_image(scan, settings, where=case.images[0])
    label = None
    if labeled:
        label_scan = dataset.reader.label(case)
        checked_values(dataset, case, scan.geometry, label_scan)
        label = to_grid(label_scan.array, grid, labels=True)
    return Prepared(torch.from_numpy(image), voxel_size(scan.geometry, grid), label)


def voxel_size(geometry: Geometry, grid: Grid) -> float:
    """Return the area or volume of a prepared voxel. For a sheared volume, it is not the product of the spacings."""
    size = math.prod(grid.prepared_spacing)
    return size * (geometry.voxel_volume / math.prod(geometry.spacing)) if len(geometry.shape) == 3 else size
