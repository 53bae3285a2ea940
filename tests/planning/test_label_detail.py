"""The Dice of label maps after resampling to a lower resolution and back."""

import numpy as np
import pytest

from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.planning.label_detail import FACTORS, coarse_spacing, detail_of, lowest_detail

DOUBLE = FACTORS.index(2.0)


def test_only_short_voxel_sides_become_longer() -> None:
    assert coarse_spacing((0.5, 1.0, 3.0), 2.5) == (1.25, 1.25, 3.0)
    assert coarse_spacing((0.5, 1.0, 3.0), 1.0) == (0.5, 1.0, 3.0)


def test_squares_and_lines() -> None:
    label = np.zeros((16, 16), np.uint8)
    label[2:6, 2:6] = 1  # consists of whole voxels of twice the size
    label[:, 9] = 2  # becomes twice as wide
    label[:, 12] = 3  # disappears
    detail = {value: found[DOUBLE] for value, found in detail_of(label, (1.0, 1.0), None).items()}
    assert detail == {1: 1.0, 2: pytest.approx(2 / 3), 3: 0.0}


def test_the_stacked_axis_keeps_its_resolution() -> None:
    label = np.zeros((16, 16, 5), np.uint8)
    label[4:8, 4:8, 2] = 1
    assert detail_of(label, (1.0, 1.0, 1.0), 2)[1][DOUBLE] == 1.0
    assert detail_of(label, (1.0, 1.0, 1.0), None)[1][DOUBLE] < 1.0
    assert detail_of(np.zeros((4, 4), np.uint8), (1.0, 1.0), None) == {}


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.7, 0.8, 2.0)])
def test_as_the_preparation_resamples(spacing: tuple[float, float, float]) -> None:
    label = np.random.default_rng(0).integers(0, 3, (13, 18, 9)).astype(np.uint8)
    found = detail_of(label, spacing, None)
    affine = np.diag([*spacing, 1.0])
    geometry = Geometry(label.shape, tuple(tuple(row) for row in affine.tolist()))
    for number, factor in enumerate(FACTORS):
        grid = plan_grid(geometry, orientation=None, spacing=coarse_spacing(spacing, factor))
        coarse = to_grid(label, grid, labels=True)
        back = Grid(coarse.shape, (0, 1, 2), (False,) * 3, label.shape, spacing)
        restored = to_grid(coarse, back, labels=True)
        for value in (1, 2):
            both = np.sum((label == value) & (restored == value))
            dice = 2 * both / (np.sum(label == value) + np.sum(restored == value))
            assert found[value][number] == pytest.approx(dice)


def test_the_worst_class_counts() -> None:
    cases = [{1: (0.9, 0.8), 2: (1.0, 0.5)}, {1: (0.7, 0.6)}, {}]
    assert lowest_detail(cases) == pytest.approx((0.8, 0.5))
    assert lowest_detail([{}]) == ()
