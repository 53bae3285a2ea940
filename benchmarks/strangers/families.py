"""Data sets that no recipe was tuned on: splits of public data, and five families of phantoms."""

import argparse
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from thick_slices import draw_thick_slices

from graftseg.core.types import Geometry
from graftseg.data.phantom import write_phantoms
from graftseg.data.scans import write_label, write_scan

SIDE = 40
COUNTS = {"labeled": 6, "unlabeled": 30, "test": 15}
FOLDERS = {"labeled": ("imagesTr", "labelsTr"), "unlabeled": ("imagesUn", None), "test": ("imagesTs", "labelsTs")}
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Draws an image, its label map and its affine."""


def hippocampus_split(
    source: Path, out: Path, *, split: int, labeled: int, unlabeled: int = 60, test: int = 30
) -> None:
    """Link a random split of the Hippocampus data set (imagesTr, labelsTr). The test scans depend only on ``split``."""
    names = sorted(path.name for path in (source / "imagesTr").glob("*.nii.gz"))
    random.Random(split).shuffle(names)
    held_out, rest = names[:test], names[test:]
    for folder in ("imagesTr", "labelsTr", "imagesUn", "imagesTs", "labelsTs"):
        (out / folder).mkdir(parents=True)
    for name in rest[:labeled]:
        _copy_pair(source, out, name, "Tr")
    for name in held_out:
        _copy_pair(source, out, name, "Ts")
    for name in rest[labeled : labeled + unlabeled]:
        shutil.copy(source / "imagesTr" / name, out / "imagesUn" / name)


def _copy_pair(source: Path, out: Path, name: str, split: str) -> None:
    shutil.copy(source / "imagesTr" / name, out / f"images{split}" / name)
    shutil.copy(source / "labelsTr" / name, out / f"labels{split}" / name)


def small(rng: np.random.Generator) -> np.ndarray:
    """Draw one small object anywhere in the body."""
    label = np.zeros((SIDE,) * 3, np.uint8)
    label[_ball(rng.uniform(10, SIDE - 10, 3), rng.uniform(2.5, 4, 3))] = 1
    return label


def thin(rng: np.random.Generator) -> np.ndarray:
    """Draw a curved tube from one end of the scan to the other."""
    height, (row, column) = np.arange(SIDE), rng.uniform(14, SIDE - 14, 2)
    bend, phase = rng.uniform(3, 7, 2), rng.uniform(0, 2 * np.pi, 2)
    rows = row + bend[0] * np.sin(height / 8 + phase[0])
    columns = column + bend[1] * np.sin(height / 8 + phase[1])
    i, j = np.mgrid[:SIDE, :SIDE]
    inside: np.ndarray = (i[..., None] - rows) ** 2 + (j[..., None] - columns) ** 2 < rng.uniform(1.6, 2.4) ** 2
    return np.asarray(inside, np.uint8)


def islands(rng: np.random.Generator) -> np.ndarray:
    """Draw several objects of one class around an object of another class."""
    label = np.zeros((SIDE,) * 3, np.uint8)
    center = rng.uniform(16, SIDE - 16, 3)
    for _ in range(int(rng.integers(3, 7))):
        direction = rng.normal(size=3)
        label[_ball(center + direction / np.linalg.norm(direction) * rng.uniform(9, 12), rng.uniform(2.5, 4.5, 3))] = 2
    label[_ball(center, rng.uniform(4.5, 6.5, 3))] = 1
    return label


def _ball(center: np.ndarray, radii: np.ndarray) -> np.ndarray:
    space = np.indices((SIDE,) * 3)
    distances: np.ndarray = (((space - center[:, None, None, None]) / radii[:, None, None, None]) ** 2).sum(axis=0)
    return distances < 1


def look(rng: np.random.Generator, label: np.ndarray) -> np.ndarray:
    """Draw an image: objects on a textured body with distractors, a bias field, blur and noise."""
    image = 0.5 + 0.12 * ndimage.gaussian_filter(rng.normal(size=label.shape), 3) * 6
    for _ in range(8):
        image[_ball(rng.uniform(0, SIDE, 3), rng.uniform(2, 6, 3))] = rng.uniform(0.25, 0.6)
    for value in np.unique(label[label > 0]):
        image[label == value] = 0.85 - 0.2 * (value == 2) + rng.normal(0, 0.04)
    coarse = ndimage.zoom(rng.uniform(-1, 1, (4, 4, 4)), SIDE / 4, order=1)
    image = ndimage.gaussian_filter(image, rng.uniform(0.5, 0.9)) * (1 + 0.25 * coarse)
    return (1000 * (image + rng.normal(0, rng.uniform(0.04, 0.08), image.shape))).astype(np.int16)


def cube(
    objects: Callable[[np.random.Generator], np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a scan with voxels of 1 mm that shows these objects."""
    label = objects(rng)
    return look(rng, label), label, np.eye(4)


def phantoms(draw: Draw, out: Path, seed: int, *, all_labeled: bool) -> None:
    """Write a data set of one family as NIfTI files. With ``all_labeled``, the unlabeled scans have labels, too."""
    folders = FOLDERS | ({"unlabeled": FOLDERS["labeled"]} if all_labeled else {})
    for number, (split, (images, labels)) in enumerate(folders.items()):
        for index in range(COUNTS[split]):
            image, label, affine = draw(np.random.default_rng((seed, number, index)))
            geometry = Geometry(label.shape, tuple(tuple(row) for row in affine.tolist()))
            write_scan(out / images / f"{split}{index:03d}_0000.nii.gz", image, geometry)
            if labels is not None:
                write_label(out / labels / f"{split}{index:03d}.nii.gz", label, geometry)


def shifted(out: Path, seed: int, *, all_labeled: bool) -> None:
    """Write the phantoms of the demo, with labeled scans from one scanner and unlabeled scans from another, too.

    With ``all_labeled``, there are as many labeled scans as otherwise labeled and unlabeled scans, from all scanners.
    """
    counts: dict[Any, int] = dict(COUNTS)
    if all_labeled:
        counts |= {"labeled": COUNTS["labeled"] + COUNTS["unlabeled"], "unlabeled": 0}
    write_phantoms(out, shape=(SIDE,) * 3, counts=counts, seed=100 + seed, shift=0.0 if all_labeled else 0.7)


FAMILIES: dict[str, Callable[..., None]] = {
    "small": partial(phantoms, partial(cube, small)),
    "thin": partial(phantoms, partial(cube, thin)),
    "islands": partial(phantoms, partial(cube, islands)),
    "shift": shifted,
    "slices": partial(phantoms, draw_thick_slices),
}
"""Writers of a data set, called with a folder, a seed and ``all_labeled``."""


def main() -> None:
    """Write one data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    FAMILIES[arguments.family](arguments.out, arguments.seed, all_labeled=False)


if __name__ == "__main__":
    main()
