"""Labeled cases that a training does not see."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol, TypeVar

from graftseg.core.errors import Code, UserError
from graftseg.core.names import same_names


class Named(Protocol):
    """Anything that has the name of a case."""

    @property
    def name(self) -> str:
        """The name."""
        ...


Listed = TypeVar("Listed", bound=Named)


def seen(where: Path, labeled: tuple[Listed, ...], held_out: Collection[str]) -> tuple[Listed, ...]:
    """The labeled cases without those that are held out; a name that is none of them may be a slip and is refused."""
    known = same_names(held_out, (case.name for case in labeled))
    if unknown := sorted(set(held_out) - known):
        finding = f"batches.held_out names {unknown[0]}, which is no labeled case ({len(unknown)} such names)"
        raise UserError(Code.TOO_FEW_CASES, where, finding, "name labeled cases")
    return tuple(case for case in labeled if not same_names([case.name], held_out))
