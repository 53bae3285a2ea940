"""Scans that are there twice: with the same voxels, or with the same ones on another scale of intensities."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from graftseg.data.checks.findings import Finding, Severity
from graftseg.data.coarse import Floats
from graftseg.data.fingerprint import CaseFingerprint

ALIKE = 0.999
FEW = 3
"""Copies of one scan that are believed, however few scans there are."""
EXACT = 1 - 1e-5
"""Agreement of copies that differ in their scale and in rounding alone."""
Seen = tuple[CaseFingerprint, Floats | None]


def copy_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Cases with the same voxels: across splits they leak, within one they only weigh double."""
    for group in _same(cases):
        if len(group) > 1:
            severity: Severity = "error" if len({case.split for case in group}) > 1 else "warning"
            names = tuple(case.name for case in group)
            what = f"the same voxels stand {_across(group)}"
            yield Finding(severity, what, ", ".join(names), f"{len(group)} cases", "keep one of them", names)


def likeness_findings(seen: Sequence[Seen]) -> Iterator[Finding]:
    """Cases of one shape that agree on a coarse grid up to a scale of intensities, and not to the voxel.

    More than a ``FEW`` that are alike are a crowd, not one scan: their coarse grids show little but the outline of a
    body. There a copy must be ``EXACT``, or agree also in what tells it from the mean of the crowd.
    """
    for alike in _by_shape(seen).values():
        vectors = np.stack([vector for _, vector in alike]).astype(np.float64)
        for crowd in _connected(vectors @ vectors.T > ALIKE):
            cases, views = [alike[member][0] for member in crowd], vectors[crowd]
            products = views @ views.T
            near = products > ALIKE
            if len(crowd) > FEW:
                own = _lengthless(views - views.mean(axis=0))
                near = (products > EXACT) | (own @ own.T > ALIKE)
            groups = [group for group in _groups(near) if len(group) <= max(FEW, len(alike) // 2)]
            for group in groups:
                yield from _copies([cases[member] for member in group], float(products[np.ix_(group, group)].min()))
            if len(crowd) > FEW and len(crowd) not in map(len, groups) and len(_same(cases)) > 1:
                yield _crowded(cases, len(alike))


def _copies(group: Sequence[CaseFingerprint], least: float) -> Iterator[Finding]:
    if len(_same(group)) > 1:
        names = tuple(case.name for case in group)
        size = f"correlation {least:.4f} on a coarse grid, {len(group)} cases"
        what = f"the same scan on another scale of intensities stands {_across(group)}"
        remedy = "keep one of them, unless they are scans of different people"
        yield Finding("warning", what, ", ".join(names), size, remedy, names)


def _crowded(cases: Sequence[CaseFingerprint], of_shape: int) -> Finding:
    what = "so many scans are alike on a coarse grid that a copy on another scale among them may go unseen"
    where, names = f"{cases[0].name} and {len(cases) - 1} more", tuple(case.name for case in cases)
    size = f"{len(cases)} of {of_shape} scans of one shape, correlation above {ALIKE:g}"
    return Finding("note", what, where, size, "nothing to do if no person's scan is there twice", names)


def _same(cases: Sequence[CaseFingerprint]) -> list[list[CaseFingerprint]]:
    """All cases, those together that have the same voxels: as stored, for a header may be lost, or in one orientation.

    A case that is like two others in different ways brings them together.
    """
    groups: dict[str, list[CaseFingerprint]] = {}
    for case in cases:
        keys = {case.content, case.oriented or case.content}
        known = {id(groups[key]): groups[key] for key in keys if key in groups}
        together = [*(one for group in known.values() for one in group), case]
        groups |= dict.fromkeys(
            {key for one in together for key in (one.content, one.oriented or one.content)}, together
        )
    return list({id(group): group for group in groups.values()}.values())


def _by_shape(seen: Sequence[Seen]) -> dict[tuple[int, ...], list[tuple[CaseFingerprint, Floats]]]:
    """Cases that can be compared: with equal shapes and numbers of channels, two or more."""
    shapes: dict[tuple[int, ...], list[tuple[CaseFingerprint, Floats]]] = {}
    for case, vector in seen:
        if vector is not None:
            shapes.setdefault((len(case.mean), *case.canonical_shape), []).append((case, vector))
    return {shape: alike for shape, alike in shapes.items() if len(alike) > 1}


def _connected(near: NDArray[np.bool_]) -> Iterator[list[int]]:
    """Those that are near each other, directly or by way of others; none that is by itself."""
    left = np.ones(len(near), bool)
    for start in range(len(near)):
        inside = np.zeros(len(near), bool)
        inside[start] = left[start]
        reached = inside
        while reached.any():
            reached = near[reached].any(axis=0) & ~inside
            inside = inside | reached
        left &= ~inside
        if inside.sum() > 1:
            yield np.flatnonzero(inside).tolist()


def _lengthless(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def _groups(near: NDArray[np.bool_]) -> Iterator[list[int]]:
    """Groups of two or more, each near every other of its group, and none in two of them."""
    left = list(range(len(near)))
    while left:
        members: list[int] = []
        for one in left:
            if all(near[one, other] for other in members):
                members.append(one)
        left = [one for one in left if one not in members]
        if len(members) > 1:
            yield members


def _across(group: Sequence[CaseFingerprint]) -> str:
    splits = sorted({case.split for case in group})
    return "across " + " and ".join(splits) if len(splits) > 1 else f"among the {splits[0]}"
