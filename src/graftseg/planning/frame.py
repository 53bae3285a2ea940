"""The space of prepared scans: slices or volumes, orientation, voxel spacing and size."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graftseg.data.checks.sets import SLICES_LAST, THICK_SLICES
from graftseg.planning.choices import Choice, Choices
from graftseg.planning.facts import Facts, anisotropy, is_sliced, shortest_axis, stacked_axis

ANISOTROPIC = 1.2
"""Above this ratio of voxel sides, the longest side becomes the last axis, so that rotations act on square pixels."""

ORDERS = {"ASR": (1, 2, 0), "RSA": (0, 2, 1), "RAS": (0, 1, 2)}
"""The axes of each orientation, as indices of the canonical axes: 0 right-left, 1 front-back, 2 head-foot."""


@dataclass(frozen=True)
class Frame:
    """The space of prepared scans. ``size`` and ``spacing`` describe a typical scan.

    Slices are stacked along the last axis. ``orientation`` is None for 2-D scans. ``voxels`` is the number of voxels
    of all prepared training scans.
    """

    dimensions: Literal[2, 3]
    orientation: str | None
    spacing: tuple[float, ...]
    size: tuple[int, ...]
    voxels: int
    choices: Choices

    @property
    def patch_size(self) -> tuple[int, ...]:
        """Return the size of the arrays from which patches are cropped: a slice or a complete volume."""
        return self.size[: self.dimensions]

    @property
    def is_stacked(self) -> bool:
        """Return whether a scan is a stack of slices, which the network sees one by one."""
        return len(self.size) > self.dimensions


def choose_frame(facts: Facts) -> Frame:
    """Choose the space of prepared scans."""
    cases = facts.fingerprint.training
    shapes, spacings = [case.shape for case in cases], [case.spacing for case in cases]
    if len(shapes[0]) == 2:
        return _frame(facts, 2, None, "the scans are 2-D", np.array(shapes), np.array(spacings))
    shapes, spacings = [case.canonical_shape for case in cases], [case.canonical_spacing for case in cases]
    stacked = Counter(stacked_axis(*pair) for pair in zip(shapes, spacings, strict=True)).most_common(1)[0][0]
    long, thin = anisotropy(spacings), shortest_axis(shapes)
    dimensions: Literal[2, 3] = 2 if is_sliced(shapes, spacings) else 3
    if dimensions == 3:
        widest = int(np.median(spacings, axis=0).argmax())
        stacked = widest if long > ANISOTROPIC else 2
        reason = f"volumes: {thin:g} voxels along the shortest axis, and voxels only {long:.1f} times as long as wide"
    elif long > THICK_SLICES:
        reason = f"slices: their distance is {long:.1f} times the pixel spacing, too much for 3-D patches"
    else:
        reason = f"slices: a typical volume has {thin:g} slices, too few for 3-D patches"
    orientation = SLICES_LAST[stacked]
    order = list(ORDERS[orientation])
    return _frame(facts, dimensions, orientation, reason, np.array(shapes)[:, order], np.array(spacings)[:, order])


def _frame(
    facts: Facts,
    dimensions: Literal[2, 3],
    orientation: str | None,
    reason: str,
    shapes: npt.NDArray[np.int64],
    spacings: npt.NDArray[np.float64],
) -> Frame:
    target = np.array([float(f"{step:.4g}") for step in np.median(spacings, axis=0)])
    if shapes.shape[1] > dimensions:
        # the distance between slices is never resampled
        kept = np.where(np.arange(3) < dimensions, target, spacings)
    else:
        kept = np.broadcast_to(target, spacings.shape)
    resampled = np.maximum(1, np.rint(shapes * spacings / kept)).astype(np.int64)
    size = tuple(int(n) for n in np.rint(np.median(resampled, axis=0)))
    spacing = tuple(float(step) for step in target[:dimensions])
    choices = {
        "data.dimensions": Choice(dimensions, reason),
        "data.spacing": Choice(list(spacing), _spacing_reason(facts, spacings, dimensions)),
        "data.orientation": Choice(orientation or "RAS", _orientation_reason(orientation, dimensions)),
    }
    voxels = int(resampled.prod(axis=1).sum())
    return Frame(dimensions, orientation, tuple(float(step) for step in target), size, voxels, choices)


def _spacing_reason(facts: Facts, spacings: npt.NDArray[np.float64], dimensions: int) -> str:
    low, high = spacings[:, :dimensions].min(axis=0), spacings[:, :dimensions].max(axis=0)
    count = facts.labeled + facts.unlabeled
    across = "; the distance between slices is kept" if spacings.shape[1] > dimensions else ""
    if np.allclose(low, high, rtol=0.01):
        return f"mm, the spacing of all {count} scans, within 1 %; scans with another spacing are resampled{across}"
    ranges = ", ".join(f"{a:.3g} to {b:.3g}" for a, b in zip(low, high, strict=True))
    return f"mm, the median of labeled and unlabeled scans along each axis (range {ranges}){across}"


def _orientation_reason(orientation: str | None, dimensions: int) -> str:
    if orientation is None:
        return "not used: 2-D scans keep their axes"
    if dimensions == 2:
        return "the last axis is perpendicular to the slices"
    if orientation == "RAS":
        return "all volumes get the same orientation"
    return (
        "all volumes get the same orientation; the longest voxel side is last, so that rotations act on square pixels"
    )
