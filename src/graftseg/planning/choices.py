"""Values of a plan, each with its reason, and the format of sizes in these reasons."""

from dataclasses import dataclass
from typing import Any

Choices = dict[str, "Choice"]
"""Choices by the dotted names of settings, such as ``batches.patch`` or ``stages.0.steps``."""


@dataclass(frozen=True)
class Choice:
    """A value and the reason for it."""

    value: Any
    reason: str


def tree_of(choices: Choices) -> dict[str, Any]:
    """Return the choices as nested settings, with stages as a list."""
    tree: dict[str, Any] = {}
    for name, choice in choices.items():
        *parents, last = name.split(".")
        parent = tree
        for part in parents:
            parent = parent.setdefault(part, {})
        parent[last] = choice.value
    if stages := tree.get("stages"):
        tree["stages"] = [stages[number] for number in sorted(stages, key=int)]
    return tree


def format_size(shape: tuple[int, ...]) -> str:
    """Return the shape of an array as text, such as ``96 x 96 x 64``."""
    return " x ".join(map(str, shape))
