"""The detail of label maps that is left at a lower resolution."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

FACTORS = (1.25, 1.5, 2.0, 2.5, 3.0)
"""Lower resolutions: the shortest voxel side, relative to the scan."""

Detail = tuple[float, ...]
"""The Dice of a class after resampling to each of ``FACTORS`` and back."""


def coarse_spacing(spacing: Sequence[float], factor: float) -> tuple[float, ...]:
    """Return the spacing after lengthening the short voxel sides to ``factor`` times the shortest one."""
    return tuple(max(side, factor * min(spacing)) for side in spacing)


def detail_of(label: npt.NDArray[Any], spacing: Sequence[float], stacked: int | None) -> dict[int, Detail]:
    """Return the detail of each class of a label map. The axis ``stacked`` keeps its resolution."""
    voxels = np.nonzero(label)
    if not len(voxels[0]):
        return {}
    in_plane = [axis for axis in range(label.ndim) if axis != stacked]
    margin = int(np.ceil(max(FACTORS)))
    box = [slice(max(0, int(line.min()) - margin), int(line.max()) + 1 + margin) for line in voxels]
    original = label[tuple(box)]
    scores: dict[int, list[float]] = {int(value): [] for value in np.unique(original) if value}
    for factor in FACTORS:
        indices = [np.arange(n) for n in label.shape]
        for axis, side in zip(in_plane, coarse_spacing([spacing[axis] for axis in in_plane], factor), strict=True):
            indices[axis] = _there_and_back(label.shape[axis], side / spacing[axis])
        coarse = label[np.ix_(*(line[part] for line, part in zip(indices, box, strict=True)))]
        for value, found in scores.items():
            either = int((original == value).sum()) + int((coarse == value).sum())
            found.append(2 * int(((original == value) & (coarse == value)).sum()) / either)
    return {value: tuple(found) for value, found in scores.items()}


def lowest_detail(cases: Iterable[Mapping[int, Detail]]) -> Detail:
    """Return the detail of the worst class at each of ``FACTORS``, as the mean over the cases with this class."""
    by_class: dict[int, list[Detail]] = {}
    for case in cases:
        for value, detail in case.items():
            by_class.setdefault(value, []).append(detail)
    means = [tuple(fmean(column) for column in zip(*details, strict=True)) for details in by_class.values()]
    return tuple(min(column) for column in zip(*means, strict=True))


def _there_and_back(size: int, ratio: float) -> npt.NDArray[np.int64]:
    """Return which voxel each voxel of an axis becomes after nearest-neighbor resampling to a lower resolution."""
    coarse_size = max(1, round(size / ratio))
    coarse = (2 * np.arange(size) + 1) * coarse_size // (2 * size)
    return (2 * coarse + 1) * size // (2 * coarse_size)
