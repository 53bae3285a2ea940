"""Plausibility of predictions: comparison of a predicted label map with the label maps of the labeled scans.

A prediction is implausible if it is empty, if a class has less than a tenth or more than ten times its usual volume, if
a class that is one piece in the labels falls apart, if the foreground or a class is at an unusual position in the scan,
or if the network is uncertain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.data.pieces import pieces_of

MIN_VOLUME, MAX_VOLUME = 0.1, 10.0
"""Limits of a plausible volume of a class, relative to its median volume in the labels."""
ONE_PIECE, SCATTERED = 0.9, 0.5
"""A class is one piece if its largest piece has at least the first share of its voxels in every label map. The
prediction of such a class falls apart if its largest piece has less than the second share."""
MAX_SHIFT = 0.25
"""A center is unusual if it is farther than this outside the range of the labels, as a share of the scan's length."""
MAX_UNCERTAINTY = 0.6
"""Mean uncertainty of voxels with a foreground probability of at least 5 %, above which a prediction is implausible."""


Point = tuple[float, ...]
Range = tuple[Point, Point]
"""The lowest and the highest coordinates of some points."""


@dataclass(frozen=True)
class ScanSummary:
    """Volume in voxels and share of the largest piece of every foreground class, and the centers of all classes.

    The first center is that of the whole foreground. Centers are relative to the size of the scan, and None where
    nothing was found. Labels have no uncertainty. ``voxel`` is the volume (in 2-D the area) of a voxel, so that scans
    with different voxel sizes can be compared.
    """

    volumes: tuple[int, ...]
    largest: tuple[float, ...]
    centers: tuple[Point | None, ...]
    uncertainty: float | None = None
    voxel: float = 1.0


def summarize(
    label: NDArray[Any], classes: int, uncertainty: float | None = None, *, voxel: float = 1.0
) -> ScanSummary:
    """Summarize a label map ``(*space)`` of ``classes`` classes, including the background."""
    pieces = pieces_of(label)
    volumes = tuple(pieces[value].voxels if value in pieces else 0 for value in range(1, classes))
    largest = tuple(pieces[v].sizes[0] / pieces[v].voxels if v in pieces else 0.0 for v in range(1, classes))
    return ScanSummary(volumes, largest, _centers(label, classes), uncertainty, voxel)


def _centers(label: NDArray[Any], classes: int) -> tuple[Point | None, ...]:
    """Return the center of the foreground and of every foreground class, relative to the size of the scan."""
    counts, sums = np.zeros(classes, np.int64), np.zeros((classes, label.ndim))
    for index, plane in enumerate(label):  # one plane at a time, because positions need more memory than labels
        where = np.nonzero(plane)
        values = plane[where]
        found = np.bincount(values, minlength=classes)
        counts += found
        sums[:, 0] += index * found
        for axis, positions in enumerate(where, start=1):
            sums[:, axis] += np.bincount(values, positions, minlength=classes)
    counts[0], sums[0] = counts.sum(), sums.sum(axis=0)
    return tuple(
        tuple(((total / count + 0.5) / label.shape).tolist()) if count else None
        for total, count in zip(sums, counts, strict=True)
    )


@dataclass(frozen=True)
class Usual:
    """The usual volumes, pieces and positions, from the label maps of the labeled scans.

    Volumes are not in voxels, but in the unit of ``ScanSummary.voxel``. A class is checked only if all label maps
    contain the class. The first range of positions is that of the whole foreground. Empty predictions are plausible if
    some label maps are empty.
    """

    volumes: tuple[float | None, ...]
    is_one_piece: tuple[bool, ...]
    positions: tuple[Range | None, ...]
    is_never_empty: bool = True

    @classmethod
    def of(cls, labeled: Sequence[ScanSummary]) -> "Usual":
        """Collect the usual values of labeled scans."""
        volumes = np.array([np.multiply(one.volumes, one.voxel) for one in labeled])
        largest = np.array([one.largest for one in labeled])
        foreground = [one.centers[0] for one in labeled if one.centers[0] is not None]
        classes = zip(*(one.centers[1:] for one in labeled), strict=True)
        return cls(
            tuple(float(np.median(own)) if own.all() else None for own in volumes.T),
            tuple(bool((own >= ONE_PIECE).all()) for own in largest.T),
            (_range(foreground), *(_range(points) for points in classes)),
            len(foreground) == len(labeled),
        )

    def objection(self, scan: ScanSummary) -> str | None:
        """Return why a prediction is implausible, or None."""
        if scan.centers[0] is None:
            return "no foreground" if self.is_never_empty else None
        for voxels, usual, largest, one_piece in zip(
            scan.volumes, self.volumes, scan.largest, self.is_one_piece, strict=True
        ):
            volume = voxels * scan.voxel
            if usual is not None and volume < MIN_VOLUME * usual:
                return "less than a tenth of the usual volume"
            if usual is not None and volume > MAX_VOLUME * usual:
                return "more than ten times the usual volume"
            if one_piece and largest < SCATTERED:
                return "scattered pieces"
        if any(_is_outside(center, usual) for center, usual in zip(scan.centers, self.positions, strict=True)):
            return "an unusual position"
        return "high uncertainty" if (scan.uncertainty or 0.0) > MAX_UNCERTAINTY else None


def _range(points: Sequence[Point | None]) -> Range | None:
    """Return the range of some points, or None if one of them is missing or there are none."""
    known = [point for point in points if point is not None]
    if not known or len(known) < len(points):
        return None
    low, high = np.min(known, axis=0), np.max(known, axis=0)
    return tuple(low.tolist()), tuple(high.tolist())


def _is_outside(center: Point | None, usual: Range | None) -> bool:
    """Return whether a center is more than ``MAX_SHIFT`` outside the usual range along any axis."""
    if center is None or usual is None:
        return False
    return any(
        place < low - MAX_SHIFT or place > high + MAX_SHIFT for place, low, high in zip(center, *usual, strict=True)
    )
