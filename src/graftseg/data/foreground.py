"""Foreground voxels of the cases of a stream, so that patches can be drawn around them.

A few thousand positions of each class of each case are enough to draw from, and stay in the memory of the host. They
come from label maps, or, for scans without one, from a network's predictions; whoever draws does not mind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.data.augment import Integers
from graftseg.data.store import Store, StoredCase

MOST = 4096
"""Positions that are kept of a class in a case."""

Voxels = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Aim:
    """Which samples of a batch are drawn around foreground, and around which voxels ``(n, axes)`` of their cases."""

    samples: Integers
    voxels: Integers


@dataclass(frozen=True)
class Positions:
    """For each case of a stream, in its order, the positions ``(n, axes)`` of every class that it shows."""

    cases: tuple[tuple[Voxels, ...], ...]

    def aim(self, rng: np.random.Generator, cases: Integers, share: float) -> Aim | None:
        """Draw the samples that are aimed, ``share`` of them, and a voxel for each: every class present alike.

        Where the share is no whole number of samples, one more is drawn as often as that takes. A case without
        foreground is left alone; None stands for no sample at all.
        """
        count = floor(share * len(cases) + rng.random())
        chosen = np.sort(rng.permutation(len(cases))[:count])
        found = [(sample, self._voxel(rng, cases[sample])) for sample in chosen if self.cases[cases[sample]]]
        if not found:
            return None
        samples, voxels = zip(*found, strict=True)
        return Aim(np.array(samples, dtype=np.int64), np.array(voxels, dtype=np.int64))

    def _voxel(self, rng: np.random.Generator, case: int) -> Voxels:
        classes = self.cases[case]
        voxels = classes[rng.integers(len(classes))]
        found: Voxels = voxels[rng.integers(len(voxels))]
        return found

    def save(self, path: Path) -> None:
        """Write the positions as one file."""
        groups = [(case, voxels) for case, classes in enumerate(self.cases) for voxels in classes]
        numbers = np.array([[case, len(voxels)] for case, voxels in groups], dtype=np.int64).reshape(-1, 2)
        flat = np.concatenate([voxels for _, voxels in groups]) if groups else np.zeros((0, 0), np.int32)
        with atomic_path(path) as partial, partial.open("wb") as stream:
            np.savez_compressed(stream, cases=np.int64(len(self.cases)), groups=numbers, voxels=flat)

    @classmethod
    def load(cls, path: Path, shapes: Sequence[Sequence[int]]) -> "Positions":
        """Read positions in scans of these shapes."""
        remedy = "restore the file or train anew"
        if not path.is_file():
            raise UserError(Code.DAMAGED_FILE, path, "the file is missing", remedy)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
                count, groups, flat = int(content["cases"]), content["groups"], content["voxels"]
            cases: list[list[Voxels]] = [[] for _ in range(count)]
            parts = np.split(flat.astype(np.int32), np.cumsum(groups[:, 1])[:-1]) if len(groups) else []
            for case, voxels in zip(groups[:, 0], parts, strict=True):
                cases[case].append(voxels)
        except (OSError, ValueError, KeyError, IndexError, EOFError, TypeError, BadZipFile) as error:
            raise UserError(Code.DAMAGED_FILE, path, f"the file is damaged ({error})", remedy) from None
        positions = cls(tuple(tuple(classes) for classes in cases))
        if not positions._lie_in(shapes):
            raise UserError(Code.DAMAGED_FILE, path, "its positions are not in the unlabeled scans of this run", remedy)
        return positions

    def _lie_in(self, shapes: Sequence[Sequence[int]]) -> bool:
        if len(self.cases) != len(shapes):
            return False
        pairs = [(voxels, shape) for classes, shape in zip(self.cases, shapes, strict=True) for voxels in classes]
        return all(
            len(voxels) and voxels.shape[1] == len(shape) and (voxels >= 0).all() and (voxels < shape).all()
            for voxels, shape in pairs
        )


def positions_in(label: npt.NDArray[Any]) -> tuple[Voxels, ...]:
    """Positions of every foreground class of a label map ``(*space)``: all, or ``MOST`` of them spread by chance.

    They follow from the label map alone.
    """
    flat = np.flatnonzero(label)
    values = label.ravel()[flat]
    found = []
    for value in np.unique(values):
        places = flat[values == value]
        if len(places) > MOST:
            rng = np.random.default_rng((int(value), len(places)))
            places = np.sort(rng.choice(places, MOST, replace=False))
        found.append(np.stack(np.unravel_index(places, label.shape), axis=1).astype(np.int32))
    return tuple(found)


def positions_of(store: Store, cases: Iterable[StoredCase]) -> Positions:
    """Positions in the label maps of a store, once these are known to be what was prepared."""
    found = []
    for case in cases:
        store.verify_file(case, str(case.label))
        found.append(positions_in(np.asarray(store.label(case))))
    return Positions(tuple(found))
