"""What is kept of a scan's probabilities: its labels and, where they are asked for, the rest in parts of 255.

The uncertainty of a voxel is the entropy of its probabilities, divided by that of a draw among all classes: 0 where one
class is certain, 1 where all are equally probable.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.core.colors import color_of
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_json
from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, to_source_axes
from graftseg.data.scans import write_label, write_scan
from graftseg.recipes.settings import InferenceSettings

Changed = TypeVar("Changed")

PARTS = 255
"""A probability, or an uncertainty, is kept as a whole number of parts of one, which errs by at most 0.002."""

BAND = 0.05
"""The mean uncertainty of a scan is over the voxels whose probability of any foreground is at least this."""


@dataclass(frozen=True)
class ExtraMaps:
    """What is kept besides the labels; ``pictures`` are the labels once more, as PNG files."""

    probabilities: bool = False
    uncertainty: bool = False
    pictures: bool = False


@dataclass(frozen=True)
class ScanMaps:
    """Labels ``(*space)`` uint8 on the grid of a scan; probabilities ``(K, *space)`` and uncertainty in ``PARTS``.

    ``mean_uncertainty`` is from 0 to 1, None where it was not asked for or nothing looks like foreground.
    """

    labels: NDArray[np.uint8]
    probabilities: NDArray[np.uint8] | None = None
    uncertainty: NDArray[np.uint8] | None = None
    mean_uncertainty: float | None = None


@dataclass(frozen=True)
class Maps:
    """The same on the way there: labels on the device, all else in the memory of the host."""

    labels: Tensor
    probabilities: Tensor | None
    uncertainty: Tensor | None
    mean_uncertainty: float | None

    def moved(self, change: Callable[[Tensor], Tensor]) -> "Maps":
        """All maps after a change of their last axes, those of space."""
        return Maps(*self._each(change), self.mean_uncertainty)

    def cleaned(self, labels: Tensor) -> "Maps":
        """The maps with other labels."""
        return replace(self, labels=labels)

    def on_scan(self, grid: Grid) -> ScanMaps:
        """The maps along the axes of the scan."""
        return ScanMaps(*self._each(lambda one: to_source_axes(one.cpu().numpy(), grid)), self.mean_uncertainty)

    def _each(self, change: Callable[[Tensor], Changed]) -> tuple[Changed, Changed | None, Changed | None]:
        probabilities = None if self.probabilities is None else change(self.probabilities)
        uncertainty = None if self.uncertainty is None else change(self.uncertainty)
        return change(self.labels), probabilities, uncertainty


@dataclass(frozen=True)
class Rules:
    """How probabilities of so many classes on a device become maps, and which.

    With ``doubted``, channels beyond the classes are the probabilities that uncertainty is told from.
    """

    settings: InferenceSettings
    classes: int
    device: torch.device
    wanted: ExtraMaps
    doubted: bool = False


def collected(slabs: Iterable[tuple[int, Tensor]], shape: Sequence[int], rules: Rules) -> Maps:
    """The maps of slabs ``(K, n, *rest)``, which cover ``shape`` once; for labels alone none waits for the host."""
    space, device, wanted = tuple(shape), rules.device, rules.wanted
    labels = torch.empty(space, dtype=torch.uint8, device=device)
    probabilities = torch.empty((rules.classes, *space), dtype=torch.uint8) if wanted.probabilities else None
    doubt = _Doubt(space, device) if wanted.uncertainty else None
    finite = torch.ones((), dtype=torch.bool, device=device)
    for start, both in slabs:
        here = slice(start, start + both.shape[1])
        finite &= both.isfinite().all()
        is_apart = rules.doubted and doubt is not None
        slab, doubted = (both[: rules.classes], both[rules.classes :]) if is_apart else (both, both)
        labels[here] = decide(slab, rules.settings, rules.classes)
        if probabilities is not None:
            probabilities[:, here] = in_parts(slab).cpu()
        if doubt is not None:
            doubt.add(here, doubted)
    _check_finite(finite)
    if doubt is None:
        return Maps(labels, probabilities, None, None)
    return Maps(labels, probabilities, doubt.map, doubt.mean())


class _Doubt:
    """The uncertainty of a scan as its slabs come in."""

    def __init__(self, space: tuple[int, ...], device: torch.device) -> None:
        self.map = torch.empty(space, dtype=torch.uint8)
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self._voxels = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, here: slice, probabilities: Tensor) -> None:
        uncertainty = entropy(probabilities)
        self.map[here] = in_parts(uncertainty).cpu()
        band = probabilities[0] <= 1 - BAND
        self._total += torch.where(band, uncertainty, 0).sum(dtype=torch.float64)
        self._voxels += band.sum()

    def mean(self) -> float | None:
        voxels = int(self._voxels)
        return float(self._total) / voxels if voxels else None


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy of probabilities ``(K, *space)`` as a share of the largest there can be."""
    total: Tensor = torch.special.entr(probabilities).sum(dim=0)
    return (total / math.log(len(probabilities))).clamp(0, 1)


