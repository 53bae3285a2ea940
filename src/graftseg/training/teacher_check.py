"""Check of the teacher: compare its predictions of the unlabeled scans with the labeled scans.

Before self-training, scans with an implausible prediction are left out. If too many predictions are implausible, the
first stage is extended once. If too many are still implausible, training continues without the unlabeled scans.

During self-training, a few scans are predicted again at intervals. If a class drifts, the network before the drift is
restored, and training continues without the unlabeled scans.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.teacher_checks import MIN_SCANS, Decision, TeacherCheck
from graftseg.data.pieces import pieces_of

MIN_VOLUME, MAX_VOLUME = 0.1, 10.0
"""Limits of a plausible volume of a class, relative to its median volume in the labels."""
MIN_ONE_PIECE = 0.9
"""Minimum share of a class in its largest piece, in every label map, for the class to count as one piece."""
MIN_LARGEST_PIECE = 0.5
"""Minimum share of a class in its largest predicted piece, if the class is one piece in the labels."""
MAX_SHIFT = 0.25
"""Maximum distance of a center from the range of centers in the labels, as a share of the scan's length."""
MAX_UNCERTAINTY = 0.6
"""Maximum mean uncertainty of a plausible prediction, over voxels with a foreground probability of at least 5 %."""
MAX_REJECTED = 0.25
"""Maximum share of scans with an implausible prediction for self-training."""
MAX_WATCHED = 6
"""Maximum number of scans that are predicted again during self-training."""
MAX_DRIFT = 3.0
"""A class drifts if its volume falls below both its first and its usual volume by more than this factor, or rises above
both by more than this factor. Volumes are sums over the watched scans."""
MIN_DRIFT_VOXELS = 10
"""Minimum mean number of voxels per watched scan. Smaller classes are not checked for drift, because a small change is
large relative to their volume."""
INTERVALS = 5
"""Number of intervals of self-training. The watched scans are predicted after each interval except the last."""
MAX_COMPARED = 30
"""Maximum number of scans that two networks predict at the end, to compare them."""
MAX_FURTHER = 2.0
"""If a class is missing in some label maps, its predicted volume may be further from the usual volume than that of the
baseline by at most this factor."""
MIN_RATIO = 0.01
"""Smaller ratios of volumes count as this ratio."""

Point = tuple[float, ...]
Range = tuple[Point, Point]
"""The lowest and the highest coordinate of some points along each axis."""


