"""Detect duplicate scans: identical voxels, or the same voxels with another intensity scaling."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from graftseg.core.phrases import and_more
from graftseg.data.checks.findings import Finding, Severity
from graftseg.data.fingerprint import CaseFingerprint

SIMILAR = 0.999  # correlation on the coarse grid above which two scans may be copies
SMALL_GROUP = 3  # in clusters up to this size, ``SIMILAR`` scans are copies; larger clusters need more evidence
EXACT = 1 - 1e-5  # minimum correlation of copies that differ only in scaling and rounding
MAX_AXIS_BLOCKS, MIN_BLOCKS = 16, 64  # of the coarse grid: largest number along an axis, smallest total number
Floats = NDArray[np.float32]


def copy_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report cases with identical voxels: an error across splits (leakage), a warning within a split."""
    for group in _identical(cases):
        if len(group) > 1:
            severity: Severity = "error" if len({case.split for case in group}) > 1 else "warning"
            names = tuple(case.name for case in group)
            what = f"identical voxels {_in_splits(group)}"
            yield Finding(severity, what, ", ".join(names), f"{len(group)} cases", "keep one of them", names)


def rescaled_copy_findings(views: Sequence[tuple[CaseFingerprint, Floats | None]]) -> Iterator[Finding]:
    """Report cases of one shape whose voxels differ, but whose coarse views agree after intensity scaling.

    If more than ``SMALL_GROUP`` scans are similar, the coarse grid probably shows little more than the body outline. In
    such a cluster, copies must correlate above ``EXACT``, or their differences from the cluster mean above ``SIMILAR``.
    A group of more than ``SMALL_GROUP`` scans is not reported if it is more than half of the scans of its shape.
    """
    shapes: dict[tuple[int, ...], list[tuple[CaseFingerprint, Floats]]] = {}  # by number of channels and shape
    for case, view in views:
        if view is not None:
            shapes.setdefault((len(case.mean), *case.canonical_shape), []).append((case, view))
    for comparable in shapes.values():
        vectors = np.stack([vector for _, vector in comparable]).astype(np.float64)
        for cluster in _connected(vectors @ vectors.T > SIMILAR):
            cases, members = [comparable[member][0] for member in cluster], vectors[cluster]
            products = members @ members.T
            near = products > SIMILAR
            if len(cluster) > SMALL_GROUP:
                residuals = members - members.mean(axis=0)
                residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), np.finfo(np.float64).tiny)
                near = (products > EXACT) | (residuals @ residuals.T > SIMILAR)
            groups = [group for group in _groups(near) if len(group) <= max(SMALL_GROUP, len(comparable) // 2)]
            for group in groups:
                copies = [cases[member] for member in group]
                if len(_identical(copies)) > 1:
                    yield _copy_warning(copies, float(products[np.ix_(group, group)].min()))
            if len(cluster) > SMALL_GROUP and len(cluster) not in map(len, groups) and len(_identical(cases)) > 1:
                yield _cluster_note(cases, len(comparable))


def _copy_warning(group: Sequence[CaseFingerprint], correlation: float) -> Finding:
    names = tuple(case.name for case in group)
    size = f"correlation {correlation:.4f} on a coarse grid, {len(group)} cases"
    what = f"the same scan with other intensity scaling {_in_splits(group)}"
    remedy = "keep one of them, unless they are scans of different people"
    return Finding("warning", what, ", ".join(names), size, remedy, names)


def _cluster_note(cases: Sequence[CaseFingerprint], of_shape: int) -> Finding:
    what = "many scans are similar on a coarse grid, so rescaled copies among them may not be detected"
    where, names = and_more(cases[0].name, len(cases)), tuple(case.name for case in cases)
    size = f"{len(cases)} of {of_shape} scans of one shape, correlation above {SIMILAR:g}"
    return Finding("note", what, where, size, "no action needed if every person was scanned once", names)


def _identical(cases: Sequence[CaseFingerprint]) -> list[list[CaseFingerprint]]:
    """Group cases with identical voxels as stored or in RAS. A case that matches two groups merges them."""
    groups: dict[str, list[CaseFingerprint]] = {}
    for case in cases:
        keys = {case.content, case.oriented or case.content}
        matching = {id(groups[key]): groups[key] for key in keys if key in groups}
        merged = [*(member for group in matching.values() for member in group), case]
        keys = {key for member in merged for key in (member.content, member.oriented or member.content)}
        groups |= dict.fromkeys(keys, merged)
    return list({id(group): group for group in groups.values()}.values())


def _connected(near: NDArray[np.bool_]) -> Iterator[list[int]]:
    """Yield the connected components of the graph ``near`` that have at least two members."""
    count, component = connected_components(near, directed=False)
    for number in range(count):
        members = np.flatnonzero(component == number).tolist()
        if len(members) > 1:
            yield members


def _groups(near: NDArray[np.bool_]) -> Iterator[list[int]]:
    """Yield disjoint groups of at least two members, in which all pairs of members are near."""
    remaining = list(range(len(near)))
    while remaining:
        members: list[int] = []
        for candidate in remaining:
            if all(near[candidate, member] for member in members):
                members.append(candidate)
        remaining = [index for index in remaining if index not in members]
        if len(members) > 1:
            yield members


def _in_splits(group: Sequence[CaseFingerprint]) -> str:
    splits = sorted({case.split for case in group})
    return f"in {' and '.join(splits)} cases" if len(splits) > 1 else f"in several {splits[0]} cases"


def coarse_view(array: NDArray[Any]) -> Floats | None:
    """Return the block means of ``(C, *space)`` as a unit vector. The dot product of two vectors is their correlation.

    Every channel is divided into at most ``MAX_AXIS_BLOCKS`` blocks along each axis and normalized, so the vector does
    not change if the intensities are multiplied or shifted. Return None if there are fewer than ``MIN_BLOCKS`` blocks,
    or if a channel is constant.
    """
    means = [_block_means(channel) for channel in array]
    if means[0].size < MIN_BLOCKS:
        return None
    vectors = [vector for channel in means if (vector := _unit(channel.ravel())) is not None]
    if len(vectors) < len(means):
        return None
    return np.concatenate(vectors).astype(np.float32) / np.float32(np.sqrt(len(means)))


def _block_means(channel: NDArray[Any]) -> NDArray[np.float64]:
    blocks = channel
    # start with the axis of the largest stride: contiguous slabs are read once, and the remaining array is small
    for axis in sorted(range(channel.ndim), key=lambda axis: -abs(channel.strides[axis])):
        count = min(MAX_AXIS_BLOCKS, channel.shape[axis])
        cuts = np.arange(1, count) * channel.shape[axis] // count
        blocks = np.stack([slab.mean(axis, dtype=np.float64) for slab in np.split(blocks, cuts, axis)], axis)
    return np.asarray(blocks, dtype=np.float64)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64] | None:
    centered = vector - vector.mean()
    length = float(np.linalg.norm(centered))
    # the norm of a constant vector is only rounding error
    if length <= 1e-9 * max(1.0, float(np.abs(vector).max())) * np.sqrt(len(vector)):
        return None
    return np.asarray(centered / length)
