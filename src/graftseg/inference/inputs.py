"""Inputs of a prediction: scans on disk, or cases of a prepared store."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
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

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """A prepared image ``(C, *space)``, its grid relative to the scan, and the geometry of the scan."""

    image: torch.Tensor
    grid: Grid
    geometry: Geometry


@dataclass(frozen=True)
class ScanSource:
    """A scan on disk that is prepared with the settings of the run's recipe."""

    case: Case
    settings: PrepareSettings
    channels: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the case."""
        return self.case.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Return one file per channel."""
        return self.case.images

    @property
    def sha256(self) -> None:
        """Return None: the hash is unknown before the scan is read."""
        return None

    def grid(self) -> Grid:
        """Return the prepared grid, computed from the header of the scan."""
        return prepared_grid(read_geometry(self.files[0], self.channels), self.settings, where=self.files[0])

    def read(self) -> Input:
        """Read and prepare the scan."""
        try:
            scan = read_case(self.case.images, self.channels)
        except MemoryError:
            finding = "does not fit into memory"
            raise UserError(Code.OUT_OF_MEMORY, self.files[0], finding, "use a larger machine") from None
        for line in guess_lines(scan.guesses):
            log.warning("%s", line)
        image, grid = prepare_image(scan, self.settings, where=self.files[0])
        return Input(torch.from_numpy(image), grid, scan.geometry)


@dataclass(frozen=True)
class StoredSource:
    """A prepared case of a store."""

    store: Store
    case: StoredCase

    @property
    def name(self) -> str:
        """Return the name of the case."""
        return self.case.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the image file."""
        return (self.store.path / CASES / self.case.image,)

    @property
    def sha256(self) -> str:
        """Return the hash in the manifest of the store."""
        return self.case.sha256[self.case.image]

    def grid(self) -> Grid:
        """Return the grid of the prepared image."""
        return self.case.grid

    def read(self) -> Input:
        """Verify and read the prepared image."""
        self.store.verify_file(self.case, self.case.image)
        return Input(torch.from_numpy(np.array(self.store.image(self.case))), self.case.grid, self.case.geometry)


Source = ScanSource | StoredSource
"""A case that can be read."""


def sources_in(
    path: Path,
    settings: PrepareSettings,
    channels: int,
    only: Collection[str] = (),
    trained: Collection[str] = (),
) -> tuple[list[Source], dict[str, UserError]]:
    """Return the cases of a scan, a folder of scans or a store, and the errors of cases that cannot be read.

    Of a store, the test cases are returned. ``only`` selects cases by name, of any split. ``trained`` are the names of
    the training cases; they show whether a number at the end of a file name is a channel or part of the case name.
    """
    if is_store(path):
        return _stored(open_store(path), settings, only), {}
    cases, failures = scan_cases(path, channels, trained)
    if only:
        failures = {name: error for name, error in failures.items() if name in only}
    return [ScanSource(case, settings, channels) for case in cases if not only or case.name in only], failures


def _stored(store: Store, settings: PrepareSettings, only: Collection[str]) -> list[Source]:
    if other := store.settings_difference(settings.model_dump(mode="json")):
        raise settings_error(store, other)
    cases = [case for case in store.cases if case.name in only] if only else store.of("test")
    sources: list[Source] = [StoredSource(store, case) for case in cases]
    if not sources:
        finding = "the store has no test cases"
        raise UserError(Code.NO_TEST_CASES, store.path, finding, "give a scan or a folder of scans")
    return sources


def read_training_cases(data: Path, batches: BatchSettings) -> Dataset:
    """Read a folder of scans as the training divided it: labels that the training did not use are hidden."""
    dataset = read_layout(data)
    if dataset.problems:
        raise dataset.problems[0]
    return dataset.for_training(batches.labeled_cases, batches.validation_cases, batches.held_out)


def settings_error(store: Store, difference: str) -> UserError:
    """Return the error for a store that was prepared with other settings than the recipe of the run."""
    finding = f"the store was prepared with other settings than the run ({difference})"
    remedy = "prepare the scans with RUN/recipe.yaml, or give the scans themselves"
    return UserError(Code.STORE_MISMATCH, store.path, finding, remedy)
