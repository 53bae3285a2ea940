"""Inputs of a prediction: scans on disk, or cases of a prepared store."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.batches import BatchSettings
from graftseg.data.dataset import Dataset
from graftseg.data.formats.scan import guess_lines
from graftseg.data.grid import Grid
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare_image, prepared_grid
from graftseg.data.scans import read_case, read_geometry
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """A prepared image ``(C, *space)``, the grid that maps it back to the scan, and the geometry of the scan."""

    image: torch.Tensor
    grid: Grid
    geometry: Geometry


@dataclass(frozen=True)
class Source:
    """A case to predict. A task on another machine can receive a case by pickle."""

    name: str
    files: tuple[Path, ...]
    grid: Callable[[], Grid]  # function that returns the grid without reading the voxels
    read: Callable[[], Input]  # function that reads and prepares the image
    sha256: str | None = None  # hash of the image in a store, or None for a scan on disk


def scan_source(case: Case, settings: PrepareSettings, channels: int | None = None) -> Source:
    """Return a scan on disk that is prepared with these settings when it is read."""
    grid = partial(_scan_grid, case.images[0], settings, channels)
    return Source(case.name, case.images, grid, partial(_read_scan, case.images, settings, channels))


def _scan_grid(path: Path, settings: PrepareSettings, channels: int | None) -> Grid:
    return prepared_grid(read_geometry(path, channels), settings, where=path)


def _read_scan(files: tuple[Path, ...], settings: PrepareSettings, channels: int | None) -> Input:
    try:
        scan = read_case(files, channels)
    except MemoryError:
        raise UserError(Code.OUT_OF_MEMORY, files[0], "does not fit into memory", "use a larger machine") from None
    for line in guess_lines(scan.guesses):
        logger.warning("%s", line)
    image, image_grid = prepare_image(scan, settings, where=files[0])
    return Input(torch.from_numpy(image), image_grid, scan.geometry)


def stored_source(store: Store, case: StoredCase) -> Source:
    """Return a prepared case of a store. Reading it verifies the hash of the image."""
    read = partial(_read_stored, replace(store, cases=()), case)
    files, grid = (store.path / CASES / case.image,), partial(getattr, case, "grid")
    return Source(case.name, files, grid, read, case.sha256[case.image])


def _read_stored(store: Store, case: StoredCase) -> Input:
    return Input(torch.from_numpy(store.read_image(case)), case.grid, case.geometry)


def sources_in(
    path: Path, settings: PrepareSettings, channels: int, only: Collection[str] = (), trained: Collection[str] = ()
) -> tuple[list[Source], dict[str, UserError]]:
    """Return the cases in ``path``, and an error for each case with another number of channels.

    path: a scan, a folder of scans, or a store, which contributes its test cases
    only: names of the cases to return; if given, a store contributes cases of any split
    trained: names of the training cases, which show whether a number at the end of a file name is a channel
    """
    if is_store(path):
        store = open_store(path)
        check_settings(store, settings)
        stored = [case for case in store.cases if case.name in only] if only else store.of("test")
        if not stored:
            raise UserError(Code.NO_TEST_CASES, path, "the store has no test cases", "pass a scan or a folder of scans")
        return [stored_source(store, case) for case in stored], {}
    cases, failures = scan_cases(path, channels, trained)
    if only:
        failures = {name: error for name, error in failures.items() if name in only}
    return [scan_source(case, settings, channels) for case in cases if not only or case.name in only], failures


def read_training_cases(data: Path, batches: BatchSettings) -> Dataset:
    """Read a folder of scans with the splits of the run, without the labels that the run did not use."""
    dataset = read_layout(data)
    dataset.refuse_problems()
    return dataset.for_training(*batches.role_limits)


def check_settings(store: Store, settings: PrepareSettings) -> None:
    """Raise a UserError if the prepare settings of a store differ from the recipe of the run."""
    if difference := store.settings_difference(settings.model_dump(mode="json")):
        finding = f"the prepare settings of the store differ from those of the run ({difference})"
        remedy = "prepare the scans with RUN/recipe.yaml, or pass the scans themselves"
        raise UserError(Code.STORE_MISMATCH, store.path, finding, remedy)
