"""A finding, and the grouping of similar findings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import and_more, counted
from graftseg.data.folders import visible_entries

Severity = Literal["error", "warning", "note"]
FixedBy = Literal["", "--fix", "--drop"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_LISTED = 4  # more than ``MAX_LISTED`` findings of one kind are combined into one finding
FIX = "`graftseg check DATA --fix OUT`"  # findings contain no absolute path, so the caller replaces DATA
ENVIRONMENT = (Code.PACKAGE_MISSING, Code.OUT_OF_MEMORY, Code.PERMISSION_DENIED, Code.READ_FAILED)
"""Errors that may disappear on another computer, so the case is not broken."""


@dataclass(frozen=True)
class Finding:
    """One result of a check. An ``error`` makes the data unusable or the results worthless."""

    severity: Severity
    what: str
    where: str
    size: str  # extent of the problem
    remedy: str
    cases: tuple[str, ...] = ()  # names of the affected cases
    fixed_by: FixedBy = ""  # option of ``graftseg check`` that fixes the problem in a copy, or leaves the cases out
    unit: Literal["", "file", "case"] = ""  # what ``size`` counts if similar findings are counted


def from_error(root: Path, error: UserError, case: str | None = None) -> Finding:
    """Return a finding for an error. Paths of files are relative to the data folder."""
    path, cases = Path(error.where), () if case is None else (case,)
    fixed_by: FixedBy = "" if case is None or error.code in ENVIRONMENT else "--drop"
    if path.is_relative_to(root):
        # a folder with a wrong name is a problem of all its files, but a folder of DICOM slices is one file
        is_folder = error.code is Code.LAYOUT_UNKNOWN and path.is_dir()
        size = counted(len(visible_entries(path)), "file") if is_folder else "1 file"
        return Finding("error", error.finding, str(path.relative_to(root)), size, error.remedy, cases, fixed_by, "file")
    return Finding("error", error.finding, error.where, "1 case", error.remedy, cases, fixed_by, "case")


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: errors, then warnings, then notes, each by location."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.where, finding.what))


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Combine more than ``MAX_LISTED`` findings of one kind, and errors at the same place in several cases.

    Errors in files are of one kind if they differ only in numbers, such as the index of a voxel.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in _without_repetitions(findings):
        kind = re.sub(r"\d[\d.]*", "0", finding.what) if finding.unit == "file" else finding.what
        groups.setdefault((finding.severity, kind, finding.remedy), []).append(finding)
    listed = (group if len(group) <= MAX_LISTED else [_combined(group)] for group in groups.values())
    return [finding for group in listed for finding in group]


def _without_repetitions(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings. Errors that differ only in the case become one error for all these cases."""
    same: dict[Finding, list[str]] = {}
    for finding in findings:
        key = replace(finding, cases=()) if finding.severity == "error" else finding
        same.setdefault(key, []).extend(finding.cases)
    for finding, cases in same.items():
        names = tuple(dict.fromkeys(cases))
        is_repeated = finding.severity == "error" and len(names) > 1
        yield replace(finding, size=counted(len(names), "case") if is_repeated else finding.size, cases=names)


def _combined(group: Sequence[Finding]) -> Finding:
    """Return one finding for several findings of one kind. Files that belong to no case are listed as cases."""
    first, total = group[0], len(group)
    names = [name for finding in group for name in finding.cases or (finding.where,)]
    is_same = all(finding.what == first.what for finding in group)
    what = first.what if is_same else f"{first.what} (in the first file)"
    where, size = and_more(first.where, total), f"{first.size}; in {total} cases"
    if first.unit:
        size = counted(total, first.unit)
    return replace(first, what=what, where=where, size=size, cases=tuple(dict.fromkeys(names)))
