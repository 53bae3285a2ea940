"""What a network is to segment: scans on disk, or the test cases of a prepared store."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.formats.scan import guess_lines
from graftseg.data.grid import Grid
from graftseg.data.prepare import PrepareSettings, prepare_image, prepared_grid
from graftseg.data.scans import read_case, read_geometry
from graftseg.data.scans_to_predict import scan_cases
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """A prepared image ``(C, *space)``, the grid that leads back to its scan, and where that one lies."""

    image: torch.Tensor
    grid: Grid
    geometry: Geometry


class Source(Protocol):
    """A case that can be read: its name, and the files it comes from."""

    @property
    def name(self) -> str:
        """Name of the case."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its image."""

    @property
    def sha256(self) -> str | None:
        """The hash of its image, where that is known without reading it."""

    def grid(self) -> Grid:
        """The grid of that image, before anything of it is read."""

    def read(self) -> Input:
        """The image that the network is given."""


@dataclass(frozen=True)
class ScanSource:
    """A scan on disk, prepared as the run's recipe asks for."""

    case: Case
    settings: PrepareSettings
    channels: int | None = None

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.case.name

    @property
    def files(self) -> tuple[Path, ...]:
        """One file a channel."""
        return self.case.images

    @property
    def sha256(self) -> None:
        """Not known before the scan is read."""
        return None

    def grid(self) -> Grid:
        """The grid that the scan will be brought to, by its header."""
        return prepared_grid(read_geometry(self.files[0], self.channels), self.settings, where=self.files[0])

    def read(self) -> Input:
        """Read and prepare the scan."""
        try:
            scan = read_case(self.case.images, self.channels)
        except MemoryError:
            raise UserError(
                Code.OUT_OF_MEMORY, self.files[0], "does not fit into memory", "use a larger machine"
            ) from None
        for line in guess_lines(scan.guesses):
            log.warning("%s", line)
        image, grid = prepare_image(scan, self.settings, where=self.files[0])
        return Input(torch.from_numpy(image), grid, scan.geometry)


@dataclass(frozen=True)
class StoredSource:
    """A case of a store, prepared already."""

    store: Store
    case: StoredCase

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.case.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The one file of its image."""
        return (self.store.path / CASES / self.case.image,)

    @property
    def sha256(self) -> str:
        """By the manifest of the store."""
        return self.case.sha256[self.case.image]

    def grid(self) -> Grid:
        """The grid that the scan was brought to."""
        return self.case.grid

    def read(self) -> Input:
        """Read the prepared image, if it is what was prepared."""
        self.store.verify_file(self.case, self.case.image)
        return Input(torch.from_numpy(np.array(self.store.image(self.case))), self.case.grid, self.case.geometry)


def sources_in(
    path: Path,
    settings: PrepareSettings,
    channels: int,
    only: Collection[str] = (),
    trained: Collection[str] = (),
) -> tuple[list[Source], dict[str, UserError]]:
    """The cases of a scan, a folder of scans or a store, and why others there cannot be taken.

    Of a store the test cases are taken. ``only`` names those to take alone, of a store whatever their split. How
    the cases that a network was ``trained`` on are called says what a number at the end of a name is.
    """
    if is_store(path):
        return _stored(open_store(path), settings, only), {}
    cases, failures = scan_cases(path, channels, trained)
    if only:
        failures = {name: error for name, error in failures.items() if name in only}
    return [ScanSource(case, settings, channels) for case in cases if not only or case.name in only], failures


def _stored(store: Store, settings: PrepareSettings, only: Collection[str]) -> list[Source]:
    if other := store.settings_difference(settings.model_dump(mode="json")):
        finding = f"the store was prepared otherwise than the run asks for ({other})"
        raise UserError(
            Code.STORE_MISMATCH,
            store.path,
            finding,
            "prepare the scans with RUN/recipe.yaml or give the scans themselves",
        )
    cases = [case for case in store.cases if case.name in only] if only else store.of("test")
    sources: list[Source] = [StoredSource(store, case) for case in cases]
    if not sources:
        raise UserError(
            Code.NO_TEST_CASES, store.path, "the store has no test cases", "give a scan or a folder of scans"
        )
    return sources
