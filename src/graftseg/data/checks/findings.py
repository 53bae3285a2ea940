"""A finding, and the grouping of similar findings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graftseg.core.errors import UserError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_LISTED = 4
"""More than ``MAX_LISTED`` warnings or notes of one kind are combined into one line."""

FIX = "`graftseg check DATA --fix OUT`"
"""The command that writes a fixed copy. Findings contain no absolute path, so the caller replaces ``DATA``."""


@dataclass(frozen=True)
class Finding:
    """One result of a check. An ``error`` makes the data unusable or the results worthless.

    ``size`` is the extent of the problem, and ``cases`` are the names of the affected cases.
    """

    severity: Severity
    what: str
    where: str
    size: str
    remedy: str
    cases: tuple[str, ...] = ()


def from_error(root: Path, error: UserError, case: str | None = None) -> Finding:
    """Return a finding for an error. Paths of files are relative to the data folder."""
    path, cases = Path(error.where), () if case is None else (case,)
    if path.is_relative_to(root):
        return Finding("error", error.finding, str(path.relative_to(root)), "1 file", error.remedy, cases)
    return Finding("error", error.finding, error.where, "1 case", error.remedy, cases)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: errors, then warnings, then notes, each by location."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.where, found.what))


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Combine more than ``MAX_LISTED`` warnings or notes of one kind into one finding.

    Errors are combined only if they are identical in several cases, such as a missing package.
    """
    kinds: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        location = (finding.where, finding.size) if finding.severity == "error" else ()
        kinds.setdefault((finding.severity, finding.what, finding.remedy, *location), []).append(finding)
    lines: list[Finding] = []
    for first, *others in kinds.values():
        cases = [name for finding in (first, *others) for name in finding.cases]
        if first.severity == "error":
            names = tuple(dict.fromkeys(cases))
            size = counted(len(names), "case") if len(names) > 1 else first.size
            lines.append(replace(first, size=size, cases=names))
        elif len(others) < MAX_LISTED:
            lines += [first, *others]
        else:
            where, size = f"{first.where} and {len(others)} more", f"{first.size}; in {len(others) + 1} cases"
            lines.append(replace(first, where=where, size=size, cases=tuple(cases)))
    return lines


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: 1 voxel, 2 voxels."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
