"""What a scan's files leave open, so that reading them is guessing: told, never passed over in silence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LISTED = 4
"""So many guesses of one kind keep a line of their own."""


@dataclass(frozen=True)
class Guess:
    """What is open, in which file or folder, what was taken for it, and how to make it certain."""

    where: Path
    what: str
    taken: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.taken}); {self.remedy}"


def told(guesses: Iterable[Guess]) -> Iterator[str]:
    """A line for each guess; many of one kind are one line, under the first of them."""
    kinds: dict[tuple[str, str], list[Guess]] = {}
    for guess in guesses:
        kinds.setdefault((guess.what, guess.remedy), []).append(guess)
    for kind in kinds.values():
        if len(kind) <= LISTED:
            yield from map(str, kind)
        else:
            first = kind[0]
            yield f"{first.where} and {len(kind) - 1} more: {first.what} ({first.taken}); {first.remedy}"
