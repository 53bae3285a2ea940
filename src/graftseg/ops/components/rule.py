"""Rule that selects the classes to be reduced to their largest component."""

from typing import Annotated

from pydantic import Field

ComponentRule = bool | tuple[Annotated[int, Field(ge=1, le=10**9)], ...]
"""True selects all foreground classes, False none, and a tuple the listed class numbers."""


def chosen_classes(rule: ComponentRule) -> tuple[int, ...] | None:
    """Return the class numbers that a rule selects; None means all foreground classes."""
    if isinstance(rule, tuple):
        return rule
    return None if rule else ()
