"""Consistency of the cases of a data set: axes, channels, orientations, intensities and spacing."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import multimode

import numpy as np

from graftseg.core.names import split_suffix
from graftseg.core.phrases import counted
from graftseg.core.types import Case, Geometry
from graftseg.data.checks.findings import Finding
from graftseg.data.dataset import Dataset, ScanFiles
from graftseg.data.fingerprint import CaseFingerprint
from graftseg.data.formats.scan import KEEP_ONE
from graftseg.data.grid import grid_difference

SPACING_FACTOR = 2.0  # a spacing that differs from the median by a larger factor is reported
MAX_CODES = 6  # number of orientations that are listed, the most frequent first
SCALE_FACTOR = 20.0  # intensity ranges that differ by a larger factor are reported
THICK_SLICES = 3.0  # volumes whose largest voxel spacing exceeds the smallest by this factor consist of thick slices
SLICES_LAST = ("ASR", "RSA", "RAS")  # the last axis is right-left, anterior-posterior and superior-inferior
AIR_LIMIT = -200.0  # HU; a CT scan with a lower value contains air
ZERO_TOLERANCE = 100.0  # without the rescale intercept, the lowest value of CT is within this distance of 0
TISSUE_LIMIT = 700.0  # without the rescale intercept, the highest value of CT is above this (water: about 1000)
MAX_CHANNELS = 8  # larger groups of scans with the same name prefix are slices, time frames or visits


def set_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report differences between cases that matter for training."""
    checks = (_axis_and_channel_counts, _orientations, _spacings, _scales, offset_findings, _slice_axes)
    return (finding for check in checks for finding in check(cases))


def gray_findings(dataset: Dataset) -> Iterator[Finding]:
    """Report gray pictures that are stored with three colors."""
    if isinstance(dataset.reader, ScanFiles) and dataset.reader.is_gray:
        what, size = "gray pictures are stored with three colors", "one channel instead of three"
        remedy = "nothing needs to be done; to use three channels, name them in dataset.json"
        yield Finding("note", what, "labeled and unlabeled scans", size, remedy)


