"""Maps of a scan (labels, probabilities, uncertainty): how they are computed from probabilities, and their files.

The uncertainty of a voxel is the entropy of its probabilities divided by the entropy of the uniform distribution:
0 if one class is certain, 1 if all classes are equally probable.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.core.colors import color_of
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_json
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label, write_scan
from graftseg.ops.components import chosen_classes, filter_components, largest_components
from graftseg.recipes.settings import InferenceSettings

Array = TypeVar("Array")
Changed = TypeVar("Changed")
CLASSES = "classes.json"
CLASS_KEYS = {"name", "value", "colour"}
LEVELS = 255  # Integer that stores a probability or uncertainty of 1. The rounding error is at most 0.002.
MIN_FOREGROUND = 0.05  # the mean uncertainty is computed over voxels with at least this probability of foreground


@dataclass(frozen=True)
class ExtraMaps:
    """Outputs in addition to the label map. ``pictures`` are label maps as PNG files."""

    probabilities: bool = False
    uncertainty: bool = False
    pictures: bool = False


LABELS_ONLY = ExtraMaps()


@dataclass(frozen=True)
class Maps(Generic[Array]):
    """Maps of a scan. Extra maps that were not requested are None."""

    labels: Array  # label map ``(*space)``
    probabilities: Array | None = None  # ``(K, *space)``, integers from 0 to ``LEVELS``
    uncertainty: Array | None = None  # ``(*space)``, integers from 0 to ``LEVELS``
    mean_uncertainty: float | None = None  # from 0 to 1, or None if no voxel reaches ``MIN_FOREGROUND``

    def transformed(self, change: Callable[[Array], Changed]) -> "Maps[Changed]":
        """Return the maps with a function applied to each of them."""
        probabilities = None if self.probabilities is None else change(self.probabilities)
        uncertainty = None if self.uncertainty is None else change(self.uncertainty)
        return Maps(change(self.labels), probabilities, uncertainty, self.mean_uncertainty)


PreparedMaps = Maps[Tensor]
"""Maps in the axis order of the prepared image. Labels are on the device, and the other maps are in main memory."""
ScanMaps = Maps[NDArray[np.uint8]]  # maps on the grid of the scan


class UncertaintyAccumulator:
    """The uncertainty map of a scan, computed slab by slab, and its mean over voxels that reach ``MIN_FOREGROUND``."""

    def __init__(self, space: tuple[int, ...], device: torch.device) -> None:
        self.map = torch.empty(space, dtype=torch.uint8)
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self._voxels = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, here: slice, probabilities: Tensor) -> None:
        """Add the probabilities ``(K, n, *rest)`` of a slab."""
        uncertainty, is_possible = entropy(probabilities), may_be_foreground(probabilities)
        self.map[here] = to_levels(uncertainty).cpu()
        self._total += torch.where(is_possible, uncertainty, 0).sum(dtype=torch.float64)
        self._voxels += is_possible.sum()

    def mean(self) -> float | None:
        """Return the mean uncertainty, or None if no voxel reaches ``MIN_FOREGROUND``."""
        voxels = int(self._voxels)
        return float(self._total) / voxels if voxels else None


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of probabilities ``(K, *space)`` as a fraction of its maximum."""
    total: Tensor = torch.special.entr(probabilities).sum(dim=0)
    return (total / math.log(len(probabilities))).clamp(0, 1)


def may_be_foreground(probabilities: Tensor) -> Tensor:
    """Return a mask of the voxels of ``(K, *space)`` with a foreground probability of at least ``MIN_FOREGROUND``."""
    return probabilities[0] <= 1 - MIN_FOREGROUND


def to_levels(fractions: Tensor) -> Tensor:
    """Round numbers from 0 to 1 to integers from 0 to ``LEVELS``."""
    return (fractions.clamp(0, 1) * LEVELS).round().to(torch.uint8)


def decide_labels(probabilities: Tensor, settings: InferenceSettings, classes: int) -> Tensor:
    """Return the label map ``(*space)`` of probabilities ``(K, *space)``. Ties go to the lowest class."""
    if len(probabilities) != classes:
        raise ValueError(f"the network returns {len(probabilities)} classes instead of {classes}")
    if settings.decision == "threshold":
        return (probabilities[1] > 0.5).to(torch.uint8)
    # torch.argmax over the first axis is many times slower on a CPU
    labels, highest = torch.zeros_like(probabilities[0], dtype=torch.uint8), probabilities[0]
    for value in range(1, classes):
        labels.masked_fill_(probabilities[value] > highest, value)
        highest = torch.maximum(highest, probabilities[value])
    return labels


