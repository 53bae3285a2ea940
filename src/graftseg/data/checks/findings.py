"""A finding, and how many of one kind become one line."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graftseg.core.errors import UserError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
LISTED = 4
"""So many warnings or notes of one kind keep a line of their own."""

FIX = "`graftseg check DATA --fix OUT`"
"""The command that mends a copy; no finding tells where the data lie, so whoever knows puts that in for ``DATA``."""


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing. An ``error`` keeps the data from being used or makes a result worthless.

    ``cases`` are the names of the cases it is about, where it is about any.
    """

    severity: Severity
    what: str
    where: str
    size: str
    remedy: str
    cases: tuple[str, ...] = ()


def from_error(root: Path, error: UserError, case: str | None = None) -> Finding:
    """What cannot be read, as a finding; a file is named by its place in the folder."""
    path, cases = Path(error.where), () if case is None else (case,)
    if path.is_relative_to(root):
        return Finding("error", error.finding, str(path.relative_to(root)), "1 file", error.remedy, cases)
    return Finding("error", error.finding, error.where, "1 case", error.remedy, cases)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; each by place."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.where, found.what))


def gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Many warnings or notes of one kind as one, under the first of them; every error keeps its line.

    An error that is word for word the same for several cases, such as a package that is missing, is told once.
    """
    kinds: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        own = (finding.where,) if finding.severity == "error" else ()
        kinds.setdefault((finding.severity, finding.what, finding.remedy, *own), []).append(finding)
    lines: list[Finding] = []
    for kind in kinds.values():
        if kind[0].severity == "error":
            lines += _repeated_once(kind)
        else:
            lines += kind if len(kind) <= LISTED else [_as_one(kind)]
    return lines


def _repeated_once(errors: Sequence[Finding]) -> Iterator[Finding]:
    """Errors of one kind and place, those of the same size as one with all of their cases."""
    sizes: dict[str, list[Finding]] = {}
    for error in errors:
        sizes.setdefault(error.size, []).append(error)
    for size, same in sizes.items():
        cases = tuple(dict.fromkeys(name for error in same for name in error.cases))
        yield replace(same[0], size=counted(len(cases), "case") if len(cases) > 1 else size, cases=cases)


def _as_one(kind: Sequence[Finding]) -> Finding:
    first, cases = kind[0], tuple(name for finding in kind for name in finding.cases)
    where, size = f"{first.where} and {len(kind) - 1} more", f"{first.size}; in {len(kind)} cases"
    return replace(first, where=where, size=size, cases=cases)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 voxel, 2 voxels."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
