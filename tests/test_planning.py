"""Which recipe a data set begins with, and along which axis a 2-D one takes its slices."""

from pathlib import Path

import numpy as np
import pytest

from graftseg.data.layouts import Dataset, read_layout
from graftseg.data.scans import write_label, write_scan
from graftseg.planning import choose_overrides, choose_recipe, plan_text
from graftseg.recipe import load_recipe
from graftseg.types import Geometry

ROWS = {"R": 0, "L": 0, "A": 1, "P": 1, "S": 2, "I": 2}


def dataset_of(root: Path, *volumes: tuple[str, tuple[int, ...], tuple[float, ...]]) -> Dataset:
    """Labeled scans whose axes point where the letters say, with their shapes and spacings."""
    for number, (codes, shape, spacing) in enumerate(volumes):
        affine = np.eye(4)
        for axis, code in enumerate(codes):
            affine[:3, axis] = 0
            affine[ROWS[code], axis] = spacing[axis] * (1 if code in "RAS" else -1)
        geometry = Geometry(shape, tuple(tuple(row) for row in affine.tolist()))
        write_scan(root / "imagesTr" / f"{number}.nii", np.zeros(shape, np.uint8), geometry)
        write_label(root / "labelsTr" / f"{number}.nii", np.zeros(shape, np.uint8), geometry)
    return read_layout(root)


@pytest.mark.parametrize(
    ("codes", "shape", "spacing", "recipe", "reason", "orientation"),
    [
        ("RA", (20, 20), (1.0, 1.0), "default-2d/bcp", "the scans are 2-D", None),
        ("RAS", (20, 18, 16), (1.0, 1.0, 3.0), "default-3d/bcp", "16 slices, 3.0 times as far apart", None),
        ("RAS", (20, 20, 16), (1.0, 1.0, 4.0), "default-2d/bcp", "4.0 times as far apart", "RAS"),
        ("PIL", (20, 20, 16), (1.0, 1.0, 4.0), "default-2d/bcp", "4.0 times as far apart", "ASR"),
        ("LIP", (20, 20, 4), (1.0, 1.0, 4.0), "default-2d/bcp", "4.0 times as far apart", "RSA"),
        ("LPS", (9, 20, 20), (1.0, 1.0, 1.0), "default-2d/bcp", "9 slices, too few", "ASR"),
        ("RAS", (9, 9, 9), (1.0, 1.0, 1.0), "default-2d/bcp", "9 slices, too few", "RAS"),
    ],
)
def test_slices_or_volumes(
    tmp_path: Path,
    codes: str,
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    recipe: str,
    reason: str,
    orientation: str | None,
) -> None:
    dataset = dataset_of(tmp_path / "data", (codes, shape, spacing))
    name, why = choose_recipe(dataset)
    assert name == recipe and reason in why
    assert choose_overrides(dataset) == ([f"data.orientation={orientation}"] if orientation else [])
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(dataset))
    planned, shipped = load_recipe(path), load_recipe(recipe, choose_overrides(dataset))
    assert planned.data == shipped.data
    assert planned.data.orientation == (orientation or "RAS")
    assert f"# Chosen because {why}.\n" in path.read_text()
    assert ("along which yours are stacked" in path.read_text()) == (orientation is not None)


def test_most_volumes_decide(tmp_path: Path) -> None:
    axial, sagittal = ("RAS", (8, 8, 20), (1.0, 1.0, 5.0)), ("ASR", (8, 8, 20), (1.0, 1.0, 5.0))
    assert choose_overrides(dataset_of(tmp_path, axial, sagittal, sagittal)) == ["data.orientation=ASR"]
