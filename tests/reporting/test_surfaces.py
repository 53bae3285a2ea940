"""Depths and shades of rendered surfaces agree with exact geometry."""

import numpy as np
import pytest

from graftseg.reporting.figures.surfaces import AMBIENT, DIFFUSE, LIGHT, Camera, Surface, View, antialiased, blend, cast

FRONT = Camera(azimuth=0.0, elevation=0.0)
CUBE = np.zeros((20, 20, 20), bool)
CUBE[5:15, 5:15, 5:15] = True  # its faces are at 4.5 and 14.5
CENTER = (9.5, 9.5, 9.5)


def view_of(camera: Camera, size: int = 41) -> View:
    return View(CENTER, radius=10.0, distance=12.0, size=size, camera=camera)


def test_a_camera_sees_the_patient_from_the_front() -> None:
    toward, up, right = FRONT.axes
    assert toward == pytest.approx([0, 1, 0]) and up == pytest.approx([0, 0, 1]) and right == pytest.approx([-1, 0, 0])
    axes = Camera(30.0, 20.0).axes
    assert axes @ axes.T == pytest.approx(np.eye(3))
    assert np.cross(axes[2], axes[1]) == pytest.approx(axes[0])


def test_depth_of_a_cube_from_the_front() -> None:
    """The front face is at y = 14.5, and rays start 12 in front of the center at y = 9.5."""
    surface = cast(CUBE, (1.0, 1.0, 1.0), view_of(FRONT), smoothing=0.0)
    across = np.abs(np.linspace(-10, 10, 41))
    inside = (across[:, None] < 4.9) & (across[None] < 4.9)
    outside = (across[:, None] > 5.1) | (across[None] > 5.1)
    assert surface.depth[inside] == pytest.approx(12.0 + 9.5 - 14.5, abs=1e-3)
    assert np.isinf(surface.depth[outside]).all() and not surface.shade[outside].any()
    expected = AMBIENT + DIFFUSE * LIGHT[0] / np.linalg.norm(LIGHT)
    assert surface.shade[20, 20] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("azimuth", "elevation"), [(30.0, 20.0), (-50.0, -35.0)])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.0, 2.0, 0.5)])
def test_depth_of_a_cube_from_the_side(azimuth: float, elevation: float, spacing: tuple[float, float, float]) -> None:
    """Rays meet the box where the last of the three pairs of faces is entered."""
    camera, size = Camera(azimuth, elevation), np.array(spacing)
    view = View(tuple(9.5 * size), radius=16.0, distance=24.0, size=33, camera=camera)
    surface = cast(CUBE, spacing, view, smoothing=0.0)
    toward, up, right = camera.axes
    across = np.linspace(-16, 16, 33)
    starts = 9.5 * size + 24 * toward - across[:, None, None] * up + across[None, :, None] * right
    ends = np.stack([(side * size - starts) / -toward for side in (4.5, 14.5)])
    enter, leave = ends.min(axis=0).max(axis=-1), ends.max(axis=0).min(axis=-1)
    middle = enter + 2.0 < leave  # the edges of the interpolated box are rounded
    assert middle.sum() > 50
    assert np.abs(surface.depth - enter)[middle].max() < 0.55 * size.max()
    assert np.median(np.abs(surface.depth - enter)[middle]) < 1e-3
    assert np.isinf(surface.depth[enter > leave + 1e-6]).all()


def test_a_sphere_is_shaded_by_its_normals() -> None:
    index = np.indices((31, 31, 31)) - 15
    ball = (index**2).sum(axis=0) < 10**2
    view = View((15.0, 15.0, 15.0), radius=12.0, distance=20.0, size=49, camera=FRONT)
    surface = cast(ball, (1.0, 1.0, 1.0), view, smoothing=1.0)
    across = np.linspace(-12, 12, 49)
    up, right = np.meshgrid(-across, across, indexing="ij")
    inside = up**2 + right**2 < 7**2
    toward = np.sqrt(np.maximum(10**2 - up**2 - right**2, 0))
    normals = np.stack([toward, up, right], axis=-1) / 10
    expected = np.clip(AMBIENT + DIFFUSE * np.maximum(normals @ (LIGHT / np.linalg.norm(LIGHT)), 0), 0, 1)
    assert np.abs(surface.shade - expected)[inside].mean() < 0.02
    assert np.abs(surface.depth - (20 - toward))[inside].max() < 0.6


def test_the_patients_right_is_on_the_left() -> None:
    mask = np.zeros((20, 20, 20), bool)
    mask[15:18, 9:12, 15:18] = True  # right and superior
    surface = cast(mask, (1.0, 1.0, 1.0), view_of(FRONT), smoothing=0.0)
    rows, columns = np.nonzero(np.isfinite(surface.depth))
    assert rows.max() < 20 and columns.max() < 20


def test_an_empty_mask_has_no_surface() -> None:
    surface = cast(np.zeros((4, 4, 4), bool), (1.0, 1.0, 1.0), view_of(FRONT, 9))
    assert np.isinf(surface.depth).all()


def test_a_view_contains_all_voxels() -> None:
    view = View.around([CUBE], (1.0, 1.0, 2.0), 40, Camera())
    surface = cast(CUBE, (1.0, 1.0, 2.0), view)
    seen = np.isfinite(surface.depth)
    assert seen.any() and not (seen[0].any() or seen[-1].any() or seen[:, 0].any() or seen[:, -1].any())
    assert surface.depth[seen].min() > 0


def test_nearer_surfaces_are_translucent() -> None:
    near, far = (Surface(np.array([[depth, inf]]), np.ones((1, 2))) for depth, inf in ((1.0, np.inf), (2.0, 5.0)))
    red, blue = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    for layers in ([(near, red), (far, blue)], [(far, blue), (near, red)]):
        picture = blend(layers)
        assert picture[0, 0] == pytest.approx([0.55, 0.0, 0.45, 1.0])
        assert picture[0, 1] == pytest.approx([0.0, 0.0, 1.0, 1.0])


def test_antialiasing_averages_opacity_and_keeps_colors() -> None:
    picture = np.zeros((2, 2, 4))
    picture[0, 0] = (1.0, 0.5, 0.0, 1.0)
    assert antialiased(picture)[0, 0] == pytest.approx([1.0, 0.5, 0.0, 0.25])
