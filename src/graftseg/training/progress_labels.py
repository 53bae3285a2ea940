"""Which of several trainings is running and which comes next, for the lines that tell how far it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Leg:
    """A training on a way of several: what it is called, ``place`` among how many, and what ``follows`` it.

    The only one has none of these, and the one that a folder is named for has no name.
    """

    name: str = ""
    place: str = ""
    follows: str = ""

    @property
    def start(self) -> str:
        """How a line about it begins."""
        name = " ".join(part for part in (self.name, self.place and f"({self.place})") if part)
        return f"{name}, " if name else ""

    @property
    def end(self) -> str:
        """How a line about it ends."""
        return f"; {self.follows} comes next" if self.follows else ""


ALONE = Leg()
BASELINE = Leg("the baseline")
BEFORE_BASELINE = Leg(follows=BASELINE.name)


def fold_legs(folds: int, *, baseline: bool) -> Sequence[Leg]:
    """Those of all folds and then, where a baseline is trained, of all of its folds."""
    names = [f"fold {number}{of}" for of in ("", f" of {BASELINE.name}")[: 1 + baseline] for number in range(folds)]
    legs = [Leg(name, f"{number} of {len(names)}") for number, name in enumerate(names, start=1)]
    return [replace(leg, follows=name) for leg, name in zip(legs, [*names[1:], ""], strict=True)]
