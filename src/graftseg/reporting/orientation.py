"""How slices lie on a page: all in one way, with marks for the patient's sides where these are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from graftseg.core.types import Geometry
from graftseg.data.slices import Cut
from graftseg.data.store import Store, StoredCase
from graftseg.reporting.pictures import Plane

Marks = tuple[str, str]
"""Where the left and the right edge of a picture lie in the patient."""
VIEWS = (
    "sagittal slices with the patient's front (A) on the left and the head on top",
    "coronal slices with the patient's right (R) on the left and the head on top",
    "axial slices with the patient's right (R) on the left and the front on top",
)
SIDES: tuple[Marks, ...] = (("A", "P"), ("R", "L"), ("R", "L"))
UNTOLD = "All slices of this page are turned alike; which side is the patient's right is not known of them."
UPRIGHT = "Pictures are shown upright, as they are stored."
MIRRORED = "Training turned and mirrored these at random"
TURNED = "Training turned these at random by large angles"
STEEP = 45
"""Degrees; turned further, a slice has another side of the patient on its left."""


@dataclass(frozen=True)
class Orientation:
    """What is known of the arrays that a run was trained on.

    ``codes`` say where the three axes point, such as ``RAS``; None for pictures, and for volumes that nobody knows it
    of. ``is_volume``: not known to be pictures. ``is_placed``: whether every file told where its voxels lie.
    ``spacing`` is that of the first two axes, in mm. Of several ``channels`` the first is shown.
    """

    codes: str | None = None
    is_volume: bool = False
    is_placed: bool = False
    is_mirrored: bool = False
    is_turned: bool = False
    spacing: tuple[float, float] = (1.0, 1.0)
    channels: int = 1

    def cut(self, geometry: Geometry) -> Cut:
        """How a scan is cut, so that it lies as what the network was shown does."""
        return Cut.as_stored(geometry) if self.codes is None else Cut.through(geometry)

    def sides(self, cut: Cut, geometry: Geometry) -> Marks | None:
        """Which sides of the patient a slice of a scan has on its left and right, if that is known."""
        return None if self.codes is None or cut.axis is None or not geometry.is_placed else SIDES[cut.axis]

    @property
    def trained(self) -> Cut | None:
        """How slices across the last axis of the arrays lie; None where they are shown as they are."""
        if self.codes is None:
            return None
        affine = np.zeros((4, 4))
        for axis, (code, step) in enumerate(zip(self.codes, (*self.spacing, 1.0), strict=True)):
            affine["RLAPSI".index(code) // 2, axis] = step if code in "RAS" else -step
        affine[3, 3] = 1.0
        return Cut.across(Geometry((1, 1, 1), tuple(tuple(row) for row in affine.tolist())), 2)

    def plane(self, plane: Plane) -> Plane:
        """A slice of the network's arrays as it is shown."""
        cut = self.trained
        return plane.T if cut is None else cut.plane(plane[:, :, None], 0)

    @property
    def aspect(self) -> float:
        """How high a pixel of such a slice is by its width."""
        return 1.0 if self.trained is None else self.trained.aspect

    def marks(self, *, augmented: bool) -> Marks | None:
        """The marks of such a slice, where it is known how it lies."""
        cut = self.trained
        if cut is None or cut.axis is None or not self.is_placed or (augmented and self._moved):
            return None
        return SIDES[cut.axis]

    def said(self, *, augmented: bool) -> str:
        """How slices of what the network was shown are to be seen."""
        if augmented and self._moved:
            return self.with_channel(f"{self._moved}{', so that they have no marks' if self.is_volume else ''}.")
        cut = self.trained
        return self.with_channel(seen_from([] if cut is None else [cut.axis], self.is_volume, self.is_placed))

    @property
    def _moved(self) -> str | None:
        """What training did to its images that no mark would stay true after, if anything."""
        return MIRRORED if self.is_mirrored else TURNED if self.is_turned else None

    def with_channel(self, sentence: str) -> str:
        """A sentence on pictures, and which channel they show where there are several."""
        return f"{sentence} Of {self.channels} channels the first is shown." if self.channels > 1 else sentence


NOWHERE = Orientation()
"""Of which nothing is known: shown as it is stored."""


def seen_from(axes: Iterable[int | None], is_volume: bool, is_known: bool) -> str:
    """How slices across these axes are to be seen, and whether the patient's sides are known of them."""
    across = sorted({axis for axis in axes if axis is not None}, reverse=True)
    if not is_volume:
        return UPRIGHT
    if not across or not is_known:
        return UNTOLD
    return f"As in radiology: {'; '.join(VIEWS[axis] for axis in across)}."


def orientation_of(
    recipe: dict[str, Any] | None, store: Store | None, has_volumes: bool | None, channels: int = 1
) -> Orientation:
    """What is known from the settings of a run, its store if that is still there, and whether it predicted volumes.

    ``has_volumes`` is None where nothing was tested: a 2-D run without its store may then be one of pictures or of
    volumes. The arrays of a run have the orientation that its recipe names: training refuses others.
    """
    data, batches = (_part(recipe, name) for name in ("data", "batches"))
    cases: tuple[StoredCase, ...] = () if store is None else store.cases
    is_volume = data.get("dimensions") == 3 or bool(has_volumes) or any(len(case.shape) == 3 for case in cases)
    is_open = not is_volume and store is None and has_volumes is None
    codes = data.get("orientation")
    augment = _part(batches, "augment")
    return Orientation(
        codes=codes if is_volume and isinstance(codes, str) else None,
        is_volume=is_volume or is_open,
        is_placed=bool(cases) and all(case.geometry.is_placed for case in cases),
        is_mirrored=_above(augment.get("rotate_flip"), 0),
        is_turned=_above(augment.get("rotate"), 0) and _above(augment.get("degrees"), STEEP),
        spacing=_spacing(data.get("spacing"), cases) if batches.get("fit") != "stretch" else (1.0, 1.0),
        channels=channels,
    )


def _part(content: dict[str, Any] | None, name: str) -> dict[str, Any]:
    found = (content or {}).get(name)
    return found if isinstance(found, dict) else {}


def _above(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and value > least


def _spacing(steps: Any, cases: Sequence[StoredCase]) -> tuple[float, float]:
    """What the recipe names; where it keeps the spacing of the scans, their median; equal ones if that is not known."""
    named = [*steps, None, None] if isinstance(steps, list) else [None, None]
    first, second = (_step(named[axis], [case.grid.prepared_spacing[axis] for case in cases]) for axis in range(2))
    return (1.0, 1.0) if first is None or second is None else (first, second)


def _step(named: Any, kept: Sequence[float]) -> float | None:
    if _above(named, 0):
        return float(named)
    return median(kept) if kept else None
