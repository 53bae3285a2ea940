"""Small data sets on disk for the check."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from graftseg.core.types import Geometry
from graftseg.data.check import Finding, examine
from graftseg.data.dataset import Dataset
from graftseg.data.scans import write_label, write_scan

SHAPE = (16, 16, 4)
Array = npt.NDArray[np.generic]


def check(dataset: Dataset, *, workers: int | None = None) -> list[Finding]:
    return list(examine(dataset, workers=workers))


def geometry(shape: tuple[int, ...] = SHAPE, step: float = 1.0, origin: float = 0.0) -> Geometry:
    affine = ((step, 0.0, 0.0, origin), (0.0, step, 0.0, 0.0), (0.0, 0.0, step, 0.0), (0.0, 0.0, 0.0, 1.0))
    return Geometry(shape, affine)


def image(seed: int, shape: tuple[int, ...] = SHAPE) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)


def label(*values: int) -> npt.NDArray[np.uint8]:
    array = np.zeros(SHAPE, dtype=np.uint8)
    array.flat[: len(values)] = values
    return array


def put(root: Path, name: str, array: Array, where: Geometry | None = None) -> None:
    path = root / f"{name}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    (write_label if name.startswith("labels") else write_scan)(path, array, where or geometry())


def make_scans(root: Path) -> Path:
    """Write a valid data set of three labeled and three unlabeled scans with two listed classes."""
    for number in range(3):
        put(root, f"imagesTr/l{number}", image(number))
        put(root, f"labelsTr/l{number}", label(1, 1, 2))
        put(root, f"imagesUn/u{number}", image(10 + number))
    (root / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1, "tumour": 2}}')
    return root
