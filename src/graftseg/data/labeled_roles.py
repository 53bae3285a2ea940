"""The roles of labeled cases in a training: labeled, hidden, validation and held out."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from graftseg.core.errors import Code, UserError
from graftseg.core.names import same_names


class Named(Protocol):
    """An object with the name of a case, such as ``Case`` or ``StoredCase``."""

    @property
    def name(self) -> str:
        """The name of the case."""


NamedCase = TypeVar("NamedCase", bound=Named)


@dataclass(frozen=True)
class LabeledRoles(Generic[NamedCase]):
    """Labeled cases by role."""

    labeled: tuple[NamedCase, ...]  # used for training with their labels
    hidden: tuple[NamedCase, ...]  # used for training without their labels
    validation: tuple[NamedCase, ...]  # scored during training
    held_out: tuple[NamedCase, ...]  # not used


def divide_labeled(
    where: Path,
    cases: tuple[NamedCase, ...],
    labeled_cases: int | None,
    validation_cases: int,
    held_out: Collection[str],
) -> LabeledRoles[NamedCase]:
    """Divide labeled cases into roles.

    Cases named in ``held_out`` are not used. Of the others, the last ``validation_cases`` are for validation. Of those
    before them, the first ``labeled_cases`` (by default all) are used with labels, and the rest without labels.
    """
    if unknown := sorted(set(held_out) - same_names(held_out, (case.name for case in cases))):
        finding = f"batches.held_out contains {unknown[0]}, which is not a labeled case"
        raise UserError(Code.UNKNOWN_NAME, where, finding, "list names of labeled cases")
    names = same_names((case.name for case in cases), held_out)
    used = tuple(case for case in cases if case.name not in names)
    first_validation = len(used) - validation_cases
    count = labeled_cases or max(first_validation, 1)
    if count > first_validation:
        requested = f"{count} labeled and {validation_cases} validation cases are requested"
        finding = f"{requested}, but only {len(used)} labeled cases are available"
        remedy = "label more scans or lower batches.labeled_cases or batches.validation_cases"
        raise UserError(Code.TOO_FEW_CASES, where, finding, remedy)
    unused = tuple(case for case in cases if case.name in names)
    return LabeledRoles(used[:count], used[count:first_validation], used[first_validation:], unused)
