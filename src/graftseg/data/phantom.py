"""Synthetic scans with known labels, for the demo and the tests.

A phantom resembles a heart in short-axis view: a bright core in a ring of muscle next to a crescent, inside a body with
other organs. Position, pose, size and outline vary, as do contrast, blur, bias field and noise. A random
``drift`` from 0 to 1 blends the appearance of two scanners. In labeled scans, ``drift`` is at most ``1 - shift``, so
that some unlabeled scans look different from all labeled scans. Equal seeds give equal scans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from graftseg.core.files import write_json
from graftseg.core.types import Geometry, Split
from graftseg.data.layouts import FOLDERS
from graftseg.data.scans import write_label, write_scan

CLASSES = {0: "background", 1: "crescent", 2: "ring", 3: "core"}
SPLITS: tuple[Split, ...] = ("labeled", "unlabeled", "test")
Floats = npt.NDArray[np.floating[Any]]

# by number of axes: size factor of the heart, and largest coordinate of its center (the scan extends from -1 to 1).
# In 3-D the factor is larger, so that the heart fills about the same share of the scan as in 2-D.
HEART_SIZE = {2: (1.0, 0.22), 3: (1.4, 0.12)}
# brightness of air, body, crescent, ring and core: NEAR_LOOK at drift 0, FAR_LOOK at drift 1
NEAR_LOOK = np.array([0.02, 0.42, 0.80, 0.25, 0.90])
FAR_LOOK = np.array([0.02, 0.60, 0.75, 0.40, 0.62])


@dataclass(frozen=True)
class Phantom:
    """An image ``(*space)`` float32 and its label map ``(*space)`` uint8."""

    image: Floats
    label: npt.NDArray[np.uint8]


def make_phantom(seed: int, split: Split, index: int, shape: Sequence[int], shift: float) -> Phantom:
    """Return phantom number ``index`` of a split. Equal arguments give equal voxels."""
    rng = np.random.default_rng((seed, SPLITS.index(split), index, len(shape)))
    max_drift = 1.0 - shift if split == "labeled" else 1.0
    drift = max_drift * rng.random()
    label, organs = _draw_anatomy(rng, tuple(shape))
    return Phantom(_draw_look(rng, label, organs, drift), label)


def write_phantoms(folder: Path, *, shape: Sequence[int], counts: dict[Split, int], seed: int, shift: float) -> None:
    """Write a data set of phantoms as NIfTI files in nnU-Net layout."""
    affine = tuple(tuple(row) for row in np.diag([1.5, 1.5, 1.5, 1.0]).tolist())
    geometry = Geometry(tuple(shape), affine)
    for images, labels, split in FOLDERS:
        for index in range(counts[split]):
            phantom = make_phantom(seed, split, index, shape, shift)
            name = f"{split}_{index:03d}"
            voxels = np.round(phantom.image * 1000).astype(np.int16)
            write_scan(folder / images / f"{name}_0000.nii.gz", voxels, geometry)
            if labels is not None:
                write_label(folder / labels / f"{name}.nii.gz", phantom.label, geometry)
    description = {
        "name": "phantoms",
        "channel_names": {"0": "MR"},
        "labels": {name: value for value, name in CLASSES.items()},
        "numTraining": counts["labeled"],
        "file_ending": ".nii.gz",
    }
    write_json(folder / "dataset.json", description)


def _draw_anatomy(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Draw the label map and a map of relative brightness: 0 for air, 1 for body, 0.3 to 2.2 for other organs."""
    lines = [(np.arange(n) + 0.5) / n * 2 - 1 for n in shape]
    space = np.stack(np.meshgrid(*lines, indexing="ij"))  # coordinates from -1 to 1, (axes, *shape)
    body = _ellipsoid(space, rng.normal(0, 0.03, len(shape)), rng.uniform(0.80, 0.95, len(shape))) < 1
    organs = np.where(body, 1.0, 0.0)
    for _ in range(int(rng.integers(4, 8))):
        center, radii = rng.uniform(-0.75, 0.75, len(shape)), rng.uniform(0.06, 0.22, len(shape))
        organs[(_ellipsoid(space, center, radii) < 1) & body] = rng.uniform(0.3, 2.2)
    return _draw_heart(rng, space), organs


def _draw_heart(rng: np.random.Generator, space: Floats) -> npt.NDArray[np.uint8]:
    axes = len(space)
    size, scatter = HEART_SIZE[axes]
    center = rng.uniform(-scatter, scatter, axes)
    direction = rng.normal(0, 1, axes)
    direction /= np.linalg.norm(direction)
    outer = size * rng.uniform(0.26, 0.38)
    inner = outer * rng.uniform(0.52, 0.70)
    squash = rng.uniform(0.88, 1.14, axes)
    offset = space - center.reshape(-1, *[1] * axes)
    angle = np.arctan2(offset[1], offset[0])
    waves = [rng.uniform(0, 0.06) * np.cos(k * angle + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 4)]
    outline = 1 + sum(waves)  # varies with the direction, so that outlines are not ellipses
    distance = np.sqrt(_ellipsoid(space, center, squash)) * outline
    crescent_center = center + direction * outer * rng.uniform(0.60, 0.80)
    crescent = np.sqrt(_ellipsoid(space, crescent_center, squash)) * outline < outer * rng.uniform(0.98, 1.16)
    label = np.zeros(space.shape[1:], dtype=np.uint8)
    label[crescent] = 1
    label[distance < outer] = 2
    label[distance < inner] = 3
    return label


def _draw_look(rng: np.random.Generator, label: npt.NDArray[np.uint8], organs: Floats, drift: float) -> Floats:
    look = (1 - drift) * NEAR_LOOK + drift * FAR_LOOK + rng.normal(0, 0.03, 5)
    air, body = look[0], look[1]
    image = air + (body - air) * organs
    image = np.where(label > 0, look[label + 1], image)
    image = ndimage.gaussian_filter(image, rng.uniform(0.4, 0.7) + 0.5 * drift)
    # a smooth random field between -1 and 1, like the bias field of a receive coil
    coarse = rng.uniform(-1, 1, [4] * image.ndim)
    field = ndimage.zoom(coarse, [n / 4 for n in image.shape], order=3, mode="nearest", grid_mode=True)
    image = image * (1 + 0.35 * np.clip(field, -1, 1))
    image = image + rng.normal(0, rng.uniform(0.03, 0.06) + 0.03 * drift, image.shape)
    return np.asarray(np.clip(image, 0, 4), dtype=np.float32)


def _ellipsoid(space: Floats, center: Floats, radii: Floats) -> Floats:
    """Return the squared distance from the center in units of the radii."""
    column = (-1, *[1] * (len(space)))
    return np.asarray(np.square((space - center.reshape(column)) / radii.reshape(column)).sum(axis=0))
