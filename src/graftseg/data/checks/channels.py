"""Detect unlabeled scans that are probably further channels of labeled scans, such as ``p1_T2`` of ``p1_T1``."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from graftseg.core.names import split_suffix
from graftseg.core.types import Case, Geometry
from graftseg.data.checks.findings import Finding, counted
from graftseg.data.grid import grid_difference

MAX_CHANNELS = 8
"""More scans with the same name prefix are slices, time frames or visits, not channels."""


def channel_findings(seen: Sequence[tuple[Case, Geometry]]) -> Iterator[Finding]:
    """Report unlabeled ``p1_T2`` and labeled ``p1_T1`` on one grid, if several patients have both suffixes."""
    groups: dict[str, dict[str, tuple[Case, Geometry]]] = {}
    for case, geometry in seen:
        if case.split in ("labeled", "unlabeled"):
            beginning, ending = split_suffix(case.name)
            groups.setdefault(beginning, {})[ending] = case, geometry
    few = [group for group in groups.values() if 2 <= len(group) <= MAX_CHANNELS]
    usual = Counter(pair for group in few for pair in combinations(sorted(group), 2))
    pairs = [pair for group in few for pair in _channel_pairs(group, usual)]
    if not pairs:
        return
    labeled, other = pairs[0]
    beginning, _ = split_suffix(other)
    names = tuple(sorted({name for _, name in pairs}))
    yield Finding(
        "warning",
        "unlabeled scans may be further channels of labeled scans (same name prefix, same grid)",
        f"{other} next to {labeled}",
        counted(len(names), "unlabeled scan"),
        f"if so, name the channels {beginning}_0000, {beginning}_0001 and so on, in the same order for every "
        f"case, and the label map {beginning}",
        names,
    )


def _channel_pairs(
    group: Mapping[str, tuple[Case, Geometry]], usual: Mapping[tuple[str, str], int]
) -> Iterator[tuple[str, str]]:
    """Yield labeled and unlabeled cases on one grid whose suffixes also occur together for other patients."""
    for pair in combinations(sorted(group), 2):
        both = [group[ending] for ending in pair]
        if usual[pair] < 2 or {case.split for case, _ in both} != {"labeled", "unlabeled"}:
            continue
        if grid_difference(both[0][1], both[1][1]) is None:
            first, second = sorted((case for case, _ in both), key=lambda case: case.split)
            yield first.name, second.name
