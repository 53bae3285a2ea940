"""Whether two runs were scored by the same rule, on the same classes and against the same references."""

import math
from typing import Protocol

from graftseg.core.errors import Code, UserError
from graftseg.evaluation.scores import Evaluation

CLOSE = 1e-6


class Judged(Protocol):
    """Scores under a name, and what tells which references they are of."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    @property
    def evaluation(self) -> Evaluation:
        """The scores."""

    @property
    def references(self) -> str | None:
        """The place of the references, where it is told."""

    @property
    def identity(self) -> str | None:
        """What the store of the training is known by, where it is told."""


def refuse_others(first: Judged, second: Judged) -> None:
    """Scores by another rule, of other classes or against other references cannot be paired."""
    one, two = first.evaluation.protocol, second.evaluation.protocol
    if one != two:
        finding = f"scored under the protocol {two}, and {first.name} under {one}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "evaluate both with the same --protocol")
    classes = [{row.label: row.name for row in run.evaluation.rows} for run in (first, second)]
    if classes[0] != classes[1]:
        ours, theirs = _told_apart(*classes)
        finding = f"its classes are {theirs}, and not {ours}"
        raise UserError(
            Code.NOT_COMPARABLE, second.name, f"{finding} as those of {first.name}", "compare runs on the same data"
        )
    if not (_same_volumes(first, second) or _same(first.references, second.references)):
        # without the place of the references, what the runs were trained on has to tell
        untold = first.references is None or second.references is None
        if untold and _same(first.identity, second.identity):
            return
        finding = f"nothing tells that it was scored against the same references as {first.name}"
        raise UserError(
            Code.NOT_COMPARABLE,
            second.name,
            finding,
            "evaluate both runs on this machine, against the same --reference",
        )


def refuse_other_cases(first: Judged, second: Judged) -> None:
    """Means over different cases cannot be averaged."""
    ours, theirs = ({row.case for row in run.evaluation.rows} for run in (first, second))
    if apart := sorted(ours ^ theirs):
        finding = f"not scored on the same cases as {first.name} ({len(apart)} in one of the two only: {apart[0]})"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, "test both runs on the same cases")


def _told_apart(*classes: dict[int, str]) -> list[str]:
    """Classes by their names, and by their numbers too where the names alone are the same."""
    names = [", ".join(one.values()) for one in classes]
    if len(set(names)) > 1:
        return names
    return [", ".join(f"{name} ({label})" for label, name in one.items()) for one in classes]


def _same_volumes(first: Judged, second: Judged) -> bool:
    """Whether the references of the shared cases are of the same size; a 2-D image has no volume that could tell."""
    ours, theirs = (
        {(row.case, row.label): row.volume_reference_ml for row in run.evaluation.rows} for run in (first, second)
    )
    known = [key for key in ours.keys() & theirs.keys() if not math.isnan(ours[key] + theirs[key])]
    for key in sorted(known):
        if not math.isclose(ours[key], theirs[key], rel_tol=CLOSE):
            case, _ = key
            finding = f"the reference of {case} is of {theirs[key]:g} ml, and of {ours[key]:g} ml for {first.name}"
            raise UserError(Code.NOT_COMPARABLE, second.name, finding, "compare runs on the same data")
    return bool(known)


def _same(one: str | None, two: str | None) -> bool:
    return one is not None and one == two
