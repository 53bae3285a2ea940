"""Phantoms of thick slices through a whole body: a small organ with two zones, among other organs."""

import numpy as np
from scipy import ndimage

FIELD_OF_VIEW, THICKNESS = 160.0, 3.6
"""Width of a slice and distance between slices, in mm."""


def draw_thick_slices(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw an image, its label map (1 is the outer zone, 2 the inner zone) and its affine."""
    side, slices = int(rng.choice([192, 224, 256])), int(rng.integers(15, 24))
    space = np.stack(np.meshgrid(*(np.linspace(-1, 1, size) for size in (side, side, slices)), indexing="ij"))
    body = _ellipsoid(space, (0, 0, 0), (0.92, 0.75, 9))
    image = np.where(body, 0.35, 0.02)
    for _ in range(10):
        center = rng.uniform((-0.7, -0.55, -1), (0.7, 0.55, 1))
        organ = _ellipsoid(space, center, rng.uniform((0.05, 0.05, 0.3), (0.22, 0.2, 1.2)))
        image[organ & body] = rng.uniform(0.15, 0.9)
    center = rng.normal((0, -0.05, 0), (0.06, 0.07, 0.15))
    radii = rng.uniform((0.15, 0.12, 0.45), (0.22, 0.18, 0.7))
    outer = _ellipsoid(space, center, radii)
    inner = outer & _ellipsoid(space, center + radii * (0, 0.25, 0), radii * rng.uniform(0.62, 0.75))
    label = outer.astype(np.uint8) + inner
    image[outer], image[inner] = rng.normal((0.72, 0.5), 0.05)
    texture = ndimage.gaussian_filter(rng.normal(size=image.shape), (3, 3, 0.7))
    image += 0.06 * texture / texture.std() * (image > 0.1)
    bias = ndimage.zoom(rng.uniform(-1, 1, (4, 4, 3)), (side / 4, side / 4, slices / 3), order=1)
    image = ndimage.gaussian_filter(image, (0.8, 0.8, 0)) * (1 + 0.3 * bias)
    image += rng.normal(0, rng.uniform(0.03, 0.06), image.shape)
    affine = np.diag([FIELD_OF_VIEW / side, FIELD_OF_VIEW / side, THICKNESS, 1.0])
    return (image * rng.uniform(300, 1500)).astype(np.int16), label, affine


def _ellipsoid(
    space: np.ndarray, center: tuple[float, ...] | np.ndarray, radii: tuple[float, ...] | np.ndarray
) -> np.ndarray:
    distances = (space - np.reshape(center, (3, 1, 1, 1))) / np.reshape(radii, (3, 1, 1, 1))
    inside: np.ndarray = (distances**2).sum(axis=0) < 1
    return inside
