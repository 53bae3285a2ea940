"""The orientation of slices on a page, with marks for the patient's sides if they are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from graftseg.core.types import Geometry
from graftseg.data.slices import Cut
from graftseg.data.store import Store, StoredCase
from graftseg.reporting.pictures import Plane

Marks = tuple[str, str]  # the patient's sides at the left and the right edge of a picture
VIEWS = (
    "sagittal slices with the patient's front (A) on the left and the head on top",
    "coronal slices with the patient's right (R) on the left and the head on top",
    "axial slices with the patient's right (R) on the left and the front on top",
)
SIDES: tuple[Marks, ...] = (("A", "P"), ("R", "L"), ("R", "L"))
SIDES_UNKNOWN = "All slices on this page have the same orientation, but the patient's left and right side are unknown."
AS_STORED = "2-D scans are shown as stored."
MIRRORED = "Training flipped and rotated these images at random"
TURNED = "Training rotated these images by large random angles"
MAX_ANGLE = 45  # largest rotation in degrees after which the same side of the patient is still on the left


@dataclass(frozen=True)
class Orientation:
    """The orientation of the arrays that a run was trained on. By default, it is unknown."""

    # directions of the three axes, such as ``RAS``; None for 2-D scans and for volumes of unknown orientation
    codes: str | None = None
    is_volume: bool = False  # false only if the arrays are known to be 2-D scans
    is_placed: bool = False  # whether every scan file contains its position in the patient
    is_mirrored: bool = False  # whether training flipped images or rotated them by multiples of 90 degrees
    is_turned: bool = False  # whether training rotated images by large angles
    spacing: tuple[float, float] = (1.0, 1.0)  # spacing of the first two axes in mm
    channels: int = 1  # number of channels; the first one is shown

    def scan_cut(self, geometry: Geometry) -> Cut:
        """Return how to slice a scan: across its largest spacing, or as stored if the orientation is unknown."""
        return Cut.as_stored(geometry) if self.codes is None else Cut.across_largest_spacing(geometry)

    def scan_marks(self, cut: Cut, geometry: Geometry) -> Marks | None:
        """Return the marks of a slice of a scan, if its orientation is known."""
        return None if self.codes is None or cut.axis is None or not geometry.is_placed else SIDES[cut.axis]

    @property
    def training_cut(self) -> Cut | None:
        """Return how to slice training arrays across their last axis, or None to show slices as stored."""
        if self.codes is None:
            return None
        affine = np.zeros((4, 4))
        for axis, (code, step) in enumerate(zip(self.codes, (*self.spacing, 1.0), strict=True)):
            affine["RLAPSI".index(code) // 2, axis] = step if code in "RAS" else -step
        affine[3, 3] = 1.0
        return Cut.across(Geometry((1, 1, 1), tuple(tuple(row) for row in affine.tolist())), 2)

    def training_plane(self, plane: Plane) -> Plane:
        """Return a slice of a training array in the orientation of the page."""
        cut = self.training_cut
        return plane.T if cut is None else cut.plane(plane[:, :, None], 0)

    @property
    def training_aspect(self) -> float:
        """Return the height of a pixel of a training slice divided by its width."""
        return 1.0 if self.training_cut is None else self.training_cut.aspect

    def training_marks(self, *, augmented: bool) -> Marks | None:
        """Return the marks of a training slice, if its orientation is known. ``augmented`` images may be turned."""
        cut = self.training_cut
        if cut is None or cut.axis is None or not self.is_placed or (augmented and self._disoriented):
            return None
        return SIDES[cut.axis]

    def training_sentence(self, *, augmented: bool) -> str:
        """Return a sentence on the orientation of training slices."""
        if augmented and self._disoriented:
            marks = ", so they have no marks" if self.is_volume else ""
            return self.with_channel(f"{self._disoriented}{marks}.")
        cut = self.training_cut
        return self.with_channel(view_sentence([] if cut is None else [cut.axis], self.is_volume, self.is_placed))

    @property
    def _disoriented(self) -> str | None:
        """Return a clause about the augmentation that would make marks wrong, or None if there is none."""
        return MIRRORED if self.is_mirrored else TURNED if self.is_turned else None

    def with_channel(self, sentence: str) -> str:
        """Append a sentence on the shown channel, if there are several channels."""
        return f"{sentence} The first of {self.channels} channels is shown." if self.channels > 1 else sentence


def view_sentence(axes: Iterable[int | None], is_volume: bool, is_known: bool) -> str:
    """Return a sentence on the orientation of slices that are perpendicular to these axes of the patient."""
    distinct = sorted({axis for axis in axes if axis is not None}, reverse=True)
    if not is_volume:
        return AS_STORED
    if not distinct or not is_known:
        return SIDES_UNKNOWN
    return f"Radiological view: {'; '.join(VIEWS[axis] for axis in distinct)}."


def orientation_of(
    recipe: dict[str, Any] | None, store: Store | None, has_volumes: bool | None, channels: int = 1
) -> Orientation:
    """Derive the orientation from the recipe of a run, its store if it still exists, and its predictions.

    ``has_volumes`` says whether the tested scans are volumes, or is None if nothing was tested. Without a test, only
    the store shows whether a 2-D network was trained on slices of volumes.
    """
    data, batches = ((recipe or {}).get(name, {}) for name in ("data", "batches"))
    augment = batches.get("augment", {})
    cases: tuple[StoredCase, ...] = () if store is None else store.cases
    is_volume = data.get("dimensions") == 3 or bool(has_volumes) or any(len(case.shape) == 3 for case in cases)
    could_be_volume = store is None and has_volumes is None
    return Orientation(
        codes=data.get("orientation") if is_volume else None,
        is_volume=is_volume or could_be_volume,
        is_placed=bool(cases) and all(case.geometry.is_placed for case in cases),
        is_mirrored=augment.get("rotate_flip", 0) > 0,
        is_turned=augment.get("rotate", 0) > 0 and augment.get("degrees", 0) > MAX_ANGLE,
        spacing=_spacing(data.get("spacing"), cases) if batches.get("fit") != "stretch" else (1.0, 1.0),
        channels=channels,
    )


def _spacing(steps: Sequence[float | None] | None, cases: Sequence[StoredCase]) -> tuple[float, float]:
    """Return the spacing of two axes from the recipe, else the median over the scans, else 1 mm."""
    first, second = [*(steps or ()), None, None][:2]
    if not cases and not (first and second):
        return 1.0, 1.0

    def median_spacing(axis: int) -> float:
        return median(case.grid.prepared_spacing[axis] for case in cases)

    return float(first or median_spacing(0)), float(second or median_spacing(1))
