"""Checks of label maps: values, classes, test labels, islands, and mirrored label maps."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.phrases import and_more, class_name, counted
from graftseg.data.checks.findings import FIX, Finding, FixedBy, Severity
from graftseg.data.dataset import Dataset
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint
from graftseg.data.labels import (
    LARGEST_VALUE,
    MASK_VALUE,
    MEANS_ONE,
    LabelProblem,
    class_problem,
    is_mask,
    mask_instead_of_one,
    value_problems,
)
from graftseg.data.pieces import Pieces

MANY_ISLANDS = 20  # more islands of a class in one label map are a warning, fewer are a note
FIX_VALUES = f"{FIX} writes a copy with the values "
MIN_GAP = 0.05  # minimum distance of two class centers, as a share of the width, for one to be left of the other
MIN_OTHERS = 3  # minimum number of other label maps, which must all have one order, to report the opposite order
MAX_RATIO = 3.0  # maximum ratio of the largest to the smallest distance of two classes whose order is compared
Centers = Mapping[str, dict[int, float]]  # by case and class


def value_findings(cases: Sequence[CaseFingerprint], classes: dict[int, str]) -> list[list[Finding]]:
    """Report, for each case, an empty label map and values that are not in the class list."""
    odd = _mask_instead_of_one(cases)
    return [list(_value_findings(case.name, case.label_counts, classes, is_one=case is odd)) for case in cases]


def _mask_instead_of_one(cases: Sequence[CaseFingerprint]) -> CaseFingerprint | None:
    """Return the only case whose label map has 255 and probably means 1, or None."""
    labeled = [case for case in cases if case.label_counts]
    index = mask_instead_of_one([case.label_counts for case in labeled])
    return None if index is None else labeled[index]


def _value_findings(name: str, counts: dict[int, int], classes: dict[int, str], *, is_one: bool) -> Iterator[Finding]:
    """Report the values of one label map. ``is_one`` means that 255 probably means 1."""
    if set(counts) == {0}:
        size = f"all {counts[0]} voxels are background"
        remedy = "check that the label map is finished; it is correct if the scan shows none of the classes"
        yield Finding("warning", "the label map is empty", name, size, remedy, (name,))
    for value, problem in value_problems(counts.keys(), classes) if classes else ():
        size = f"{counted(counts[value], 'voxel')}, {100 * counts[value] / sum(counts.values()):.2g} %"
        fixed_by: FixedBy = "--fix" if problem.fixed_values else "--drop"
        remedy = MEANS_ONE if is_one and value == MASK_VALUE and not problem.fixed_values else _remedy(problem)
        yield Finding("error", problem.what, name, size, remedy, (name,), fixed_by)


def _remedy(problem: LabelProblem) -> str:
    return f"{FIX_VALUES}{problem.fixed_values}" if problem.fixed_values else problem.remedy


def class_findings(dataset: Dataset, summaries: Fingerprint) -> Iterator[Finding]:
    """Compare the class list with the label values that occur."""
    present = sorted({0, *summaries.label_counts})
    if not dataset.classes and present == [0, MASK_VALUE]:
        what, size = "the label maps are masks of 0 and 255", "255 is above the largest allowed value, 254"
        yield Finding("error", what, "label maps", size, f"{FIX_VALUES}0 and 1", fixed_by="--fix")
        return
    if not dataset.classes and present != list(range(len(present))):
        is_one = _mask_instead_of_one(summaries.cases) is not None
        yield from _gap_findings(present, summaries.of("labeled"), is_one=is_one)
        return
    listed = dataset.classes or {value: class_name(value) for value in present}
    values = sorted(listed)
    if problem := class_problem(values):
        fixed_by: FixedBy = "--fix" if problem.fixed_values else ""
        yield Finding("error", problem.what, "dataset.json", problem.size, _remedy(problem), fixed_by=fixed_by)
        if not problem.fixed_values:
            return
    # report nothing if a label map cannot be read, because it may contain the missing class
    if all(case.label_counts for case in summaries.of("labeled")):
        shown = {*present, 1} if values == [0, 1] and MASK_VALUE in present else {*present}
        for value in (value for value in values[1:] if value not in shown):
            what = f"no labeled case contains {listed[value]} (value {value})"
            size = f"0 of {len(summaries.of('labeled'))} cases"
            yield Finding("warning", what, "label maps", size, "label a case with this class or remove the class")


def tested_label_findings(dataset: Dataset, summaries: Fingerprint) -> Iterator[Finding]:
    """Compare the classes of the test labels with those of the labeled cases, if all label maps can be read."""
    tested, trained = summaries.of("test"), {0, *summaries.label_counts}
    labeled_tests = [case for case in tested if case.label_counts]
    if not labeled_tests or not all(case.label_counts for case in summaries.of("labeled")) or is_mask(trained):
        return
    if not dataset.classes:
        for case in labeled_tests:
            yield from _untrained_values(case, trained)
    if _mask_instead_of_one(summaries.cases):
        trained = trained - {MASK_VALUE} | {1}
    if dataset.classes:  # other values are already reported
        trained &= dataset.classes.keys()
    if len(labeled_tests) == sum(case.label is not None for case in dataset.of("test")):
        for value in sorted(trained.difference({0}, *(case.label_counts for case in labeled_tests))):
            what = f"no test label contains {dataset.classes.get(value, f'class {value}')} (value {value})"
            size = f"0 of {counted(len(labeled_tests), 'case')}"
            yield Finding("warning", what, "test labels", size, "add a test scan with this class, to score the class")


def _untrained_values(case: CaseFingerprint, trained: set[int]) -> Iterator[Finding]:
    """Report values of a test label that occur in no labeled case. They cannot be scored."""
    if is_mask(case.label_counts) and trained == {0, 1}:
        yield from _value_findings(case.name, case.label_counts, dict.fromkeys(trained, ""), is_one=False)
        return
    for value in sorted(case.label_counts.keys() - trained):
        what = f"no labeled case contains the value {value} of a test label"
        size, remedy = counted(case.label_counts[value], "voxel"), "correct the label, or label cases with this class"
        yield Finding("error", what, case.name, size, remedy, (case.name,), "--drop")


def island_findings(cases: tuple[CaseFingerprint, ...], classes: dict[int, str]) -> Iterator[Finding]:
    """Report tiny separate pieces of each class. The case with the most islands comes first."""
    for value in sorted({value for case in cases for value in case.pieces}):
        with_class = [(case.pieces[value], case.name) for case in cases if value in case.pieces]
        for pieces, name in sorted(with_class, key=lambda pair: (-pair[0].islands, -pair[0].island_voxels, pair[1])):
            if pieces.islands:
                yield _island_finding(name, classes.get(value, class_name(value)), pieces)


def _island_finding(name: str, class_name: str, pieces: Pieces) -> Finding:
    low, high = pieces.island_sizes
    each = counted(low, "voxel") if low == high else f"{low} to {counted(high, 'voxel')}"
    share = 100 * pieces.island_voxels / pieces.voxels
    main = counted(pieces.count - pieces.islands, "piece")
    total = f"{counted(pieces.island_voxels, 'voxel')}, {share:.2g} % of the class"
    size = f"{counted(pieces.islands, 'island')} of {each} besides {main}: {total}, the largest at {pieces.island_at}"
    severity: Severity = "warning" if pieces.islands > MANY_ISLANDS else "note"
    remedy = "erase the islands if they are annotation errors"
    return Finding(severity, f"islands of a few voxels in {class_name}", name, size, remedy, (name,))


def _gap_findings(present: list[int], labeled: tuple[CaseFingerprint, ...], *, is_one: bool) -> Iterator[Finding]:
    """Report gaps between label values, in a data set without a class list. ``is_one``: 255 probably means 1."""
    first_gap = min(set(range(present[-1])) - set(present))
    cases = tuple(case.name for case in labeled if max(case.label_counts, default=0) > first_gap)
    absent = present[-1] + 1 - len(present)
    missing = f"{counted(absent, 'value')} {'is' if absent == 1 else 'are'} missing"
    occur = ", ".join(map(str, present[:8])) + (", ..." if len(present) > 8 else "")
    severity: Severity = "error" if present[-1] > LARGEST_VALUE else "warning"
    remedy = f"{FIX_VALUES}0, 1, 2, ..., or name the classes in dataset.json"
    fixed_by: FixedBy = "" if MASK_VALUE in present else "--fix"
    if MASK_VALUE in present:
        remedy = MEANS_ONE if is_one else "name the class 255 in dataset.json, or set unassigned voxels to 0"
    above = [value for value in present if value > first_gap]
    values = f"the value {above[0]}" if len(above) == 1 else f"values from {above[0]}"
    size = f"{occur} occur, {missing} below {present[-1]}; {len(cases)} of {len(labeled)} cases contain {values}"
    where = and_more(cases[0], len(cases))
    yield Finding(severity, "the label values have gaps", where, size, remedy, cases, fixed_by)


def left_right_centers(summary: CaseFingerprint, label: NDArray[Any]) -> dict[int, float]:
    """Return the center of each class in a volume, from 0 (left edge) to 1 (right edge). 2-D scans have no sides."""
    if label.ndim != 3:
        return {}
    axis = summary.canonical_order[0]
    across = tuple(other for other in range(3) if other != axis)
    centers = {}
    for value in summary.pieces:
        counts = (label == value).sum(axis=across)
        center = float((counts * (np.arange(len(counts)) + 0.5)).sum() / counts.sum() / len(counts))
        centers[value] = center if summary.orientation[axis] == "R" else 1 - center
    return centers


def side_findings(centers: Centers, classes: Mapping[int, str]) -> Iterator[Finding]:
    """Report each label map in which the left-right order of two classes is opposite to all other label maps."""
    values = sorted({value for case in centers.values() for value in case})
    reported = set()
    for pair in combinations(values, 2):
        gaps = {name: case[pair[1]] - case[pair[0]] for name, case in centers.items() if case.keys() >= {*pair}}
        odd = _odd_case(gaps)
        if odd is None or odd in reported:
            continue
        reported.add(odd)
        left, right = (classes.get(value, class_name(value)) for value in (pair if gaps[odd] < 0 else pair[::-1]))
        what = f"{left} is left of {right} in {len(gaps) - 1} of {len(gaps)} labels, but not in {odd}"
        size = f"{right} is {100 * abs(gaps[odd]):.0f} % of the width left of {left}"
        yield Finding("warning", what, odd, size, "look at the label map; it may be mirrored", (odd,))


def _odd_case(gaps: Mapping[str, float]) -> str | None:
    """Return the only case with the opposite order, or None if classes overlap or lie at varying distances."""
    sizes = [abs(gap) for gap in gaps.values()]
    if len(sizes) <= MIN_OTHERS or min(sizes) <= MIN_GAP or max(sizes) > MAX_RATIO * min(sizes):
        return None
    for sign in (-1, 1):
        odd = [name for name, gap in gaps.items() if sign * gap > 0]
        if len(odd) == 1:
            return odd[0]
    return None
