"""Summaries of the cases of a data set: shapes, voxel spacings, intensities, classes and their connected pieces."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from graftseg.core.types import NEIGHBORS, Case, Split
from graftseg.data.grid import axis_codes, in_one_orientation
from graftseg.data.scans import Scan

PERCENTILES = (0.5, 5.0, 25.0, 50.0, 75.0, 95.0, 99.5)
SHIFT_LIMIT = 1.0  # larger values of ``intensity_shift`` are reported
Floats = npt.NDArray[np.float64]
SIZES_KEPT = 16
ISLAND_SHARE = 0.01  # of the largest piece
ISLAND_VOXELS = 10
ISLAND_CLASS_SHARE = 0.001  # of all voxels of the class


@dataclass(frozen=True)
class Pieces:
    """The connected components (pieces) of one class in one label map. Voxels connect at faces, edges and corners.

    An island, usually an annotation error, is smaller than ``ISLAND_SHARE`` of the largest piece. It also has at most
    ``ISLAND_VOXELS`` voxels or at most ``ISLAND_CLASS_SHARE`` of the class.
    """

    voxels: int
    count: int
    sizes: tuple[int, ...]  # voxel counts of the ``SIZES_KEPT`` largest pieces
    islands: int = 0
    island_voxels: int = 0
    island_sizes: tuple[int, int] = (0, 0)  # of the smallest and the largest island
    island_at: tuple[int, ...] | None = None  # a voxel of the largest island


@dataclass(frozen=True)
class CaseFingerprint:
    """Summary of one case, with an entry per channel in ``percentiles``, ``mean`` and ``std`` of the intensities."""

    name: str
    split: Split
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    orientation: str
    percentiles: tuple[tuple[float, ...], ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    label_counts: dict[int, int]  # number of voxels per label value, empty without a label
    content: str  # hash of the voxels as stored, independent of the file format
    pieces: dict[int, Pieces] = field(default_factory=dict)  # connected components per class
    oriented: str = ""  # hash of the voxels in RAS orientation, or equal to ``content``

    @property
    def class_sizes(self) -> dict[int, float]:
        """Size of each class in the label map: in ml, or in square millimeters for a 2-D scan."""
        unit = float(np.prod(self.spacing)) / (1000.0 if len(self.shape) == 3 else 1.0)
        return {value: count * unit for value, count in self.label_counts.items() if value > 0}

    @property
    def canonical_order(self) -> tuple[int, ...]:
        """Axes in the order right-left, anterior-posterior, superior-inferior."""
        ranks = ["RLAPSI".index(code) // 2 for code in self.orientation]
        return tuple(sorted(range(len(ranks)), key=ranks.__getitem__))

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """Shape in canonical axis order, to compare cases."""
        return tuple(self.shape[axis] for axis in self.canonical_order)

    @property
    def canonical_spacing(self) -> tuple[float, ...]:
        """Spacing in mm in canonical axis order, to compare cases."""
        return tuple(self.spacing[axis] for axis in self.canonical_order)


@dataclass(frozen=True)
class Fingerprint:
    """The summaries of all cases of a data set."""

    cases: tuple[CaseFingerprint, ...]

    def of(self, split: Split) -> tuple[CaseFingerprint, ...]:
        """Return the summaries of one split."""
        return tuple(case for case in self.cases if case.split == split)

    @property
    def training(self) -> tuple[CaseFingerprint, ...]:
        """Summaries of the labeled and unlabeled cases, on which a plan is based."""
        return self.of("labeled") + self.of("unlabeled")

    @property
    def label_counts(self) -> dict[int, int]:
        """Total voxel count per label value in the labeled cases."""
        total = sum((Counter(case.label_counts) for case in self.of("labeled")), Counter[int]())
        return dict(sorted(total.items()))


def fingerprint_case(case: Case, scan: Scan, label: Scan | None) -> CaseFingerprint:
    """Return the summary of a case from its scan ``(C, *space)`` and its label map ``(*space)``."""
    # adding zero turns -0.0 into 0.0, so that equal voxels have equal bytes
    voxels = scan.array.astype("<f4", order="C") + np.float32(0)
    percentiles = [np.percentile(channel, PERCENTILES) for channel in voxels]
    reoriented = in_one_orientation(voxels, scan.geometry)
    is_same = (reoriented.shape, reoriented.strides) == (voxels.shape, voxels.strides)
    content = _hash(voxels)
    return CaseFingerprint(
        name=case.name,
        split=case.split,
        shape=scan.geometry.shape,
        spacing=scan.geometry.spacing,
        orientation=axis_codes(scan.geometry),
        percentiles=tuple(tuple(float(level) for level in levels) for levels in percentiles),
        mean=tuple(float(channel.mean(dtype=np.float64)) for channel in voxels),
        std=tuple(float(channel.std(dtype=np.float64)) for channel in voxels),
        label_counts={} if label is None else _count(label.array),
        content=content,
        pieces={} if label is None else pieces_of(label.array),
        oriented=content if is_same else _hash(np.ascontiguousarray(reoriented)),
    )


def intensity_shift(
    labeled: Sequence[CaseFingerprint], unlabeled: Sequence[CaseFingerprint], *, standardized: bool = False
) -> float:
    r"""Return the intensity shift between two groups of cases, divided by the tolerated shift.

    With :math:`q_i` the percentiles of case i, :math:`Q` their median over a group (L: labeled, U: unlabeled),
    :math:`|\cdot|` the mean absolute difference over the percentiles, and n, m the sizes of the groups:

    .. math:: \frac{|Q_L - Q_U|}{w / 8 + 5 b \sqrt{1/n + 1/m}}

    w is a typical width of the intensity distribution. The width of a case is the mean absolute deviation of its
    percentiles from their mean. The width of a group is the median over its cases. w is the smaller group width.

    b is the typical distance of a scan from its group: the sum of :math:`|q_i - Q|` over both groups, divided by
    n + m - 2. b is limited to twice the median distance, so that a few scans with another scale do not hide a shift.
    With the factor 5, the second term of the denominator is about three standard errors of the numerator.

    At 0, the groups have equal median percentiles. Above ``SHIFT_LIMIT`` (1), they differ by more than an eighth of w
    and by more than chance explains. With few labeled cases and large differences between scans, a real shift may not
    be detected.

    ``standardized`` compares the cases after z-score normalization. Return the largest shift of the channels that every
    case has, or 0 if a group is empty.
    """
    if not labeled or not unlabeled:
        return 0.0
    first, second = _curves(labeled, standardized), _curves(unlabeled, standardized)
    channels = min(first.shape[1], second.shape[1])
    return max(_shift(first[:, channel], second[:, channel]) for channel in range(channels))


def _hash(voxels: npt.NDArray[np.float32]) -> str:
    content = hashlib.sha256(repr(voxels.shape).encode())
    content.update(voxels.data)
    return content.hexdigest()


def _count(labels: npt.NDArray[np.generic]) -> dict[int, int]:
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _curves(cases: Sequence[CaseFingerprint], standardized: bool) -> Floats:
    """Return percentiles ``(case, channel, percentile)`` of the channels that all cases have."""
    channels = min(len(case.percentiles) for case in cases)
    curves = np.array([case.percentiles[:channels] for case in cases])
    if not standardized:
        return curves
    mean = np.array([case.mean[:channels] for case in cases])[..., None]
    std = np.array([case.std[:channels] for case in cases])[..., None]
    scaled: Floats = (curves - mean) / np.where(std > 0, std, 1.0)
    return scaled


def _shift(first: Floats, second: Floats) -> float:
    """Evaluate the formula of ``intensity_shift`` for percentiles ``(case, percentile)`` of two groups."""
    groups = (first, second)
    centers = [np.median(group, axis=0) for group in groups]
    distance = float(np.abs(centers[0] - centers[1]).mean())
    width = min(np.median(np.abs(group - group.mean(axis=1, keepdims=True)).mean(axis=1)) for group in groups)
    pairs = zip(groups, centers, strict=True)
    distances = np.concatenate([np.abs(group - center).mean(axis=1) for group, center in pairs])
    between = min(distances.sum() / max(1, len(distances) - 2), 2 * np.median(distances))
    tolerance = float(width / 8 + 5 * between * np.sqrt(1 / len(first) + 1 / len(second)))
    if tolerance == 0:
        return 0.0 if distance == 0 else float("inf")
    return distance / tolerance


def pieces_of(labels: NDArray[Any]) -> dict[int, Pieces]:
    """Return the pieces of every class of a label map ``(*space)``, by label value."""
    import cc3d

    box = foreground_box(labels)
    if box is None:
        return {}
    inner, corner = labels[box], tuple(part.start for part in box)
    numbered = cc3d.connected_components(np.ascontiguousarray(inner), connectivity=NEIGHBORS[inner.ndim, inner.ndim])
    inside = inner > 0
    numbers, values = numbered[inside], inner[inside]
    sizes = np.bincount(numbers)
    class_of = np.zeros(len(sizes), dtype=np.int64)
    class_of[numbers] = values
    pieces = {}
    for value in np.unique(class_of[1:]):
        members = np.flatnonzero(class_of == value)
        members = members[np.argsort(-sizes[members], kind="stable")]
        pieces[int(value)] = _pieces(members, sizes[members], numbered, corner)
    return pieces


def _pieces(members: NDArray[Any], sizes: NDArray[Any], numbered: NDArray[Any], corner: tuple[int, ...]) -> Pieces:
    """Describe the pieces numbered ``members``, which are sorted by size, largest first."""
    total = int(sizes.sum())
    kept = tuple(int(size) for size in sizes[:SIZES_KEPT])
    small = (sizes < ISLAND_SHARE * sizes[0]) & (sizes <= max(ISLAND_VOXELS, ISLAND_CLASS_SHARE * total))
    if not small.any():
        return Pieces(total, len(members), kept)
    first = np.unravel_index(int((numbered == members[small][0]).argmax()), numbered.shape)
    largest_island_at = tuple(int(index) + offset for index, offset in zip(first, corner, strict=True))
    islands = sizes[small]
    extremes = (int(sizes[-1]), int(islands[0]))
    return Pieces(total, len(members), kept, len(islands), int(islands.sum()), extremes, largest_island_at)


def foreground_box(labels: NDArray[Any]) -> tuple[slice, ...] | None:
    """Return the smallest box that contains all foreground of a label map ``(*space)``, or None without foreground."""
    inside = labels > 0
    box = []
    for axis in range(labels.ndim):
        filled = np.flatnonzero(inside.any(axis=tuple(other for other in range(labels.ndim) if other != axis)))
        if not len(filled):
            return None
        box.append(slice(int(filled[0]), int(filled[-1]) + 1))
    return tuple(box)
