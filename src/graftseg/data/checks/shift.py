"""Shifts of intensities and spacing between labeled scans and unlabeled or test scans."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from statistics import multimode
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.phrases import counted
from graftseg.data.checks.consistency import offset_findings
from graftseg.data.checks.findings import Finding
from graftseg.data.fingerprint import CaseFingerprint, Fingerprint

Floats = NDArray[np.float64]
Kind = Literal["alike", "scaled", "apart", "too few", "alone"]
Other = Literal["unlabeled", "test"]
MIN_CASES = 3  # minimum number of cases in each of the two splits to call them similar
MIN_TOTAL = 4  # minimum number of all cases to report a difference
SHIFT_LIMIT = 1.0  # larger shifts of intensities or spacing are reported
SPACING_SLACK = 1.1  # spacings that differ by a smaller factor are similar
SENTENCES: dict[Kind, str] = {
    "alike": "Labeled and {other} scans {fit}: spacing and intensities are similar.",
    "scaled": "Labeled and {other} scans {fit}. They differ in brightness or intensity range, but "
    "normalizing each scan corrects this.",
    "apart": "The {other} scans seem to come from another scanner or protocol: {reasons}.",
    "too few": "Too few scans to compare labeled with {other} scans: {numbers}.",
    "alone": "Nothing to compare: {numbers} scans.",
}
FIT: dict[Other, str] = {"unlabeled": "can be used together", "test": "fit together"}


@dataclass(frozen=True)
class Likeness:
    """Similarity of labeled scans and scans of the split ``other``. Chance alone rarely causes a shift above 1."""

    kind: Kind
    sentence: str
    stored: float = 0.0  # intensity shift before z-score normalization
    standardised: float = 0.0  # intensity shift after it
    spacing: tuple[float, ...] = ()  # shift of the voxel spacing along each canonical axis
    labeled_spacing: tuple[float, ...] = ()  # medians in mm
    other_spacing: tuple[float, ...] = ()
    other: Other = "unlabeled"

    def to_json(self) -> dict[str, Any]:
        """Return plain values. JSON does not support infinite shifts, so they become None."""
        content = {name: None if value == inf else value for name, value in asdict(self).items()}
        del content["other"]
        return content | {f"{self.other}_spacing": content.pop("other_spacing")}


def compare_splits(summaries: Fingerprint, other: Other = "unlabeled") -> Likeness:
    """Compare the labeled cases with the cases of another split."""
    labeled, others = summaries.of("labeled"), summaries.of(other)
    numbers = f"{len(labeled)} labeled and {len(others)} {other}"
    if not labeled or not others:
        return Likeness("alone", SENTENCES["alone"].format(numbers=numbers), other=other)
    if len({(len(case.shape), len(case.mean)) for case in labeled + others}) > 1:
        return Likeness("apart", _not_comparable(summaries), other=other)
    stored, standardized = (intensity_shift(labeled, others, standardized=after) for after in (False, True))
    spacing, medians = spacing_shift(labeled, others), (_median_spacing(labeled), _median_spacing(others))
    measured = Likeness("alike", "", stored, standardized, spacing, *medians, other)
    reasons = ["their contrast differs"] if measured.standardised > SHIFT_LIMIT else []
    reasons += ["their spacing differs"] if max(measured.spacing) > SHIFT_LIMIT else []
    kind: Kind = "apart" if reasons else "scaled" if measured.stored > SHIFT_LIMIT else "alike"
    is_small = min(len(labeled), len(others)) < MIN_CASES
    if len(labeled) + len(others) < MIN_TOTAL or (kind == "alike" and is_small):
        kind = "too few"
    sentence = SENTENCES[kind].format(numbers=numbers, reasons=" and ".join(reasons), other=other, fit=FIT[other])
    offset_scans = {finding.where for finding in offset_findings(labeled + others)}
    if kind == "alike" and offset_scans:
        scans = counted(len(offset_scans), "scan")
        sentence = f"Spacing and intensities are similar, except for {scans} that may lack a rescale intercept."
    return replace(measured, kind=kind, sentence=sentence)


def _not_comparable(summaries: Fingerprint) -> str:
    """Return a sentence about scans of any split with an unusual number of axes or channels."""
    numbers = [(len(case.shape), len(case.mean)) for case in summaries.cases]
    usual = min(multimode(numbers))
    odd = [case.name for case, number in zip(summaries.cases, numbers, strict=True) if number != usual]
    which = f"{odd[0]} has" if len(odd) == 1 else f"{len(odd)} of {len(numbers)} scans, such as {odd[0]}, have"
    return f"The splits cannot be compared: {which} another number of axes or channels than the other scans."


def intensity_shift(
    labeled: Sequence[CaseFingerprint], unlabeled: Sequence[CaseFingerprint], *, standardized: bool = False
) -> float:
    r"""Return the intensity shift between two groups of cases, divided by the tolerated shift.

    With :math:`q_i` the percentiles of case i, :math:`Q` their median over a group (L: labeled, U: unlabeled),
    :math:`|\cdot|` the mean absolute difference over the percentiles, and n, m the sizes of the groups:

    .. math:: \frac{|Q_L - Q_U|}{w / 8 + 5 b \sqrt{1/n + 1/m}}

    w is a typical width of the intensity distribution. The width of a case is the mean absolute deviation of its
    percentiles from their mean. The width of a group is the median over its cases. w is the smaller group width.

    b is the typical distance of a scan from its group: the sum of :math:`|q_i - Q|` over both groups, divided by
    n + m - 2. b is limited to twice the median distance, so that a few scans with another scale do not hide a shift.
    With the factor 5, the second term of the denominator is about three standard errors of the numerator.

    At 0, the groups have equal median percentiles. Above ``SHIFT_LIMIT`` (1), they differ by more than an eighth of w
    and by more than chance explains. With few labeled cases and large differences between scans, a real shift may not
    be detected.

    ``standardized`` compares the cases after z-score normalization. Return the largest shift of the channels that every
    case has, or 0 if a group is empty.
    """
    if not labeled or not unlabeled:
        return 0.0
    first, second = _percentiles(labeled, standardized), _percentiles(unlabeled, standardized)
    channels = min(first.shape[1], second.shape[1])
    return max(_shift(first[:, channel], second[:, channel]) for channel in range(channels))


def _percentiles(cases: Sequence[CaseFingerprint], standardized: bool) -> Floats:
    """Return percentiles ``(case, channel, percentile)`` of the channels that all cases have."""
    channels = min(len(case.percentiles) for case in cases)
    curves = np.array([case.percentiles[:channels] for case in cases])
    if not standardized:
        return curves
    mean = np.array([case.mean[:channels] for case in cases])[..., None]
    std = np.array([case.std[:channels] for case in cases])[..., None]
    scaled: Floats = (curves - mean) / np.where(std > 0, std, 1.0)
    return scaled


def _shift(first: Floats, second: Floats) -> float:
    """Evaluate the formula of ``intensity_shift`` for percentiles ``(case, percentile)`` of two groups."""
    groups = (first, second)
    centers = [np.median(group, axis=0) for group in groups]
    distance = float(np.abs(centers[0] - centers[1]).mean())
    width = min(np.median(np.abs(group - group.mean(axis=1, keepdims=True)).mean(axis=1)) for group in groups)
    pairs = zip(groups, centers, strict=True)
    distances = np.concatenate([np.abs(group - center).mean(axis=1) for group, center in pairs])
    between = min(distances.sum() / max(1, len(distances) - 2), 2 * np.median(distances))
    tolerance = float(width / 8 + 5 * between * np.sqrt(1 / len(first) + 1 / len(second)))
    if tolerance == 0:
        return 0.0 if distance == 0 else float("inf")
    return distance / tolerance


def spacing_shift(labeled: Sequence[CaseFingerprint], unlabeled: Sequence[CaseFingerprint]) -> tuple[float, ...]:
    r"""Return the spacing shift between two groups along each canonical axis, divided by the tolerated shift.

    .. math:: \frac{|S_L - S_U|}{\log 1.1 + 5 b \sqrt{1/n + 1/m}}

    There are n labeled and m unlabeled cases. :math:`s_i` is the logarithm of the spacing of case i along the axis.
    :math:`S_L` and :math:`S_U` are the medians of the two groups. b is the sum over all cases of the distance between
    :math:`s_i` and the median of its group, divided by n + m - 2.

    Differences below 10 %, or within the variation of a group, give a shift below 1.
    """
    groups = [np.log([case.canonical_spacing for case in group]) for group in (labeled, unlabeled)]
    centers = [np.median(group, axis=0) for group in groups]
    distances = np.concatenate([np.abs(group - center) for group, center in zip(groups, centers, strict=True)])
    between = distances.sum(axis=0) / max(1, len(distances) - 2)
    tolerance = np.log(SPACING_SLACK) + 5 * between * np.sqrt(1 / len(labeled) + 1 / len(unlabeled))
    return tuple(float(shift) for shift in np.abs(centers[0] - centers[1]) / tolerance)


def shift_findings(summaries: Fingerprint, likeness: Likeness) -> Iterator[Finding]:
    """Report intensity and spacing shifts between labeled scans and the compared split."""
    if not likeness.spacing:
        return
    groups = f"labeled and {likeness.other} scans"
    is_testable = len(summaries.of("labeled") + summaries.of(likeness.other)) >= MIN_TOTAL
    if is_testable and max(likeness.stored, likeness.standardised) > SHIFT_LIMIT:
        what = f"{groups} differ in brightness or range; normalizing each scan corrects this"
        if likeness.standardised > SHIFT_LIMIT:
            what = f"{groups} differ in contrast; normalizing each scan does not correct this"
        size = f"shift {likeness.stored:.1f} as stored, {likeness.standardised:.1f} after z-scores (chance: up to 1)"
        remedy = "check that all scans come from the same scanner type and protocol"
        yield Finding("warning", what, groups, size, remedy)
    if max(likeness.spacing) > SHIFT_LIMIT and likeness.kind != "too few":
        axis = likeness.spacing.index(max(likeness.spacing))
        size = f"median {likeness.labeled_spacing[axis]:.2f} mm and {likeness.other_spacing[axis]:.2f} mm"
        remedy = "resample to one spacing when preparing, and check that all scans come from the same protocol"
        yield Finding("warning", f"{groups} differ in spacing", groups, size, remedy)


def _median_spacing(cases: Sequence[CaseFingerprint]) -> tuple[float, ...]:
    return tuple(float(step) for step in np.median([case.canonical_spacing for case in cases], axis=0))
