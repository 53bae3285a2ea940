"""Of which classes only the largest component stays."""

from typing import Annotated

from pydantic import Field

ComponentRule = bool | tuple[Annotated[int, Field(ge=1, le=10**9)], ...]
"""All foreground classes, none, or those of these numbers."""


def chosen_classes(rule: ComponentRule) -> tuple[int, ...] | None:
    """The classes of a rule by number; None stands for all."""
    if isinstance(rule, tuple):
        return rule
    return None if rule else ()
