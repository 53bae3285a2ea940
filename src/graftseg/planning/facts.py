"""The facts about scans that a plan depends on. Only training scans are read, never test scans or their labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.files import read_json
from graftseg.core.phrases import class_name
from graftseg.core.progress import in_parallel
from graftseg.core.types import Case
from graftseg.data.checks.consistency import THICK_SLICES
from graftseg.data.checks.labels import left_right_centers
from graftseg.data.dataset import Dataset, same_in_all_cases
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint, fingerprint_case
from graftseg.data.labels import EMPTY_LABELS_REMEDY, checked_values, refuse_class_list
from graftseg.data.pieces import Pieces, pieces_of
from graftseg.data.swapped_files import read_label_of
from graftseg.planning.label_detail import Detail, detail_of, lowest_detail

MAX_SAMPLES = 20_000
"""Maximum number of sampled foreground voxels per case."""
MIN_IN_PIECES = 0.99
"""Minimum fraction of the voxels of a class in its largest piece to count as one piece, or in its N large pieces to
count as N pieces."""
MIN_LARGE_PIECE = 0.2
"""Minimum size of a large piece, relative to the largest piece."""
MIN_SLICES = 16
"""Volumes with fewer voxels along an axis are too thin for 3-D patches."""

Floats = npt.NDArray[np.float32]
Shapes = Sequence[Sequence[int]]
Spacings = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Foreground:
    """The intensities of a sample of the foreground voxels in the labeled scans.

    low: 0.5th percentile
    high: 99.5th percentile
    std: standard deviation after clipping to these percentiles
    """

    low: float
    high: float
    std: float


@dataclass(frozen=True)
class PieceCount:
    """The pieces of a class in label maps or slices.

    total: number of label maps or slices with the class
    single: number of these in which the class is one piece
    large: numbers of large pieces that occur in these; 0 if much of the class is outside its large pieces
    """

    total: int = 0
    single: int = 0
    large: frozenset[int] = frozenset()

    @classmethod
    def of(cls, pieces: Pieces) -> "PieceCount":
        """Count one label map or slice."""
        large = [size for size in pieces.sizes if size >= MIN_LARGE_PIECE * pieces.sizes[0]]
        number = len(large) if sum(large) >= MIN_IN_PIECES * pieces.voxels else 0
        return cls(1, int(pieces.sizes[0] >= MIN_IN_PIECES * pieces.voxels), frozenset({number}))

    @property
    def share(self) -> float:
        """Return the fraction of these label maps or slices in which the class is one piece."""
        return self.single / self.total if self.total else 0.0

    def __add__(self, other: "PieceCount") -> "PieceCount":
        return PieceCount(self.total + other.total, self.single + other.single, self.large | other.large)


@dataclass(frozen=True)
class Facts:
    """All facts that a plan depends on.

    fingerprint: summaries of the labeled and unlabeled scans
    classes: names of all classes, including the background
    channel_names: channel names in ``dataset.json``, if there are any
    foreground: intensities of foreground voxels
    pieces: pieces of each class in label maps
    slice_pieces: pieces of each class in single slices
    test_count: number of test scans with labels
    has_layout: whether the scans are in one folder with a known layout, not in separate folders for images and labels
    left_right: for each labeled volume, the center of every class from 0 (left edge) to 1 (right edge)
    label_detail: detail of the labels at lower resolutions, of the class that loses most
    """

    fingerprint: Fingerprint
    classes: tuple[str, ...]
    channel_names: tuple[str, ...] = ()
    foreground: Foreground | None = None
    pieces: tuple[PieceCount, ...] = ()
    slice_pieces: tuple[PieceCount, ...] = ()
    test_count: int = 0
    has_layout: bool = True
    left_right: tuple[dict[int, float], ...] = ()
    label_detail: Detail = ()

    @property
    def has_test(self) -> bool:
        """Return whether there are test scans with labels."""
        return self.test_count > 0

    @property
    def labeled_count(self) -> int:
        """Return the number of labeled scans."""
        return len(self.fingerprint.of("labeled"))

    @property
    def unlabeled_count(self) -> int:
        """Return the number of unlabeled scans."""
        return len(self.fingerprint.of("unlabeled"))

    @property
    def occasional_classes(self) -> tuple[int, ...]:
        """Return the classes that only some label maps contain."""
        counts = {value: self.pieces[value].total for value in range(1, len(self.pieces))}
        return tuple(value for value, count in counts.items() if 0 < count < self.labeled_count)

    @property
    def channels(self) -> int:
        """Return the number of channels of a scan."""
        return len(self.fingerprint.training[0].mean)


def facts_of(dataset: Dataset, *, workers: int | None = None) -> Facts:
    """Read every training scan once and collect the facts."""
    dataset.refuse_problems()
    refuse_class_list(dataset)
    cases = dataset.of("labeled") + dataset.of("unlabeled")
    case_facts = in_parallel(partial(_read_case, dataset), cases, "Reading scans", workers)
    fingerprint = Fingerprint(tuple(case.fingerprint for case in case_facts))
    same_in_all_cases([len(case.shape) for case in fingerprint.cases], cases, "axes")
    same_in_all_cases([len(case.mean) for case in fingerprint.cases], cases, "channels")
    count = _class_count(dataset, fingerprint)
    names = tuple(dataset.classes.values()) or tuple(map(class_name, range(count)))
    return Facts(
        fingerprint,
        names,
        channel_names_in(dataset.root),
        _foreground([case.foreground for case in case_facts]),
        _total([case.pieces for case in case_facts], count),
        _total([case.slice_pieces for case in case_facts], count),
        test_count=sum(case.label is not None for case in dataset.of("test")),
        has_layout=dataset.layout != "plain",
        left_right=tuple(case.left_right for case in case_facts if case.left_right),
        label_detail=lowest_detail(case.label_detail for case in case_facts),
    )


def channel_names_in(root: Path) -> tuple[str, ...]:
    """Return the channel names in ``dataset.json``, in order, or an empty tuple if there are none."""
    path = root / "dataset.json"
    content = read_json(path) if path.is_file() else {}
    names = content.get("channel_names", content.get("modality")) if isinstance(content, dict) else None
    if not isinstance(names, dict) or not all(re.fullmatch(r"\d+", str(key)) for key in names):
        return ()
    # a plan shows each name in a one-line comment
    return tuple(in_one_line(str(names[key])) for key in sorted(names, key=int))


def anisotropy(spacings: Spacings) -> float:
    """Return the median ratio of the longest to the shortest side of a voxel."""
    return median(_side_ratio(spacing) for spacing in spacings)


def _side_ratio(spacing: Sequence[float]) -> float:
    """Return the ratio of the longest to the shortest side of a voxel, rounded to remove float errors of the affine."""
    return round(max(spacing) / min(spacing), 3)


def shortest_axis(shapes: Shapes) -> float:
    """Return the median number of voxels along the shortest axis."""
    return median(min(shape) for shape in shapes)


def is_sliced(shapes: Shapes, spacings: Spacings) -> bool:
    """Return whether to treat volumes as slices, because slices are thick or an axis has few voxels."""
    return len(shapes[0]) == 3 and (anisotropy(spacings) > THICK_SLICES or shortest_axis(shapes) < MIN_SLICES)


def stacked_axis(shape: Sequence[int], spacing: Sequence[float]) -> int:
    """Return the axis perpendicular to the slices: the axis with the largest spacing, or with the fewest voxels.

    The spacing decides if slices are thick. Of several equal axes, return the last.
    """
    has_thick_slices = _side_ratio(spacing) > THICK_SLICES
    scores = list(spacing) if has_thick_slices else [-voxels for voxels in shape]
    return max(range(len(scores)), key=lambda axis: (scores[axis], axis))


@dataclass(frozen=True)
class _CaseFacts:
    """The facts about one case. ``foreground`` is a sample of foreground intensities."""

    fingerprint: CaseFingerprint
    foreground: Floats
    pieces: dict[int, PieceCount]
    slice_pieces: dict[int, PieceCount]
    left_right: dict[int, float] = field(default_factory=dict)
    label_detail: dict[int, Detail] = field(default_factory=dict)


def _read_case(dataset: Dataset, case: Case) -> _CaseFacts:
    scan = dataset.reader.image(case)
    if case.label is None:
        return _CaseFacts(fingerprint_case(case, scan, None), np.zeros(0, np.float32), {}, {})
    label = read_label_of(dataset, case, scan)
    checked_values(dataset, case, scan.geometry, label)
    summary = fingerprint_case(case, scan, label)
    piece_counts = {value: PieceCount.of(pieces) for value, pieces in summary.pieces.items()}
    is_stack = is_sliced([summary.shape], [summary.spacing])
    return _CaseFacts(
        summary,
        _sample(scan.array, label.array),
        piece_counts,
        _slice_pieces(summary, label.array) if is_stack else {},
        left_right_centers(summary, label.array),
        detail_of(label.array, summary.spacing, stacked_axis(summary.shape, summary.spacing) if is_stack else None),
    )


def _slice_pieces(summary: CaseFingerprint, label: npt.NDArray[Any]) -> dict[int, PieceCount]:
    """Count the pieces of each class in the slices of a volume."""
    counts: dict[int, PieceCount] = {}
    for plane in np.moveaxis(label, stacked_axis(summary.shape, summary.spacing), 0):
        for value, pieces in pieces_of(plane).items():
            counts[value] = counts.get(value, PieceCount()) + PieceCount.of(pieces)
    return counts


def _sample(image: npt.NDArray[Any], label: npt.NDArray[Any]) -> Floats:
    """Return the intensities of a reproducible sample of foreground voxels."""
    inside = np.flatnonzero(label)
    if len(inside) > MAX_SAMPLES:
        inside = np.random.default_rng(len(inside)).choice(inside, MAX_SAMPLES, replace=False)
    return image.reshape(len(image), -1)[:, inside].astype(np.float32).ravel()


def _foreground(samples: Sequence[Floats]) -> Foreground | None:
    values = np.concatenate(samples).astype(np.float64)
    if not len(values):
        return None
    low, high = np.percentile(values, (0.5, 99.5))
    return Foreground(float(low), float(high), float(values.clip(low, high).std()))


def _total(counts: Sequence[dict[int, PieceCount]], classes: int) -> tuple[PieceCount, ...]:
    """Add up the counts of all cases by class. The background is never counted."""
    return tuple(sum((case.get(value, PieceCount()) for case in counts), PieceCount()) for value in range(classes))


def _class_count(dataset: Dataset, fingerprint: Fingerprint) -> int:
    largest_value = max(fingerprint.label_counts, default=0)
    if largest_value == 0:
        raise UserError(Code.LABELS_EMPTY, dataset.root, "all label maps are empty", EMPTY_LABELS_REMEDY)
    return max(len(dataset.classes), largest_value + 1)
