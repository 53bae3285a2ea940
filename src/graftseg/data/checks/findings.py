"""A finding, and the grouping of similar findings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graftseg.core.errors import UserError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_LISTED = 4
"""More warnings or notes of one kind are combined into one line."""

FIX = "`graftseg check DATA --fix OUT`"
"""The command that writes a fixed copy; findings contain no absolute path, so the caller replaces ``DATA``."""


@dataclass(frozen=True)
class Finding:
    """One result of a check. An ``error`` makes the data unusable or the results worthless.

    ``cases`` are the names of the affected cases.
    """

    severity: Severity
    what: str
    where: str
    size: str
    remedy: str
    cases: tuple[str, ...] = ()


def from_error(root: Path, error: UserError, case: str | None = None) -> Finding:
    """Return a finding for an error; files are named relative to the data folder."""
    path, cases = Path(error.where), () if case is None else (case,)
    if path.is_relative_to(root):
        return Finding("error", error.finding, str(path.relative_to(root)), "1 file", error.remedy, cases)
    return Finding("error", error.finding, error.where, "1 case", error.remedy, cases)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: errors, then warnings, then notes, each by location."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.where, found.what))


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Combine many warnings or notes of one kind into one finding; errors stay separate.

    Only identical errors of several cases, such as a missing package, are combined.
    """
    kinds: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        own = (finding.where,) if finding.severity == "error" else ()
        kinds.setdefault((finding.severity, finding.what, finding.remedy, *own), []).append(finding)
    lines: list[Finding] = []
    for kind in kinds.values():
        if kind[0].severity == "error":
            lines += _without_repetitions(kind)
        else:
            lines += kind if len(kind) <= MAX_LISTED else [_as_one(kind)]
    return lines


def _without_repetitions(errors: Sequence[Finding]) -> Iterator[Finding]:
    """Combine errors of one kind and location that also have the same size."""
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
    """Return a number with its noun: 1 voxel, 2 voxels."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
