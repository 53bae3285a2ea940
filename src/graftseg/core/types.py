"""Data types shared by all packages, as frozen dataclasses."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

Split = Literal["labeled", "unlabeled", "validation", "test"]
SPLITS: tuple[Split, ...] = ("labeled", "unlabeled", "validation", "test")
Precision = Literal["float32", "bf16"]
Matrix = tuple[tuple[float, ...], ...]
MILLIMETERS = {"mm": 1.0, "meter": 1000.0, "micron": 0.001, "unknown": 1.0}
"""Millimeters per unit of length in a NIfTI header."""
NEIGHBORS = {(2, 1): 4, (2, 2): 8, (3, 1): 6, (3, 2): 18, (3, 3): 26}
"""Number of neighbors by number of axes and connectivity (see ``scipy.ndimage.generate_binary_structure``)."""


@dataclass(frozen=True)
class Geometry:
    """Position and orientation of the voxels of a scan."""

    shape: tuple[int, ...]  # number of voxels along the two or three spatial axes
    affine: Matrix  # 4x4 matrix from voxel index to world coordinates (right, anterior, superior) in ``units``
    units: str = "mm"
    qform_code: int = 1  # fields of the NIfTI header; if both are 0, the file does not define the orientation
    sform_code: int = 1

    @property
    def is_placed(self) -> bool:
        """Whether the file defines the orientation. If not, left and right may be swapped."""
        return self.qform_code > 0 or self.sform_code > 0

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """The affine as an array."""
        return np.array(self.affine, dtype=np.float64)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Voxel spacing along each axis of the array, in millimeters."""
        lengths = np.linalg.norm(self.matrix[:3, : len(self.shape)], axis=0) * MILLIMETERS[self.units]
        return tuple(float(length) for length in lengths)

    @property
    def voxel_volume(self) -> float:
        """Volume of a voxel in mm³ (for two axes, the area in mm²), also for sheared grids (tilted gantry)."""
        directions = self.matrix[:3, :3] / np.linalg.norm(self.matrix[:3, :3], axis=0)
        # without shear, the determinant is 1 except for rounding
        shear = abs(float(np.linalg.det(directions)))
        return math.prod(self.spacing) * (1.0 if math.isclose(shear, 1.0, rel_tol=1e-6) else shear)


@dataclass(frozen=True)
class Case:
    """A scan on disk, with its label map unless it is unlabeled."""

    name: str
    images: tuple[Path, ...]  # one file per channel, one for all channels, or those that a benchmark reader needs
    label: Path | None
    split: Split

    def __post_init__(self) -> None:
        if self.split == "unlabeled" and self.label is not None:
            raise ValueError(f"case {self.name} is unlabeled but has a label")


@dataclass(frozen=True)
class Labeled:
    """Images ``(B, C, *space)`` with their label maps ``(B, *space)``, int64."""

    images: Tensor
    labels: Tensor

    def halves(self) -> tuple["Labeled", "Labeled"]:
        """Return the first and the second half of the batch, which copy-paste combines."""
        (x_i, x_j), (y_i, y_j) = halves(self.images), halves(self.labels)
        return Labeled(x_i, y_i), Labeled(x_j, y_j)


@dataclass(frozen=True)
class Batch:
    """The input of a training step. It contains no labels of unlabeled images, so hidden labels cannot leak."""

    labeled: Labeled
    unlabeled: Tensor
    plain: Tensor | None = None  # the unlabeled images before intensity augmentation, if there is any

    @property
    def for_teacher(self) -> Tensor:
        """The unlabeled images that a teacher labels."""
        return self.unlabeled if self.plain is None else self.plain


@dataclass(frozen=True)
class Progress:
    """Progress of a stage: ``step`` of ``total`` steps are done. ``step`` is a 0-d tensor on the device."""

    step: Tensor
    total: int


@dataclass(frozen=True)
class Objective:
    """A loss to minimize: the weighted sum of its terms."""

    updates: str  # name of the submodule whose parameters are updated, such as ``student``
    terms: dict[str, Tensor]  # scalars by name
    weights: dict[str, float | Tensor] = field(default_factory=dict)  # factors of the terms by name, 1 by default
    shows: dict[str, Tensor] = field(default_factory=dict)  # tensors by name that a snapshot shows as pictures

    def __post_init__(self) -> None:
        if unknown := self.weights.keys() - self.terms.keys():
            raise ValueError(f"weights for unknown terms: {sorted(unknown)}")

    @property
    def total(self) -> Tensor:
        """The weighted sum of the terms."""
        weighted = [term * self.weights.get(name, 1.0) for name, term in self.terms.items()]
        return sum(weighted[1:], start=weighted[0])


def halves(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second half along the batch axis. The batch size must be even."""
    if len(tensor) % 2:
        raise ValueError(f"a batch of {len(tensor)} cannot be halved")
    first, second = tensor.chunk(2)
    return first, second
