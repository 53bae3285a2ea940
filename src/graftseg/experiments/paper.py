"""The rows of the paper's tables, in the order of the paper."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of a table: its name in the paper and its recipe."""

    name: str
    recipe: str


@dataclass(frozen=True)
class Table:
    """A table of the paper. Its rows are methods or, without ``of_methods``, variants of one method."""

    title: str
    rows: tuple[Row, ...]
    of_methods: bool = False


def benchmark_of(recipe: str) -> str:
    """Return the data set of a recipe: ``la`` for ``la-8/bcp``."""
    return recipe.partition("/")[0].partition("-")[0]


def _rows(settings: Iterable[str], names: Mapping[str, str]) -> tuple[Row, ...]:
    """Return a row for each setting and each method. ``names`` maps methods to their names in the paper."""
    return tuple(Row(name, f"{setting}/{method}") for setting in settings for method, name in names.items())


_LA, _ACDC = ("la-4", "la-8"), ("acdc-3", "acdc-7")
_CONSISTENCY = {"ua-mt": "UA-MT", "sassnet": "SASSNet", "dtc": "DTC"}
_METHODS = {**_CONSISTENCY, "urpc": "URPC", "mc-net": "MC-Net", "ss-net": "SS-Net", "bcp": "BCP"}
_ADVERSARIAL = {"dan": "DAN", "advent": "ADVNET"}
_PANCREAS = {"supervised": "V-Net", **_ADVERSARIAL, **_CONSISTENCY, "coranet": "CoraNet", "bcp": "BCP"}
_DIRECTIONS = {"bcp-in": "In", "bcp-out": "Out", "bcp-within": "CP", "bcp": "BCP"}
_INTERPOLATION = {"mixup": "Mixup", "fg-cutmix": "FG-CutMix", "bcp": "BCP"}
_MASKS = {"bcp-random": "random", "bcp-contact": "contact", "bcp": "zero-centered"}
_BETA = {"bcp-beta-1-3": "β = 1/3", "bcp-beta-1-2": "β = 1/2", "bcp": "β = 2/3", "bcp-beta-5-6": "β = 5/6"}
_ALPHA = {"bcp": "α = 0.5", "bcp-alpha-1.5": "α = 1.5", "bcp-alpha-2.5": "α = 2.5"}
_INIT = {"bcp-init-random": "random", "bcp-init-plain": "w/o CP", "bcp": "with CP"}
_COMPONENTS = {"bcp-none": "none", "bcp-alone": "BCP", "bcp-components": "BCP, nms", "bcp": "BCP, nms, Pre-Train"}
TABLES = {
    "la": Table(
        "Left atrium (LA)", _rows((*_LA, "la-80"), {"supervised": "V-Net"}) + _rows(_LA, _METHODS), of_methods=True
    ),
    "acdc": Table(
        "Heart (ACDC)", _rows((*_ACDC, "acdc-70"), {"supervised": "U-Net"}) + _rows(_ACDC, _METHODS), of_methods=True
    ),
    "pancreas": Table("Pancreas (NIH)", _rows(("pancreas-12",), _PANCREAS), of_methods=True),
    "directions": Table("Directions of copy-paste", _rows((*_LA, *_ACDC), _DIRECTIONS)),
    "interpolation": Table("Other ways to mix", _rows(_LA, _INTERPOLATION)),
    "masks": Table("Masks", _rows(_LA, _MASKS)),
    "beta": Table("Size of the mask, β", _rows(_LA, _BETA)),
    "alpha": Table("Weight of the pseudo-labels, α", _rows((*_LA, *_ACDC), _ALPHA)),
    "init": Table("Pre-training", _rows(_LA, _INIT)),
    "components": Table("Parts of the method", _rows(("acdc-3",), _COMPONENTS)),
}
"""Tables by their names on the command line."""
ALL = "all"  # all tables, on the command line
MAX_SEEDS = 100  # upper limit for the number of seeds of a recipe
