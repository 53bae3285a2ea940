"""Values of a plan, each with its reason."""

from dataclasses import dataclass
from typing import Any

Choices = dict[str, "Choice"]
"""By the dotted names of settings, as in ``batches.patch`` or ``stages.0.steps``."""


@dataclass(frozen=True)
class Choice:
    """A value and why it is this one, in words."""

    value: Any
    reason: str


def tree_of(choices: Choices) -> dict[str, Any]:
    """The choices as nested settings, stages as a list."""
    tree: dict[str, Any] = {}
    for name, choice in choices.items():
        *parents, last = name.split(".")
        place = tree
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = choice.value
    if stages := tree.get("stages"):
        tree["stages"] = [stages[number] for number in sorted(stages, key=int)]
    return tree


def counted(number: int, word: str) -> str:
    """A number and its noun."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def times(sizes: tuple[int, ...]) -> str:
    """Sizes as people write them: 96 x 96 x 64."""
    return " x ".join(str(size) for size in sizes)
