"""Fingerprints: summaries of cases with shape, spacing, orientation, intensities, classes and their pieces."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from graftseg.core.types import Case, Split
from graftseg.data.grid import axis_codes, ras_view
from graftseg.data.pieces import Pieces, pieces_of
from graftseg.data.scans import Scan

PERCENTILES = (0.5, 5.0, 25.0, 50.0, 75.0, 95.0, 99.5)


@dataclass(frozen=True)
class CaseFingerprint:
    """Summary of one case. ``percentiles``, ``mean`` and ``std`` describe the intensities of each channel."""

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
    oriented: str = ""  # hash of the voxels after reorientation to RAS

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
    reoriented = ras_view(voxels, scan.geometry)
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


def _hash(voxels: npt.NDArray[np.float32]) -> str:
    content = hashlib.sha256(repr(voxels.shape).encode())
    content.update(voxels.data)
    return content.hexdigest()


def _count(labels: npt.NDArray[np.generic]) -> dict[int, int]:
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