def in_parts(shares: Tensor) -> Tensor:
    """Numbers from 0 to 1 in whole parts of ``PARTS``, to the nearest."""
    return (shares.clamp(0, 1) * PARTS).round().to(torch.uint8)


def decide(probabilities: Tensor, settings: InferenceSettings, classes: int) -> Tensor:
    """Probabilities ``(K, *space)`` -> labels ``(*space)``; of equally probable classes the lowest."""
    if len(probabilities) != classes:
        raise ValueError(f"the network gives {len(probabilities)} classes instead of {classes}")
    if settings.decision == "threshold":
        return (probabilities[1] > 0.5).to(torch.uint8)
    return probabilities.argmax(dim=0).to(torch.uint8)


def check_decision(settings: InferenceSettings, classes: int) -> None:
    """Refuse settings by which so many classes cannot be decided on."""
    if settings.decision == "threshold" and classes != 2:
        raise UserError(
            Code.RECIPE_MISMATCH,
            "inference.decision",
            f"a threshold decides between two classes and there are {classes}",
            "use argmax",
        )
    if classes > 256:
        raise UserError(
            Code.RECIPE_MISMATCH, "classes", f"{classes} classes, of which a label map holds 256", "merge some of them"
        )


def _check_finite(finite: Tensor) -> None:
    if not finite:
        raise UserError(
            Code.RECIPE_MISMATCH,
            "prediction",
            "the network gives probabilities that are not finite",
            "check the scan's intensities and the run's losses, or predict in full precision",
        )


CLASSES = "classes.json"


@dataclass(frozen=True)
class Names:
    """The files of a case within the folder; None where one is not wanted."""

    labels: str
    probabilities: str | None
    uncertainty: str | None
    picture: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """The files that are there."""
        names = (self.labels, self.probabilities, self.uncertainty, self.picture)
        return tuple(name for name in names if name is not None)


def names_of(case: str, wanted: ExtraMaps) -> Names:
    """How the files of a case are called."""
    return Names(
        f"{case}.nii.gz",
        f"{case}_probabilities.nii.gz" if wanted.probabilities else None,
        f"{case}_uncertainty.nii.gz" if wanted.uncertainty else None,
        f"{case}.png" if wanted.pictures else None,
    )


def write_maps(folder: Path, names: Names, maps: ScanMaps, geometry: Geometry) -> None:
    """Write the maps of a case on the grid of its scan, the label map last."""
    if names.probabilities is not None and maps.probabilities is not None:
        _write_parts(folder / names.probabilities, maps.probabilities, geometry)
    if names.uncertainty is not None and maps.uncertainty is not None:
        _write_parts(folder / names.uncertainty, maps.uncertainty[None], geometry)
    if names.picture is not None:
        write_label(folder / names.picture, maps.labels, geometry)
    write_label(folder / names.labels, maps.labels, geometry)


def _write_parts(path: Path, parts: NDArray[np.uint8], geometry: Geometry) -> None:
    """Write ``(C, *space)``; of a 2-D scan several channels as a volume of one slice, which a file can hold."""
    if len(parts) > 1 and len(geometry.shape) == 2:
        parts, geometry = parts[..., None], replace(geometry, shape=(*geometry.shape, 1))
    write_scan(path, parts, geometry, slope=1 / PARTS)


def write_classes(folder: Path, classes: tuple[str, ...]) -> None:
    """Say which value of a label map stands for which class, and in which colour the report shows it."""
    listed = [
        {"name": name, "value": value, "colour": color_of(value) if value else None}
        for value, name in enumerate(classes)
    ]
    write_json(folder / CLASSES, listed)


def check_classes(folder: Path, remedy: str) -> None:
    """Refuse to replace a file of that name that is something else."""
    path = folder / CLASSES
    if path.exists() and not _is_list_of_classes(read_json(path)):
        raise UserError(Code.UNSAFE_TARGET, path, "the file exists and is not a list of classes", remedy)


def _is_list_of_classes(content: Any) -> bool:
    keys = {"name", "value", "colour"}
    return isinstance(content, list) and all(isinstance(one, dict) and one.keys() == keys for one in content)
