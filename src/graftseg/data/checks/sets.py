"""Checks across cases: stray files, numbers of axes and channels, orientation, intensity scale and spacing."""

from collections.abc import Iterator, Sequence

import numpy as np

from graftseg.data.checks.findings import Finding, counted
from graftseg.data.dataset import Dataset
from graftseg.data.fingerprint import CaseFingerprint
from graftseg.data.folders import CONVERSION_ADVICE, VOLUMES, most_common_ending, unsupported_ending

SPACING_FACTOR = 2.0
SCALE_FACTOR = 20.0
THICK_SLICES = 3.0
"""Volumes whose largest voxel spacing exceeds the smallest by this factor consist of thick slices."""

SLICES_LAST = ("ASR", "RSA", "RAS")
"""Orientations whose last axis is right-left, anterior-posterior and superior-inferior, respectively."""


def stray_findings(dataset: Dataset) -> Iterator[Finding]:
    """Report files in the scan folders that are not scans."""
    if dataset.ignored:
        what = "files that are not scans are ignored"
        ending = most_common_ending(dataset.ignored)
        first = next(name for name in dataset.ignored if ending is None or unsupported_ending(name) == ending)
        remedy = f"{VOLUMES if ending is None else CONVERSION_ADVICE[ending]}; or remove them"
        yield Finding("warning", what, first, counted(len(dataset.ignored), "file"), remedy)


def mixture_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report differing numbers of axes or channels."""
    kinds = {
        "axes": (
            {case.name: len(case.shape) for case in cases},
            "keep 2-D and 3-D scans in separate data sets",
        ),
        "channels": ({case.name: len(case.mean) for case in cases}, "give every case the same channels"),
    }
    for word, (counts, remedy) in kinds.items():
        numbers = list(counts.values())
        if len(set(numbers)) < 2:
            continue
        usual = max(sorted(set(numbers)), key=numbers.count)
        odd = tuple(name for name, number in counts.items() if number != usual)
        one = {"axes": "axis", "channels": "channel"}[word]
        count = counted(counts[odd[0]], one, word)
        size = f"{count} where the others have {usual}, {len(odd)} of {len(counts)} cases"
        yield Finding("error", f"the number of {word} differs between cases", odd[0], size, remedy, odd)


def orientation_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report volumes with another orientation than most."""
    volumes = [case for case in cases if len(case.shape) == 3]
    codes = [case.orientation for case in volumes]
    if len(set(codes)) < 2:
        return
    usual = max(sorted(set(codes)), key=codes.count)
    odd = [case for case in volumes if case.orientation != usual]
    size = f"{odd[0].orientation} where most have {usual}, {len(odd)} of {len(volumes)} volumes"
    remedy = "no action needed if the headers are right, as prepare reorients all volumes; look at one of each"
    names = tuple(case.name for case in odd)
    yield Finding("note", "orientations are mixed", odd[0].name, size, remedy, names)


def scale_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report scans with a much larger or smaller intensity range than others, for each channel."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        widths = {case.name: case.percentiles[channel][-1] - case.percentiles[channel][0] for case in cases}
        ranked = sorted((width, name) for name, width in widths.items() if width > 0)
        if not ranked or ranked[-1][0] <= SCALE_FACTOR * ranked[0][0]:
            continue
        (low, narrow), (high, broad) = ranked[0], ranked[-1]
        size = f"ranges from {low:.3g} ({narrow}) to {high:.3g} ({broad})"
        size += f" in channel {channel:04d}" if channels > 1 else ""
        remedy = "normalize each scan separately, for example with the rule zscore, instead of using one window"
        what = "intensity ranges differ greatly"
        yield Finding("note", what, f"{narrow}, {broad}", size, remedy, (narrow, broad))


def spacing_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report cases with much larger or smaller voxels than the median, the most extreme first."""
    for axes in (2, 3):
        comparable = [case for case in cases if len(case.shape) == axes]
        if not comparable:
            continue
        median = np.median([case.canonical_spacing for case in comparable], axis=0)
        found = []
        for case in comparable:
            ratio = np.abs(np.log(np.array(case.canonical_spacing) / median))
            worst = int(ratio.argmax())
            if ratio[worst] > np.log(SPACING_FACTOR):
                size = f"{case.canonical_spacing[worst]:.2f} mm against {median[worst]:.2f} mm, the median"
                found.append((-float(ratio[worst]), case.name, size))
        for _, name, size in sorted(found):
            what = "the voxel spacing differs greatly from the other cases"
            yield Finding("note", what, name, size, "resample to one spacing when preparing", (name,))


def slice_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report volumes with thick slices that are not stacked along the last axis of RAS, the default orientation."""
    volumes = [case for case in cases if len(case.shape) == 3]
    for axis, orientation in enumerate(SLICES_LAST[:-1]):
        across = [case for case in volumes if _slice_axis(case) == axis]
        if across:
            spacing = across[0].canonical_spacing
            size = f"{max(spacing):.2f} mm against {min(spacing):.2f} mm, {len(across)} of {len(volumes)} volumes"
            what = "slices are not stacked along the last axis of RAS, but 2-D networks use the last axis"
            remedy = f"set data.orientation to {orientation} in a 2-D recipe"
            yield Finding("note", what, across[0].name, size, remedy, tuple(case.name for case in across))


def _slice_axis(case: CaseFingerprint) -> int | None:
    """Return the axis, in canonical order, along which thick slices are stacked, or None."""
    spacing = case.canonical_spacing
    return spacing.index(max(spacing)) if round(max(spacing) / min(spacing), 3) > THICK_SLICES else None
