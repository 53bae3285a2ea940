"""Rule for the classes of which only the largest component is kept."""

from typing import Annotated

from pydantic import Field

ComponentRule = bool | tuple[Annotated[int, Field(ge=1, le=10**9)], ...]
"""All foreground classes, none, or the listed class numbers."""


def chosen_classes(rule: ComponentRule) -> tuple[int, ...] | None:
    """Return the class numbers of a rule; None means all."""
    if isinstance(rule, tuple):
        return rule
    return None if rule else ()
