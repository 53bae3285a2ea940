"""Unlabeled scans that look like further channels of labeled ones, called by what they show rather than by a number."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from graftseg.core.names import split_suffix
from graftseg.core.types import Case, Geometry
from graftseg.data.checks.findings import Finding, counted
from graftseg.data.grid import grid_difference

MOST = 8
"""More endings than this after one beginning are slices, frames or visits rather than channels."""


def channel_findings(seen: Sequence[tuple[Case, Geometry]]) -> Iterator[Finding]:
    """``p1_T2`` without a label beside ``p1_T1`` with one, both on one grid, where more patients have both endings."""
    groups: dict[str, dict[str, tuple[Case, Geometry]]] = {}
    for case, geometry in seen:
        if case.split in ("labeled", "unlabeled"):
            beginning, ending = split_suffix(case.name)
            groups.setdefault(beginning, {})[ending] = case, geometry
    few = [group for group in groups.values() if 2 <= len(group) <= MOST]
    usual = Counter(pair for group in few for pair in combinations(sorted(group), 2))
    pairs = [pair for group in few for pair in _beside(group, usual)]
    if not pairs:
        return
    labeled, other = pairs[0]
    beginning, _ = split_suffix(other)
    names = tuple(sorted({name for _, name in pairs}))
    yield Finding(
        "warning",
        "unlabeled scans are called like other channels of labeled ones, and lie on their grids",
        f"{other} beside {labeled}",
        counted(len(names), "unlabeled scan"),
        f"if they are, call the channels {beginning}_0000, {beginning}_0001 and so on, in the same order for every "
        f"case, and the label map {beginning}",
        names,
    )


def _beside(
    group: Mapping[str, tuple[Case, Geometry]], usual: Mapping[tuple[str, str], int]
) -> Iterator[tuple[str, str]]:
    """A labeled and an unlabeled case on one grid, whose endings stand beside each other elsewhere as well."""
    for pair in combinations(sorted(group), 2):
        both = [group[ending] for ending in pair]
        if usual[pair] < 2 or {case.split for case, _ in both} != {"labeled", "unlabeled"}:
            continue
        if grid_difference(both[0][1], both[1][1]) is None:
            first, second = sorted((case for case, _ in both), key=lambda case: case.split)
            yield first.name, second.name
