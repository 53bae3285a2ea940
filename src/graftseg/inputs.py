"""What a network is to segment: scans on disk, or the test cases of a prepared store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from graftseg.data.grid import Grid
from graftseg.data.layouts import scan_cases
from graftseg.data.prepare import PrepareSettings, prepare_image
from graftseg.data.scans import read_case
from graftseg.data.store import CASES, Store, StoredCase, is_store, open_store
from graftseg.errors import UserError
from graftseg.types import Case, Geometry


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

    def read(self) -> Input:
        """The image that the network is given."""


@dataclass(frozen=True)
class ScanSource:
    """A scan on disk, prepared as the run's recipe asks for."""

    case: Case
    settings: PrepareSettings

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.case.name

    @property
    def files(self) -> tuple[Path, ...]:
        """One file a channel."""
        return self.case.images

    def read(self) -> Input:
        """Read and prepare the scan."""
        try:
            scan = read_case(self.case.images)
        except MemoryError:
            raise UserError(self.files[0], "does not fit into memory", "use a larger machine") from None
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

    def read(self) -> Input:
        """Read the prepared image, if it is what was prepared."""
        self.store.verify_file(self.case, self.case.image)
        return Input(torch.from_numpy(np.array(self.store.image(self.case))), self.case.grid, self.case.geometry)


def sources_in(path: Path, settings: PrepareSettings, channels: int) -> tuple[list[Source], dict[str, UserError]]:
    """The cases of a scan, a folder of scans or a store, and why others there cannot be taken."""
    if is_store(path):
        return _stored(open_store(path), settings), {}
    cases, failures = scan_cases(path, channels)
    return [ScanSource(case, settings) for case in cases], failures


def _stored(store: Store, settings: PrepareSettings) -> list[Source]:
    if other := store.other_settings(settings.model_dump(mode="json")):
        finding = f"the store was prepared otherwise than the run asks for ({other})"
        raise UserError(store.path, finding, "prepare the scans with RUN/recipe.yaml or give the scans themselves")
    sources: list[Source] = [StoredSource(store, case) for case in store.of("test")]
    if not sources:
        raise UserError(store.path, "the store has no test cases", "give a scan or a folder of scans")
    return sources
