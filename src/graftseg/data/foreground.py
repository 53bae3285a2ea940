"""Foreground positions, from label maps or predictions, around which patches of a stream are drawn."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.reading import open_regular
from graftseg.data.augment import Integers
from graftseg.data.store import Store, StoredCase

MAX_POSITIONS = 4096  # largest number of positions stored per class and case
Voxels = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Centers:
    """Indices ``(n,)`` of the samples whose patches are centered on foreground, and the center voxels ``(n, axes)``."""

    samples: Integers
    voxels: Integers


@dataclass(frozen=True)
class Positions:
    """Foreground voxels of the cases of a stream: for each case, an array ``(n, axes)`` per foreground class."""

    cases: tuple[tuple[Voxels, ...], ...]

    def draw(self, rng: np.random.Generator, cases: Integers, fraction: float) -> Centers | None:
        """Draw a ``fraction`` of the samples, and for each of them a voxel of a random foreground class.

        ``cases`` is the case index of each sample. A fractional number of samples is rounded at random, so that the
        average fraction is exact. Samples of cases without foreground are dropped. Return None if no sample remains.
        """
        count = floor(fraction * len(cases) + rng.random())
        chosen = np.sort(rng.permutation(len(cases))[:count])
        samples = [sample for sample in chosen if self.cases[cases[sample]]]
        drawn = []
        for classes in (self.cases[cases[sample]] for sample in samples):
            voxels = classes[rng.integers(len(classes))]
            drawn.append(voxels[rng.integers(len(voxels))])
        return Centers(np.array(samples, dtype=np.int64), np.array(drawn, dtype=np.int64)) if drawn else None

    def save(self, path: Path) -> None:
        """Write the positions to one file."""
        groups = [(case, voxels) for case, classes in enumerate(self.cases) for voxels in classes]
        numbers = np.array([[case, len(voxels)] for case, voxels in groups], dtype=np.int64).reshape(-1, 2)
        flat = np.concatenate([voxels for _, voxels in groups]) if groups else np.zeros((0, 0), np.int32)
        with atomic_path(path) as partial, partial.open("wb") as stream:
            np.savez_compressed(stream, cases=np.int64(len(self.cases)), groups=numbers, voxels=flat)

    @classmethod
    def load(cls, path: Path) -> "Positions":
        """Load positions written by ``save``."""
        try:
            with open_regular(path) as stream, np.load(stream, allow_pickle=False) as content:
                count, groups, flat = int(content["cases"]), content["groups"], content["voxels"]
            cases: list[list[Voxels]] = [[] for _ in range(count)]
            parts = np.split(flat.astype(np.int32), np.cumsum(groups[:, 1])[:-1]) if len(groups) else []
            for case, voxels in zip(groups[:, 0], parts, strict=True):
                cases[case].append(voxels)
        except (OSError, ValueError, LookupError, EOFError, TypeError, BadZipFile, zlib.error) as error:
            finding = f"missing, damaged or edited ({error})"
            raise UserError(Code.DAMAGED_FILE, path, finding, "restore the file or train again") from None
        return cls(tuple(tuple(classes) for classes in cases))


def positions_in(label: npt.NDArray[Any]) -> tuple[Voxels, ...]:
    """Return up to ``MAX_POSITIONS`` voxels per foreground class of labels ``(*space)``, drawn with a fixed seed."""
    flat = np.flatnonzero(label)
    values = label.ravel()[flat]
    positions = []
    for value in np.unique(values):
        indices = flat[values == value]
        if len(indices) > MAX_POSITIONS:
            rng = np.random.default_rng((int(value), len(indices)))
            indices = np.sort(rng.choice(indices, MAX_POSITIONS, replace=False))
        positions.append(np.stack(np.unravel_index(indices, label.shape), axis=1).astype(np.int32))
    return tuple(positions)


def positions_of(store: Store, cases: Iterable[StoredCase]) -> Positions:
    """Return the positions in the label maps of a store, after verifying their checksums."""
    return Positions(tuple(positions_in(store.read_label(case)) for case in cases))