def _axis_and_channel_counts(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    axes, channels = {case.name: len(case.shape) for case in cases}, {case.name: len(case.mean) for case in cases}
    for singular, plural, counts, remedy in (
        ("axis", "axes", axes, "keep 2-D and 3-D scans in separate data sets"),
        ("channel", "channels", channels, "give every case the same channels"),
    ):
        usual = min(multimode(counts.values()), default=0)
        if odd := tuple(name for name, count in counts.items() if count != usual):
            number = counted(counts[odd[0]], singular, plural)
            size = f"{number} instead of {usual}, in {len(odd)} of {len(counts)} cases"
            what = f"the number of {plural} differs between cases"
            if plural == "channels" and any(counts[name] > usual for name in odd):
                remedy += f"; {KEEP_ONE}"
            yield Finding("error", what, odd[0], size, remedy, odd, "--drop")


def _orientations(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report volumes whose orientation differs from most others."""
    codes = {case.name: case.orientation for case in cases if len(case.shape) == 3}
    usual = min(multimode(codes.values()), default="")
    if odd := tuple(name for name, code in codes.items() if code != usual):
        differ = "differs" if len(odd) == 1 else "differ"
        others = sorted(Counter(codes[name] for name in odd).items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{count} {code}" for code, count in others[:MAX_CODES])
        counts += ", ..." if len(others) > MAX_CODES else ""
        size = f"{len(odd)} of {counted(len(codes), 'volume')} {differ} from {usual}: {counts}"
        remedy = "check one volume of each orientation; if the headers are correct, prepare reorients all volumes"
        yield Finding("note", "orientations are mixed", odd[0], size, remedy, odd)


def _scales(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report, for each channel, scans with a much larger or smaller intensity range than others."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        widths = {case.name: case.percentiles[channel][-1] - case.percentiles[channel][0] for case in cases}
        ranked = sorted((width, name) for name, width in widths.items() if width > 0)
        if not ranked or ranked[-1][0] <= SCALE_FACTOR * ranked[0][0]:
            continue
        (low, narrow), (high, broad) = ranked[0], ranked[-1]
        within = f" in channel {channel:04d}" if channels > 1 else ""
        size = f"the range is {low:.3g} wide in {narrow} and {high:.3g} wide in {broad}{within}"
        remedy = "normalize each scan separately, for example with the rule zscore, instead of using one window"
        names = (narrow, broad)
        yield Finding("note", "intensity ranges differ greatly", ", ".join(names), size, remedy, names)


def _spacings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report cases with much larger or smaller voxels than the median, the most extreme first."""
    for axes in (2, 3):
        comparable = [case for case in cases if len(case.shape) == axes]
        if not comparable:
            continue
        median = np.median([case.canonical_spacing for case in comparable], axis=0)
        extremes = []
        for case in comparable:
            ratio = np.abs(np.log(np.array(case.canonical_spacing) / median))
            worst = int(ratio.argmax())
            if ratio[worst] > np.log(SPACING_FACTOR):
                size = f"{case.canonical_spacing[worst]:.2f} mm, but the median is {median[worst]:.2f} mm"
                extremes.append((-float(ratio[worst]), case.name, size))
        for _, name, size in sorted(extremes):
            what = "the voxel spacing differs greatly from the other cases"
            yield Finding("note", what, name, size, "resample to one spacing when preparing", (name,))


def _slice_axes(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report volumes with thick slices that are not stacked along the last axis of RAS, the default orientation."""
    volumes = [case for case in cases if len(case.shape) == 3]
    for axis, orientation in enumerate(SLICES_LAST[:-1]):
        across = [case for case in volumes if case.canonical_spacing.index(max(case.canonical_spacing)) == axis]
        across = [case for case in across if round(max(case.spacing) / min(case.spacing), 3) > THICK_SLICES]
        if across:
            spacing = across[0].canonical_spacing
            size = f"spacing {max(spacing):.2f} and {min(spacing):.2f} mm, in {len(across)} of {len(volumes)} volumes"
            what = "slices are not stacked along the last axis of RAS, but 2-D networks use the last axis"
            remedy = f"set data.orientation to {orientation} in a 2-D recipe"
            yield Finding("note", what, across[0].name, size, remedy, tuple(case.name for case in across))


def offset_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report, for each channel, CT scans whose values start near 0, although most scans contain air."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        lowest, highest = (np.array([case.percentiles[channel][end] for case in cases]) for end in (0, -1))
        has_air = lowest < AIR_LIMIT
        if 2 * np.count_nonzero(has_air) <= len(cases):
            continue
        usual = float(np.median(lowest[has_air]))
        for index in np.flatnonzero((np.abs(lowest) <= ZERO_TOLERANCE) & (highest > TISSUE_LIMIT)).tolist():
            name, within = cases[index].name, f" in channel {channel:04d}" if channels > 1 else ""
            what = "the CT rescale intercept may be missing: values start near 0 instead of near -1000"
            size = f"lowest value {lowest[index]:.0f}, but {usual:.0f} in other scans{within}"
            remedy = "convert the scan again with its intercept, or subtract the missing offset, often 1024"
            yield Finding("warning", what, name, size, remedy, (name,))


def channel_findings(cases: Sequence[tuple[Case, Geometry]]) -> Iterator[Finding]:
    """Report unlabeled scans that may be channels of labeled scans, such as ``p1_T2`` of the labeled scan ``p1_T1``."""
    groups: dict[str, dict[str, tuple[Case, Geometry]]] = {}
    for case, geometry in cases:
        if case.split in ("labeled", "unlabeled"):
            beginning, ending = split_suffix(case.name)
            groups.setdefault(beginning, {})[ending] = case, geometry
    candidates = [group for group in groups.values() if 2 <= len(group) <= MAX_CHANNELS]
    pair_counts = Counter(pair for group in candidates for pair in combinations(sorted(group), 2))
    pairs = [pair for group in candidates for pair in _channel_pairs(group, pair_counts)]
    if not pairs:
        return
    labeled, unlabeled = pairs[0]
    beginning, _ = split_suffix(unlabeled)
    names = tuple(sorted({name for _, name in pairs}))
    what = "unlabeled scans may be further channels of labeled scans (same name prefix, same grid)"
    where, size = f"{unlabeled} next to {labeled}", counted(len(names), "unlabeled scan")
    remedy = f"if so, name the channels {beginning}_0000, {beginning}_0001 and so on, in the same order for every case"
    yield Finding("warning", what, where, size, f"{remedy}, and the label map {beginning}", names)


def _channel_pairs(
    group: Mapping[str, tuple[Case, Geometry]], pair_counts: Mapping[tuple[str, str], int]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a labeled and an unlabeled case on the same grid, whose suffixes also occur in another group."""
    for pair in combinations(sorted(group), 2):
        cases = [group[ending] for ending in pair]
        if pair_counts[pair] < 2 or {case.split for case, _ in cases} != {"labeled", "unlabeled"}:
            continue
        if grid_difference(cases[0][1], cases[1][1]) is None:
            first, second = sorted((case for case, _ in cases), key=lambda case: case.split)
            yield first.name, second.name
