"""Check the order of the classes from left to right: a label map with the opposite order may be mirrored."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.phrases import class_name
from graftseg.data.checks.findings import Finding
from graftseg.data.fingerprint import CaseFingerprint

MIN_GAP = 0.05
"""Minimum distance of two class centers, as a share of the width, for one to be left of the other."""
MIN_OTHERS = 3
"""Minimum number of other label maps, which must all have one order, to report the opposite order."""
MAX_RATIO = 3.0
"""Maximum ratio of the largest to the smallest distance of two classes whose order is compared."""

Centers = Mapping[str, dict[int, float]]  # by case and class


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
    """Report a label map in which two classes have the opposite order of all others. Report each map only once."""
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
    """Return the only case with the opposite order, or None.

    Overlapping classes have no order. Neither have classes at random places, such as tumors, whose distances vary.
    """
    sizes = [abs(gap) for gap in gaps.values()]
    if len(sizes) <= MIN_OTHERS or min(sizes) <= MIN_GAP or max(sizes) > MAX_RATIO * min(sizes):
        return None
    for sign in (-1, 1):
        odd = [name for name, gap in gaps.items() if sign * gap > 0]
        if len(odd) == 1:
            return odd[0]
    return None