def clean_labels(labels: Tensor, settings: InferenceSettings, classes: int, voxel_ml: float | None) -> Tensor:
    """Keep or remove components as the settings request. ``voxel_ml`` is the volume of a voxel, None for a 2-D scan."""
    if rule := settings.largest_component:
        labels = largest_components(labels[None], classes, only=chosen_classes(rule))[0]
    if not settings.filtered_classes:
        return labels
    if settings.min_component_ml and voxel_ml is None:
        finding = "a 2-D scan has no volume"
        raise UserError(Code.RECIPE_MISMATCH, "inference.min_component_ml", finding, "remove this setting")
    # tolerate a relative error of 1e-6, because the voxel volume is rounded
    min_voxels = {value: ml / (voxel_ml or 1) * (1 - 1e-6) for value, ml in settings.min_component_ml.items()}
    return filter_components(labels, settings.keep_components, min_voxels)


def check_decision(settings: InferenceSettings, classes: int) -> None:
    """Raise an error if the decision rule or the component filters do not fit the number of classes."""
    if settings.decision == "threshold" and classes != 2:
        finding = f"a threshold needs exactly two classes, but there are {classes}"
        raise UserError(Code.RECIPE_MISMATCH, "inference.decision", finding, "use argmax")
    if unknown := [value for value in settings.filtered_classes if value >= classes]:
        finding = f"class {unknown[0]} is in keep_components or min_component_ml, but classes are 1 to {classes - 1}"
        raise UserError(Code.RECIPE_MISMATCH, "inference", finding, "list only classes of the data")
    if classes > 256:
        finding = f"{classes} classes, but a label map can contain at most 256"
        raise UserError(Code.RECIPE_MISMATCH, "classes", finding, "merge some classes")


@dataclass(frozen=True)
class MapFiles:
    """Names of the files of a case, or None for maps that are not written."""

    labels: str
    probabilities: str | None
    uncertainty: str | None
    picture: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Return the names of all written files."""
        names = (self.labels, self.probabilities, self.uncertainty, self.picture)
        return tuple(name for name in names if name is not None)


def names_of(case: str, extras: ExtraMaps) -> MapFiles:
    """Return the file names of a case."""
    return MapFiles(
        f"{case}.nii.gz",
        f"{case}_probabilities.nii.gz" if extras.probabilities else None,
        f"{case}_uncertainty.nii.gz" if extras.uncertainty else None,
        f"{case}.png" if extras.pictures else None,
    )


def write_maps(folder: Path, names: MapFiles, maps: ScanMaps, geometry: Geometry) -> None:
    """Write the maps of a case on the grid of its scan. The label map is written last."""
    if names.probabilities is not None and maps.probabilities is not None:
        _write_levels(folder / names.probabilities, maps.probabilities, geometry)
    if names.uncertainty is not None and maps.uncertainty is not None:
        _write_levels(folder / names.uncertainty, maps.uncertainty[None], geometry)
    if names.picture is not None:
        write_label(folder / names.picture, maps.labels, geometry)
    write_label(folder / names.labels, maps.labels, geometry)


def _write_levels(path: Path, levels: NDArray[np.uint8], geometry: Geometry) -> None:
    """Write maps ``(C, *space)`` from 0 to ``LEVELS``. 2-D maps with several channels become one-slice volumes."""
    if len(levels) > 1 and len(geometry.shape) == 2:
        levels, geometry = levels[..., None], replace(geometry, shape=(*geometry.shape, 1))
    write_scan(path, levels, geometry, slope=1 / LEVELS)


def write_classes(folder: Path, classes: tuple[str, ...]) -> None:
    """Write name, label value and color in reports of each class."""
    entries = [
        {"name": name, "value": value, "colour": color_of(value) if value else None}
        for value, name in enumerate(classes)
    ]
    write_json(folder / CLASSES, entries)


def check_classes(folder: Path, remedy: str) -> None:
    """Raise an error if the class list would overwrite an unrelated file."""
    path = folder / CLASSES
    content = read_json(path) if path.exists() else []
    is_ours = isinstance(content, list) and all(
        isinstance(entry, dict) and entry.keys() == CLASS_KEYS for entry in content
    )
    if not is_ours:
        raise UserError(Code.UNSAFE_TARGET, path, "the file exists and is not a list of classes", remedy)
