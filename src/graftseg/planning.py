"""A data set -> the recipe to train it with.

For now the choice is between two shipped starting points, slices or volumes; apart from the direction of the slices
nothing is fitted to the data yet.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from graftseg.data.check import COARSE, SLICES_LAST
from graftseg.data.dataset import SCAN_FILES, Dataset
from graftseg.data.grid import axis_codes
from graftseg.data.scans import read_geometry
from graftseg.recipe import recipe_path
from graftseg.types import Geometry

THIN = 16


def choose_recipe(dataset: Dataset) -> tuple[str, str]:
    """Name of the shipped recipe for a data set, and the reason in one sentence."""
    return _choose(_geometries(dataset))


def choose_overrides(dataset: Dataset) -> list[str]:
    """Settings in which the recipe for a data set differs from the shipped one, such as ``data.orientation=ASR``."""
    orientation = _orientation(_geometries(dataset))
    return [f"data.orientation={orientation}"] if orientation else []


def plan_text(dataset: Dataset) -> str:
    """A recipe file for a data set, with the reason for the choice at its head."""
    geometries = _geometries(dataset)
    name, reason = _choose(geometries)
    base = f"base: {recipe_path(name).parent.name}/{recipe_path(name).stem}"
    text = (
        f"# Chosen because {reason}.\n"
        f"# This is the shipped recipe {name}; its values are not fitted to your scans. Change what you know better:\n"
        f"# patch size, spacing, number of steps. `graftseg info {name}` prints every setting.\n"
        f"{base}\n"
        f"name: planned\n"
    )
    if orientation := _orientation(geometries):
        text += (
            "# A 2-D network sees slices across the last axis; here that is the one along which yours are stacked.\n"
            f"data: {{orientation: {orientation}}}\n"
        )
    return text


def _geometries(dataset: Dataset) -> list[Geometry]:
    if dataset.reader != SCAN_FILES:
        return [dataset.reader.image(case).geometry for case in dataset.of("labeled")]
    return [read_geometry(case.images[0]) for case in dataset.of("labeled")]


def _choose(geometries: Sequence[Geometry]) -> tuple[str, str]:
    if any(len(geometry.shape) == 2 for geometry in geometries):
        return "default-2d/bcp", "the scans are 2-D"
    thinnest, coarseness = _thinnest(geometries), _coarseness(geometries)
    if coarseness > COARSE:
        return "default-2d/bcp", f"slices lie {coarseness:.1f} times as far apart as pixels"
    if thinnest < THIN:
        return "default-2d/bcp", f"the volumes have {thinnest:g} slices, too few for 3-D patches"
    return "default-3d/bcp", f"the volumes have {thinnest:g} slices, {coarseness:.1f} times as far apart as pixels"


def _thinnest(geometries: Sequence[Geometry]) -> float:
    return median(min(geometry.shape) for geometry in geometries)


def _coarseness(geometries: Sequence[Geometry]) -> float:
    return median(max(geometry.spacing) / min(geometry.spacing) for geometry in geometries)


def _orientation(geometries: Sequence[Geometry]) -> str | None:
    """Axis codes with the direction last in which most volumes are stacked slices; None if they are not slices."""
    if any(len(geometry.shape) == 2 for geometry in geometries):
        return None
    coarse = _coarseness(geometries) > COARSE
    if not coarse and _thinnest(geometries) >= THIN:
        return None
    directions = Counter(_stacked(geometry, coarse) for geometry in geometries)
    return SLICES_LAST[directions.most_common(1)[0][0]]


def _stacked(geometry: Geometry, coarse: bool) -> int:
    """Where slices are stacked, 0, 1 or 2 for right-left, anterior-posterior, superior-inferior.

    That is the axis of the largest spacing, or of the fewest voxels; of equal ones the last direction.
    """
    sizes = geometry.spacing if coarse else [-voxels for voxels in geometry.shape]
    directions = ["RLAPSI".index(code) // 2 for code in axis_codes(geometry)]
    return max(zip(sizes, directions, strict=True))[1]
