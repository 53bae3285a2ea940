"""Data sets of 16 x 16 scans with chosen case, class and channel names."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tiny
import yaml

from graftseg.core.types import Geometry
from graftseg.data.scans import write_label, write_scan

SIDE = tiny.SIDE
AFFINE = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))
CLASSES = ("background", "disk")


def write_case(
    images: Path, labels: Path | None, name: str, seed: int, *, classes: int = 2, channels: int = 1, slices: int = 0
) -> None:
    """Write the channels of a scan, and its label map unless ``labels`` is None. A 2-D scan has 0 slices."""
    rng = np.random.default_rng(seed)
    truth = (np.arange(SIDE)[:, None] // 4 * 4 + np.arange(SIDE) // 4) % classes
    truth = np.roll(truth, seed % 5, axis=0).astype(np.uint8)
    if slices:
        truth = np.repeat(truth[..., None], slices, axis=2)
    grid = Geometry(truth.shape, AFFINE)
    images.mkdir(parents=True, exist_ok=True)
    for channel in range(channels):
        image = truth + rng.normal(0, 0.2, truth.shape)
        write_scan(images / f"{name}_{channel:04d}.nii", image.astype(np.float32), grid)
    if labels is not None:
        labels.mkdir(parents=True, exist_ok=True)
        write_label(labels / f"{name}.nii", truth, grid)


def write_data(
    folder: Path,
    *,
    labeled: Sequence[str] = ("a", "b"),
    unlabeled: Sequence[str] = ("c", "d"),
    test: Sequence[str] = ("e", "f"),
    classes: Sequence[str] = CLASSES,
    channels: Sequence[str] = ("T1",),
    slices: int = 0,
) -> Path:
    """Write a data set in the layout of nnU-Net."""
    folder.mkdir(parents=True, exist_ok=True)
    seed, sizes = 0, {"classes": len(classes), "channels": len(channels), "slices": slices}
    for images, labels, names in (
        ("imagesTr", "labelsTr", labeled),
        ("imagesUn", None, unlabeled),
        ("imagesTs", "labelsTs", test),
    ):
        for name in names:
            seed += 1
            write_case(folder / images, folder / labels if labels else None, name, seed, **sizes)
    content = {
        "channel_names": {str(number): name for number, name in enumerate(channels)},
        "labels": {name: number for number, name in enumerate(classes)},
        "numTraining": len(labeled),
        "file_ending": ".nii",
    }
    (folder / "dataset.json").write_text(json.dumps(content))
    return folder


def write_recipe(path: Path, **changes: Any) -> Path:
    """Write a recipe of a few steps."""
    tree = tiny.recipe_tree() | {"name": "tiny"}
    for stage in tree["stages"]:
        stage["steps"] = 2
    path.write_text(yaml.safe_dump(tree | changes, allow_unicode=True), encoding="utf-8")
    return path


def shuffled(random: Random, items: Sequence[Any]) -> list[Any]:
    """Return the items in random order."""
    return random.sample(list(items), len(items))
