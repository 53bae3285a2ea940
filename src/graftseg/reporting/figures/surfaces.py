"""Shaded pictures of label surfaces, by casting parallel rays through a volume.

Each pixel has a ray. The depth of a pixel is the distance from the start of its ray to the surface. Surfaces of several
classes are combined by depth. Nearer surfaces are translucent, so that enclosed classes can be seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[Any]

LEVEL = 0.5
SMOOTHING = 0.8  # standard deviation of the Gaussian that smooths a class before its surface is found, in voxels
AMBIENT, DIFFUSE = 0.35, 0.7
LIGHT = np.array([0.75, 0.55, -0.38])  # direction to the light: toward the viewer, up, right
MIN_STEP = 0.4  # smallest step of a ray, as a fraction of a voxel
BISECTIONS = 12
OPACITY = 0.55  # opacity of a surface in front of another surface


@dataclass(frozen=True)
class Camera:
    """Direction from which a volume is seen, in degrees. The axes of the volume are right, anterior, superior.

    At azimuth 0 and elevation 0, the patient is seen from the front, with the patient's right on the left.
    """

    azimuth: float = 30.0
    elevation: float = 20.0

    @property
    def axes(self) -> Floats:
        """Return unit vectors toward the viewer, up and to the right of the picture, as rows."""
        a, e = np.radians(self.azimuth), np.radians(self.elevation)
        toward = np.array([np.sin(a) * np.cos(e), np.cos(a) * np.cos(e), np.sin(e)])
        right = np.array([-np.cos(a), np.sin(a), 0.0])
        return np.stack([toward, np.cross(right, -toward), right])


@dataclass(frozen=True)
class View:
    """A camera and the square that it sees."""

    center: tuple[float, ...]  # position of the center in mm
    radius: float  # half the side of the square in mm
    distance: float  # distance in mm from the center to the start of the rays, toward the viewer
    size: int  # side of the square in pixels
    camera: Camera = Camera()

    @classmethod
    def around(
        cls, masks: Sequence[npt.NDArray[np.bool_]], spacing: Sequence[float], size: int, camera: Camera
    ) -> "View":
        """Return a view of the union of the masks, or of the whole volume if all masks are empty."""
        inside = np.logical_or.reduce(masks)
        voxels = np.argwhere(inside) if inside.any() else np.indices(inside.shape).reshape(3, -1).T
        positions = voxels * np.asarray(spacing) @ camera.axes.T
        low, high = positions.min(axis=0), positions.max(axis=0)
        half, voxel = (high - low) / 2, float(np.linalg.norm(spacing))
        center = (low + high) / 2 @ camera.axes
        return cls(tuple(center.tolist()), float(half[1:].max()) + voxel, float(half[0]) + 3 * voxel, size, camera)


@dataclass(frozen=True)
class Surface:
    """The first hit of each ray of a view."""

    depth: Floats  # distance in mm ``(H, W)`` from the start of the ray to the hit, infinite without a hit
    shade: Floats  # brightness ``(H, W)`` from 0 to 1


def cast(mask: npt.NDArray[np.bool_], spacing: Sequence[float], view: View, smoothing: float = SMOOTHING) -> Surface:
    """Return the surface of a mask ``(X, Y, Z)``, whose axes are right, anterior, superior."""
    empty = Surface(np.full((view.size, view.size), np.inf), np.zeros((view.size, view.size)))
    if not mask.any():
        return empty
    volume = _Volume.of(mask, np.asarray(spacing, dtype=np.float64), smoothing)
    toward, up, right = view.camera.axes
    across = np.linspace(-view.radius, view.radius, view.size)
    middle = np.asarray(view.center) + view.distance * toward
    starts = (middle - across[:, None, None] * up + across[None, :, None] * right).reshape(-1, 3)
    depth = np.full(view.size**2, np.inf)
    enter, leave = volume.crossed(starts, -toward)
    rays = np.flatnonzero(enter < leave)
    depth[rays] = volume.first_hit(starts[rays], -toward, enter[rays], leave[rays])
    shade = np.zeros(view.size**2)
    hits = np.flatnonzero(np.isfinite(depth))
    normals = volume.normals(starts[hits] - depth[hits, None] * toward) @ view.camera.axes.T
    light = normals @ (LIGHT / np.linalg.norm(LIGHT))
    shade[hits] = np.clip(AMBIENT + DIFFUSE * np.maximum(light, 0.0), 0.0, 1.0)
    return Surface(depth.reshape(view.size, -1), shade.reshape(view.size, -1))


def render(
    labels: Labels, spacing: Sequence[float], view: View, colors: Mapping[int, Floats], smoothing: float = SMOOTHING
) -> Floats:
    """Return a picture ``(H, W, 4)`` from 0 to 1, transparent without a surface. ``colors`` are RGB values by label."""
    surfaces = {label: cast(labels == label, spacing, view, smoothing) for label in colors}
    return blend([(surface, colors[label]) for label, surface in surfaces.items()])


def blend(layers: Sequence[tuple[Surface, Floats]]) -> Floats:
    """Combine surfaces with their colors by depth. The last surface of a ray is opaque."""
    depths = np.stack([surface.depth for surface, _ in layers])
    shaded = np.stack([surface.shade[..., None] * np.asarray(color) for surface, color in layers])
    order = np.argsort(depths, axis=0, kind="stable")
    hits = np.isfinite(depths).sum(axis=0)
    picture, transparency = np.zeros((*hits.shape, 4)), np.ones(hits.shape)
    for rank in range(len(layers)):
        color = np.take_along_axis(shaded, order[rank][None, ..., None], axis=0)[0]
        opacity = np.where(rank + 1 == hits, 1.0, OPACITY) * (rank < hits)
        picture[..., :3] += (transparency * opacity)[..., None] * color
        transparency = transparency * (1 - opacity)
    picture[..., 3] = hits > 0
    return picture


def antialiased(picture: Floats) -> Floats:
    """Average blocks of 2x2 pixels of ``(H, W, 4)``, weighted by their opacity."""
    factor = 2
    height, width = (side // factor for side in picture.shape[:2])
    blocks = picture[: height * factor, : width * factor].reshape(height, factor, width, factor, 4)
    alpha = blocks[..., 3].mean(axis=(1, 3))
    color = (blocks[..., :3] * blocks[..., 3:]).mean(axis=(1, 3)) / np.maximum(alpha, 1e-9)[..., None]
    return np.concatenate([np.clip(color, 0.0, 1.0), alpha[..., None]], axis=-1)


@dataclass(frozen=True)
class _Volume:
    """A smoothed mask, cropped to its content."""

    field: Floats  # the smoothed mask; the surface is where it is ``LEVEL``
    distance: Floats  # for points outside, a lower limit of the distance to the surface in mm
    origin: Floats  # position of the first voxel in mm
    spacing: Floats

    @classmethod
    def of(cls, mask: npt.NDArray[np.bool_], spacing: Floats, smoothing: float) -> "_Volume":
        """Crop and smooth a mask."""
        margin = int(np.ceil(3 * smoothing)) + 1
        voxels = np.argwhere(mask)
        low, high = voxels.min(axis=0), voxels.max(axis=0) + 1
        cropped = np.pad(mask[tuple(map(slice, low, high))], margin).astype(np.float32)
        field = ndimage.gaussian_filter(cropped, smoothing, mode="constant") if smoothing else cropped
        # the surface is at most one voxel away from the center of a voxel above the level
        outside = ndimage.distance_transform_edt(field <= LEVEL, sampling=spacing) - np.linalg.norm(spacing)
        return cls(field, outside.astype(np.float32), (low - margin) * spacing, spacing)

    def at(self, values: Floats, points: Floats) -> Floats:
        """Interpolate values of the voxels at points ``(N, 3)`` in mm."""
        index = ((points - self.origin) / self.spacing).T
        return np.asarray(ndimage.map_coordinates(values, index, order=1, mode="nearest"))

    def crossed(self, starts: Floats, direction: Floats) -> tuple[Floats, Floats]:
        """Return the distances at which rays enter and leave the box of the voxel centers."""
        with np.errstate(divide="ignore", invalid="ignore"):
            sides = (self.origin, self.origin + (np.array(self.field.shape) - 1) * self.spacing)
            ends = np.stack([(side - starts) / direction for side in sides])
        return np.maximum(np.nanmin(ends, axis=0).max(axis=1), 0.0), np.nanmax(ends, axis=0).min(axis=1)

    def first_hit(self, starts: Floats, direction: Floats, enter: Floats, leave: Floats) -> Floats:
        """Return the distance from the start of each ray to the surface, or infinity.

        A ray moves by the known distance to the surface, and at least by a fraction of a voxel. After the first step
        inside, the surface is found by bisection.
        """
        smallest = MIN_STEP * self.spacing.min()
        t, last, hit_at = enter.copy(), enter.copy(), np.full(len(starts), np.inf)
        active = np.arange(len(starts))
        while len(active):
            points = starts[active] + t[active, None] * direction
            is_inside = self.at(self.field, points) > LEVEL
            hit_at[active[is_inside]] = t[active[is_inside]]
            active, points = active[~is_inside], points[~is_inside]
            last[active] = t[active]
            t[active] += np.maximum(self.at(self.distance, points), smallest)
            active = active[t[active] <= leave[active]]
        hits = np.isfinite(hit_at)
        low, high = last[hits], hit_at[hits]
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            is_inside = self.at(self.field, starts[hits] + middle[:, None] * direction) > LEVEL
            low, high = np.where(is_inside, low, middle), np.where(is_inside, middle, high)
        hit_at[hits] = high
        return hit_at

    def normals(self, points: Floats) -> Floats:
        """Return outward unit normals at points on the surface."""
        steps = np.eye(3) * self.spacing
        slopes = [self.at(self.field, points - step) - self.at(self.field, points + step) for step in steps]
        normals = np.stack(slopes, axis=-1) / self.spacing
        return np.asarray(normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-9))
