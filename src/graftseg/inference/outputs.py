"""The files that a prediction writes for a case, and the list of classes beside them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.colours import colour_of
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_json
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label, write_scan
from graftseg.inference.label_maps import PARTS, ScanMaps, Wanted

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


def names_of(case: str, wanted: Wanted) -> Names:
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
        {"name": name, "value": value, "colour": colour_of(value) if value else None}
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
