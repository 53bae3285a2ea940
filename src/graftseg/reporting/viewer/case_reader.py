"""Scans and maps of the viewed cases, read from their files when they are needed. The latest are cached in memory."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import Scan
from graftseg.reporting.viewer.collection import ViewedCase
from graftseg.reporting.viewer.volumes import Turn, compact

CACHE_BYTES = 2**30


def difference(reference: NDArray[Any], prediction: NDArray[Any]) -> NDArray[np.uint8]:
    """Return 1 for missed voxels, 2 for extra voxels, 3 for voxels with two different classes, else 0."""
    values = np.zeros(reference.shape, np.uint8)
    values[(reference > 0) & (prediction == 0)] = 1
    values[(reference == 0) & (prediction > 0)] = 2
    values[(reference > 0) & (prediction > 0) & (reference != prediction)] = 3
    return values


def in_background(task: Callable[[], object]) -> None:
    """Run a task in a thread. Ignore its user errors, because the request for the same data reports them."""

    def run() -> None:
        with suppress(UserError):
            task()

    Thread(target=run, daemon=True).start()


class CaseReader:
    """Scans ``(C, *space)`` and maps ``(*space)`` by the number of the case."""

    def __init__(self, cases: Sequence[ViewedCase]) -> None:
        self.cases = cases
        self._cache: OrderedDict[tuple[int, str], Scan] = OrderedDict()
        self._lock = Lock()

    def scan(self, number: int) -> Scan:
        """Return the scan of a case."""
        return self._read(number, "image", self.cases[number].image)

    def read_ahead(self, number: int) -> None:
        """Start to read a scan in the background, before it is requested."""
        in_background(partial(self.scan, number))

    def turn(self, number: int) -> Turn:
        """Return the reorientation of a case for the browser."""
        return Turn.of(self.scan(number).geometry)

    def layer(self, number: int, name: str) -> NDArray[Any]:
        """Return a map of a case on the grid of its scan. ``difference`` compares reference and prediction."""
        if name == "difference":
            return difference(self._map(number, "reference"), self._map(number, "prediction"))
        return self._map(number, name)

    def _map(self, number: int, name: str) -> NDArray[Any]:
        case = self.cases[number]
        array, shape = self._read(number, name, case.maps[name]).array, self.scan(number).geometry.shape
        if array.shape != shape:
            finding = f"the {name} has the shape {array.shape}, but the scan has {shape}"
            raise UserError(Code.GEOMETRY_MISMATCH, case.name, finding, "use a label map on the grid of the scan")
        return array

    def forget(self, number: int) -> None:
        """Read a case again the next time, because its files changed."""
        with self._lock:
            for key in [key for key in self._cache if key[0] == number]:
                del self._cache[key]

    def _read(self, number: int, name: str, read: Callable[[], Scan]) -> Scan:
        with self._lock:
            key = number, name
            if key not in self._cache:
                self._cache[key] = _compact(read())
            self._cache.move_to_end(key)
            while len(self._cache) > 1 and sum(scan.array.nbytes for scan in self._cache.values()) > CACHE_BYTES:
                self._cache.popitem(last=False)
            return self._cache[key]


def _compact(scan: Scan) -> Scan:
    """Store an array in fewer bytes if no value changes.

    A uint16 label map becomes uint8. Any array of more than 16 bits becomes int16.
    """
    if scan.array.dtype == np.uint16 and scan.array.ndim == len(scan.geometry.shape) and scan.array.max() <= 255:
        return Scan(scan.array.astype(np.uint8), scan.geometry)
    return Scan(compact(scan.array), scan.geometry)
