"""A data set -> the recipe to train it with.

For now the choice is between two shipped starting points, slices or volumes; nothing is fitted to the data yet.
"""

from statistics import median

from graftseg.data.layouts import Dataset
from graftseg.data.scans import read_geometry
from graftseg.recipe import recipe_path

THIN = 16
COARSE = 3.0


def choose_recipe(dataset: Dataset) -> tuple[str, str]:
    """Name of the shipped recipe for a data set, and the reason in one sentence."""
    geometries = [read_geometry(case.images[0]) for case in dataset.of("labeled")]
    if any(len(geometry.shape) == 2 for geometry in geometries):
        return "default-2d/bcp", "the scans are 2-D"
    thinnest = median(min(geometry.shape) for geometry in geometries)
    if thinnest < THIN:
        return "default-2d/bcp", f"the volumes have {thinnest:g} slices, too few for 3-D patches"
    coarseness = median(max(geometry.spacing) / min(geometry.spacing) for geometry in geometries)
    if coarseness > COARSE:
        return "default-2d/bcp", f"slices lie {coarseness:.1f} times as far apart as pixels"
    return "default-3d/bcp", f"the volumes have at least {thinnest:g} slices and nearly cubic voxels"


def plan_text(dataset: Dataset) -> str:
    """A recipe file for a data set, with the reason for the choice at its head."""
    name, reason = choose_recipe(dataset)
    base = f"base: {recipe_path(name).parent.name}/{recipe_path(name).stem}"
    return (
        f"# Chosen because {reason}.\n"
        f"# This is the shipped recipe {name}; its values are not fitted to your scans. Change what you know better:\n"
        f"# patch size, spacing, number of steps. `graftseg info {name}` prints every setting.\n"
        f"{base}\n"
        f"name: planned\n"
    )
