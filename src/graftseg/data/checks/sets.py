"""What does not fit together in a set of cases: strays, numbers of axes and channels, spacings, orientations."""

from collections.abc import Iterator, Sequence

import numpy as np

from graftseg.data.checks.findings import Finding, counted
from graftseg.data.dataset import Dataset
from graftseg.data.fingerprint import CaseFingerprint
from graftseg.data.folders import CONVERSION_ADVICE, VOLUMES, most_common_ending, unsupported_ending

SPACING_FACTOR = 2.0
SCALE_FACTOR = 20.0
COARSE = 3.0
"""Voxels longer than this many times their width are slices rather than parts of a volume."""

SLICES_LAST = ("ASR", "RSA", "RAS")
"""Orientations by where slices are stacked: right-left, anterior-posterior, superior-inferior; that axis is last."""


def stray_findings(dataset: Dataset) -> Iterator[Finding]:
    """Files among the scans that are none."""
    if dataset.ignored:
        what = "files that are not scans are left out"
        ending = most_common_ending(dataset.ignored)
        first = next(name for name in dataset.ignored if ending is None or unsupported_ending(name) == ending)
        remedy = f"{VOLUMES if ending is None else CONVERSION_ADVICE[ending]}; or move them away"
        yield Finding("warning", what, first, counted(len(dataset.ignored), "file"), remedy)


def mixture_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Numbers of axes and of channels that are not the same in all cases."""
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
        told = counted(counts[odd[0]], one, word)
        size = f"{told} where the others have {usual}, {len(odd)} of {len(counts)} cases"
        yield Finding("error", f"the number of {word} differs between cases", odd[0], size, remedy, odd)


def orientation_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Volumes whose axes point elsewhere than those of the others."""
    volumes = [case for case in cases if len(case.shape) == 3]
    codes = [case.orientation for case in volumes]
    if len(set(codes)) < 2:
        return
    usual = max(sorted(set(codes)), key=codes.count)
    odd = [case for case in volumes if case.orientation != usual]
    size = f"{odd[0].orientation} where most have {usual}, {len(odd)} of {len(volumes)} volumes"
    remedy = "nothing to do if headers are right: preparing turns all to one orientation; look at one of each"
    names = tuple(case.name for case in odd)
    yield Finding("note", "orientations are mixed", odd[0].name, size, remedy, names)


def scale_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Scans whose intensities spread over far more or less than those of others, in any channel."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        widths = {case.name: case.percentiles[channel][-1] - case.percentiles[channel][0] for case in cases}
        ranked = sorted((width, name) for name, width in widths.items() if width > 0)
        if not ranked or ranked[-1][0] <= SCALE_FACTOR * ranked[0][0]:
            continue
        (low, narrow), (high, broad) = ranked[0], ranked[-1]
        size = f"ranges from {low:.3g} ({narrow}) to {high:.3g} ({broad})"
        size += f" in channel {channel:04d}" if channels > 1 else ""
        remedy = "normalise each scan by itself, as z-scores do, rather than by a window for all"
        what = "intensities are on very different scales"
        yield Finding("note", what, f"{narrow}, {broad}", size, remedy, (narrow, broad))


def spacing_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Cases whose voxels are much larger or smaller than usual, the furthest first."""
    for axes in (2, 3):
        alike = [case for case in cases if len(case.shape) == axes]
        if not alike:
            continue
        median = np.median([case.canonical_spacing for case in alike], axis=0)
        found = []
        for case in alike:
            ratio = np.abs(np.log(np.array(case.canonical_spacing) / median))
            worst = int(ratio.argmax())
            if ratio[worst] > np.log(SPACING_FACTOR):
                size = f"{case.canonical_spacing[worst]:.2f} mm against {median[worst]:.2f} mm, the median"
                found.append((-float(ratio[worst]), case.name, size))
        for _, name, size in sorted(found):
            what = "the spacing differs much from the other cases"
            yield Finding("note", what, name, size, "resample to one spacing when preparing", (name,))


def slice_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Volumes of thick slices that RAS, the usual orientation, would cut across."""
    volumes = [case for case in cases if len(case.shape) == 3]
    for axis, orientation in enumerate(SLICES_LAST[:-1]):
        across = [case for case in volumes if _slice_axis(case) == axis]
        if across:
            spacing = across[0].canonical_spacing
            size = f"{max(spacing):.2f} mm against {min(spacing):.2f} mm, {len(across)} of {len(volumes)} volumes"
            what = "slices are not stacked along the last axis of RAS, along which a 2-D network is applied"
            remedy = f"set data.orientation to {orientation} in a 2-D recipe"
            yield Finding("note", what, across[0].name, size, remedy, tuple(case.name for case in across))


def _slice_axis(case: CaseFingerprint) -> int | None:
    """The axis, in canonical order, along which thick slices are stacked, if there are any."""
    spacing = case.canonical_spacing
    return spacing.index(max(spacing)) if round(max(spacing) / min(spacing), 3) > COARSE else None
