"""Label values with gaps, and masks of 0 and 255: which values they become so that classes count 0, 1, 2, ..."""

from collections.abc import Sequence
from dataclasses import dataclass

MASK = 255


@dataclass(frozen=True)
class Renumbering:
    """Old label values with their new ones, and the names of these where the list of classes has to change."""

    values: dict[int, int]
    classes: dict[int, str]

    @property
    def changes(self) -> dict[int, int]:
        """The values that do not stay what they are."""
        return {old: new for old, new in self.values.items() if old != new}


def renumber(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | str | None:
    """How the values of a data set are to be renumbered; None if they need not be, or why nobody but a person can tell.

    ``classes`` are the listed ones, and ``counts`` has, for every label map, how many voxels have which value. Listed
    classes keep their names and their order. A value of 255 is taken for the only class where no label map shows
    another one beside it; beside others it often marks voxels to ignore.
    """
    found = {value for label_map in counts for value in label_map}
    if not _consecutive(found | {0}) and MASK in found and (mask := _mask(classes, counts)):
        return mask
    if classes:
        if unlisted := sorted(found - classes.keys()):
            return f"the label value {unlisted[0]} has no class: name it in dataset.json or correct the label maps"
        return None if _consecutive(classes) else _in_order(classes)
    if _consecutive(found | {0}):
        return None
    if MASK in found:
        return "255 stands beside other label values: say in dataset.json what it is, or set voxels of no class to 0"
    return _in_order({value: f"label {value}" if value else "background" for value in found | {0}})


def _mask(classes: dict[int, str], counts: Sequence[dict[int, int]]) -> Renumbering | None:
    """255 for the only class, whether or not other label maps number it 1; None where a label map shows more."""
    if set(classes) not in (set(), {0, 1}):
        return None
    if any(set(label_map) not in ({0}, {0, 1}, {0, MASK}, {1}, {MASK}) for label_map in counts):
        return None
    return Renumbering({0: 0, 1: 1, MASK: 1}, {})


def _in_order(classes: dict[int, str]) -> Renumbering:
    values = {old: new for new, old in enumerate(sorted(classes))}
    return Renumbering(values, {new: classes[old] for old, new in values.items()})


def _consecutive(values: set[int] | dict[int, str]) -> bool:
    return sorted(values) == list(range(len(values)))
