"""The space of prepared scans: slices or volumes, orientation, voxel spacing and size."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graftseg.data.checks.consistency import SLICES_LAST, THICK_SLICES
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, Shapes, Spacings, anisotropy, is_sliced, shortest_axis, stacked_axis
from graftseg.planning.label_detail import coarse_spacing

ANISOTROPIC = 1.2
"""For a larger ratio of voxel sides, the axis of the longest side is last, so that rotations act on square pixels."""

ORDERS = {"ASR": (1, 2, 0), "RSA": (0, 2, 1), "RAS": (0, 1, 2)}
"""The axes of each orientation, as indices of the canonical axes: 0 right-left, 1 front-back, 2 head-foot."""


@dataclass(frozen=True)
class Frame:
    """The space of prepared scans. Slices are stacked along the last axis.

    dimensions: 2 to train on slices, 3 to train on volumes
    orientation: direction of the axes, None for 2-D scans
    spacing: spacing of a typical scan in mm
    size: number of voxels of a typical scan along each axis
    voxels: number of voxels of all training scans together
    """

    dimensions: Literal[2, 3]
    orientation: str | None
    spacing: tuple[float, ...]
    size: tuple[int, ...]
    voxels: int
    choices: Choices

    @property
    def image_size(self) -> tuple[int, ...]:
        """Return the size of the typical slice or volume from which patches are cropped."""
        return self.size[: self.dimensions]

    @property
    def is_stacked(self) -> bool:
        """Return whether a scan is a stack of slices, which the network sees one by one."""
        return len(self.size) > self.dimensions


def choose_frame(facts: Facts, factor: float = 1.0) -> Frame:
    """Choose the space of prepared scans.

    A ``factor`` above 1 lowers the resolution: sides that are shorter than ``factor`` times the shortest median side
    get this length. The distance between slices is kept.
    """
    cases = facts.fingerprint.training
    dimensions: Literal[2, 3]
    orientation: str | None = None
    if len(cases[0].shape) == 2:
        dimensions, reason = 2, "the scans are 2-D"
        shapes, spacings = np.array([case.shape for case in cases]), np.array([case.spacing for case in cases])
    else:
        sizes, sides = [case.canonical_shape for case in cases], [case.canonical_spacing for case in cases]
        dimensions, orientation, reason = _layout_of_volumes(sizes, sides)
        order = list(ORDERS[orientation])
        shapes, spacings = np.array(sizes)[:, order], np.array(sides)[:, order]
    usual = np.median(spacings, axis=0)
    usual[:dimensions] = coarse_spacing(usual[:dimensions].tolist(), factor)
    target = np.array([float(f"{side:.4g}") for side in usual])
    # scans are never resampled across slices
    prepared_spacings = np.where(np.arange(shapes.shape[1]) < dimensions, target, spacings)
    resampled = np.maximum(1, np.rint(shapes * spacings / prepared_spacings)).astype(np.int64)
    size = tuple(int(n) for n in np.rint(np.median(resampled, axis=0)))
    spacing = tuple(float(step) for step in target[:dimensions])
    choices = {
        "data.dimensions": Choice(dimensions, reason),
        "data.spacing": Choice(list(spacing), _spacing_reason(facts, spacings, dimensions)),
        "data.orientation": Choice(orientation or "RAS", _orientation_reason(orientation, dimensions)),
    }
    voxels = int(resampled.prod(axis=1).sum())
    return Frame(dimensions, orientation, tuple(float(step) for step in target), size, voxels, choices)


def _layout_of_volumes(shapes: Shapes, spacings: Spacings) -> tuple[Literal[2, 3], str, str]:
    """Return whether volumes are treated as slices (2) or as volumes (3), the direction of the axes, and the reason."""
    ratio, length = anisotropy(spacings), shortest_axis(shapes)
    if not is_sliced(shapes, spacings):
        last_axis = int(np.median(spacings, axis=0).argmax()) if ratio > ANISOTROPIC else 2
        size = f"{length:g} voxels along the shortest axis"
        return 3, SLICES_LAST[last_axis], f"volumes: {size}, and voxels only {ratio:.1f} times as long as wide"
    last_axis = Counter(stacked_axis(*pair) for pair in zip(shapes, spacings, strict=True)).most_common(1)[0][0]
    if ratio > THICK_SLICES:
        reason = f"slices: their distance is {ratio:.1f} times the pixel spacing, too much for 3-D patches"
        return 2, SLICES_LAST[last_axis], reason
    return 2, SLICES_LAST[last_axis], f"slices: a typical volume has {length:g} slices, too few for 3-D patches"


def _spacing_reason(facts: Facts, spacings: npt.NDArray[np.float64], dimensions: int) -> str:
    low, high = spacings[:, :dimensions].min(axis=0), spacings[:, :dimensions].max(axis=0)
    count = facts.labeled_count + facts.unlabeled_count
    across = "; the distance between slices is kept" if spacings.shape[1] > dimensions else ""
    if np.allclose(low, high, rtol=0.01):
        return f"mm, the spacing of all {count} training scans within 1 %; other scans are resampled to it{across}"
    ranges = ", ".join(f"{a:.3g} to {b:.3g}" for a, b in zip(low, high, strict=True))
    return f"mm, the median of labeled and unlabeled scans along each axis (range {ranges}){across}"


def _orientation_reason(orientation: str | None, dimensions: int) -> str:
    if orientation is None:
        return "not used: 2-D scans keep their axes"
    if dimensions == 2:
        return "the last axis is perpendicular to the slices"
    same = "all volumes get the same orientation"
    square = "the longest voxel side is last, so that rotations act on square pixels"
    return same if orientation == "RAS" else f"{same}; {square}"