@dataclass(frozen=True)
class ScanSummary:
    """Summary of a label map.

    volumes: number of voxels of every foreground class
    largest: share of every foreground class in its largest piece
    centers: center of the whole foreground, then of every foreground class, relative to the size of the scan; None for
        a class without voxels
    uncertainty: mean uncertainty of a prediction, None for labels
    voxel: volume of a voxel (in 2-D its area), to compare scans with different voxel sizes
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
        foreground = np.nonzero(plane)
        values = plane[foreground]
        plane_counts = np.bincount(values, minlength=classes)
        counts += plane_counts
        sums[:, 0] += index * plane_counts
        for axis, positions in enumerate(foreground, start=1):
            sums[:, axis] += np.bincount(values, positions, minlength=classes)
    counts[0], sums[0] = counts.sum(), sums.sum(axis=0)
    return tuple(
        tuple(((total / count + 0.5) / label.shape).tolist()) if count else None
        for total, count in zip(sums, counts, strict=True)
    )


@dataclass(frozen=True)
class UsualAnatomy:
    """Usual values of the foreground classes in the label maps of the labeled scans.

    volumes: median volume of each class, in the unit of ``ScanSummary.voxel``; None if a label map lacks the class
    is_one_piece: whether a class is one piece in every label map
    positions: range of the center of the whole foreground, then of each class; None if a label map lacks the class
    is_never_empty: whether every label map has foreground
    """

    volumes: tuple[float | None, ...]
    is_one_piece: tuple[bool, ...]
    positions: tuple[Range | None, ...]
    is_never_empty: bool

    @classmethod
    def of(cls, labeled: Sequence[ScanSummary]) -> "UsualAnatomy":
        """Collect the usual values of labeled scans."""
        volumes = _volumes(labeled)
        largest = np.array([scan.largest for scan in labeled])
        foreground = [scan.centers[0] for scan in labeled if scan.centers[0] is not None]
        class_centers = zip(*(scan.centers[1:] for scan in labeled), strict=True)
        return cls(
            volumes=tuple(float(np.median(values)) if values.all() else None for values in volumes.T),
            is_one_piece=tuple(bool((shares >= MIN_ONE_PIECE).all()) for shares in largest.T),
            positions=(_range(foreground), *(_range(centers) for centers in class_centers)),
            is_never_empty=len(foreground) == len(labeled),
        )

    def implausibility(self, scan: ScanSummary) -> str | None:
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
            if one_piece and largest < MIN_LARGEST_PIECE:
                return "scattered pieces"
        if any(_is_outside(center, usual) for center, usual in zip(scan.centers, self.positions, strict=True)):
            return "an unusual position"
        return "high uncertainty" if (scan.uncertainty or 0.0) > MAX_UNCERTAINTY else None


def _range(points: Sequence[Point | None]) -> Range | None:
    """Return the range of some points, or None if a point is missing or there are no points."""
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
        value < low - MAX_SHIFT or value > high + MAX_SHIFT for value, low, high in zip(center, *usual, strict=True)
    )


def implausible(labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary]) -> dict[str, str]:
    """Return why predictions are implausible, by the name of the scan. Plausible predictions are not included."""
    usual = UsualAnatomy.of(labeled)
    return {name: reason for name, scan in predicted.items() if (reason := usual.implausibility(scan)) is not None}


@dataclass(frozen=True)
class Excess:
    """A class that self-training learned where it is not, or forgot where it is.

    Both volumes are means over unlabeled scans, relative to the mean over all label maps.
    """

    index: int  # of the foreground classes
    volume: float
    other: float  # of the other network


def find_excess(
    labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary], other: Mapping[str, ScanSummary]
) -> Excess | None:
    """Find a class that some label maps lack and whose volume is clearly less usual than that of another network.

    Most rules need a class that every label map contains, because other volumes and positions have no usual range.
    """
    usual = _volumes(labeled)
    means = [_volumes(summaries.values()).mean(axis=0) for summaries in (predicted, other)]
    for index in _occasional_classes(usual):
        ratio, other_ratio = (max(float(mean[index] / usual[:, index].mean()), MIN_RATIO) for mean in means)
        if max(ratio, 1 / ratio) > MAX_FURTHER * max(other_ratio, 1 / other_ratio):
            return Excess(int(index), ratio, other_ratio)
    return None


def has_occasional_class(labeled: Sequence[ScanSummary]) -> bool:
    """Return whether there is a class that only some label maps contain."""
    return len(_occasional_classes(_volumes(labeled))) > 0


def _occasional_classes(volumes: NDArray[Any]) -> NDArray[np.intp]:
    return np.flatnonzero((volumes == 0).any(axis=0) & (volumes > 0).any(axis=0))


def _volumes(summaries: Iterable[ScanSummary]) -> NDArray[Any]:
    """Return the volumes of all scans (rows) and foreground classes (columns)."""
    return np.array([np.multiply(scan.volumes, scan.voxel) for scan in summaries])


def check_teacher(
    labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary], *, stage: int, may_extend: bool
) -> TeacherCheck:
    """Compare the predictions of unlabeled scans, by name, with the labeled scans, and decide what to do next."""
    rejected = implausible(labeled, predicted)
    plausible = [name for name in predicted if name not in rejected]
    is_trusted = len(rejected) <= MAX_REJECTED * len(predicted) and len(plausible) >= MIN_SCANS
    decision: Decision = "continue" if is_trusted else "extend" if may_extend else "skip"
    watched = {name: [int(volume) for volume in predicted[name].volumes] for name in plausible[:MAX_WATCHED]}
    return TeacherCheck(stage, len(predicted), rejected, decision, watched)


def drifted_class(
    before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], usual: Sequence[float | None]
) -> tuple[int, str] | None:
    """Return the index of the first foreground class that drifted, and how its volume changed; None without a drift.

    ``before`` and ``now`` are the volumes of the classes in each watched scan. ``usual`` is the usual volume of each
    class in all watched scans together, or None if it is unknown. All volumes are in voxels.
    """
    first, current = (np.array([volumes[name] for name in before]).sum(axis=0) for volumes in (before, now))
    for index, (old, new, expected) in enumerate(zip(first, current, usual, strict=True)):
        if old < MIN_DRIFT_VOXELS * len(before):
            continue
        expected = old if expected is None else expected
        if new * MAX_DRIFT < min(old, expected):
            return index, f"shrank to {new / old:.0%} of its volume"
        if new > MAX_DRIFT * max(old, expected):
            return index, f"grew to {new / old:.0%} of its volume"
    return None
