"""Check whether labeled and unlabeled scans can be used together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graftseg.data.checks.findings import Finding, counted
from graftseg.data.checks.sets import offset_findings
from graftseg.data.fingerprint import SHIFT_LIMIT, CaseFingerprint, Fingerprint, intensity_shift

Kind = Literal["alike", "scaled", "apart", "too few", "alone"]
MIN_CASES = 3
"""Minimum number of labeled and of unlabeled cases to call them similar."""
MIN_TOTAL = 4  # minimum number of all cases to report a difference
SPACING_SLACK = 1.1  # spacings that differ by a smaller factor are similar
WHERE = "labeled and unlabeled scans"
SENTENCES: dict[Kind, str] = {
    "alike": "Labeled and unlabeled scans can be used together: spacing and intensities are similar.",
    "scaled": "Labeled and unlabeled scans can be used together. They differ in brightness or intensity range, but "
    "normalizing each scan corrects this.",
    "apart": "The unlabeled scans seem to come from another scanner or protocol: {reasons}.",
    "too few": "Too few scans to compare labeled with unlabeled scans: {numbers}.",
    "alone": "Nothing to compare: {numbers} scans.",
}


@dataclass(frozen=True)
class Likeness:
    """Similarity of labeled and unlabeled scans: a sentence and the measured shifts.

    ``stored`` and ``standardised`` are the intensity shifts before and after z-score normalization. ``spacing`` is the
    shift of the voxel spacing along each canonical axis. A shift above 1 is larger than chance explains.
    ``labeled_spacing`` and ``unlabeled_spacing`` are medians in mm.
    """

    kind: Kind
    sentence: str
    stored: float = 0.0
    standardised: float = 0.0
    spacing: tuple[float, ...] = ()
    labeled_spacing: tuple[float, ...] = ()
    unlabeled_spacing: tuple[float, ...] = ()


def compare_splits(summaries: Fingerprint) -> Likeness:
    """Compare the labeled with the unlabeled cases."""
    labeled, unlabeled = summaries.of("labeled"), summaries.of("unlabeled")
    numbers = f"{len(labeled)} labeled and {len(unlabeled)} unlabeled"
    if not labeled or not unlabeled:
        return Likeness("alone", SENTENCES["alone"].format(numbers=numbers))
    if len({(len(case.shape), len(case.mean)) for case in labeled + unlabeled}) > 1:
        return Likeness("apart", "The scans have different numbers of axes or channels and cannot be compared.")
    stored, standardized = (intensity_shift(labeled, unlabeled, standardized=after) for after in (False, True))
    spacing, own, other = spacing_shift(labeled, unlabeled), _median_spacing(labeled), _median_spacing(unlabeled)
    measured = Likeness("alike", "", stored, standardized, spacing, own, other)
    reasons = ["their contrast differs"] if measured.standardised > SHIFT_LIMIT else []
    reasons += ["their spacing differs"] if max(measured.spacing) > SHIFT_LIMIT else []
    kind: Kind = "apart" if reasons else "scaled" if measured.stored > SHIFT_LIMIT else "alike"
    lone = min(len(labeled), len(unlabeled)) < MIN_CASES
    if len(labeled) + len(unlabeled) < MIN_TOTAL or (kind == "alike" and lone):
        kind = "too few"
    sentence = SENTENCES[kind].format(numbers=numbers, reasons=" and ".join(reasons))
    odd = {finding.where for finding in offset_findings(labeled + unlabeled)}
    if kind == "alike" and odd:
        scans = counted(len(odd), "scan")
        sentence = f"Spacing and intensities are similar, except for {scans} that may lack a rescale intercept."
    return replace(measured, kind=kind, sentence=sentence)


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
    away = np.concatenate([np.abs(group - center) for group, center in zip(groups, centers, strict=True)])
    between = away.sum(axis=0) / max(1, len(away) - 2)
    tolerance = np.log(SPACING_SLACK) + 5 * between * np.sqrt(1 / len(labeled) + 1 / len(unlabeled))
    return tuple(float(shift) for shift in np.abs(centers[0] - centers[1]) / tolerance)


def shift_findings(summaries: Fingerprint, found: Likeness) -> Iterator[Finding]:
    """Report intensity and spacing shifts between labeled and unlabeled scans."""
    if not found.spacing:
        return
    is_testable = len(summaries.training) >= MIN_TOTAL
    if is_testable and max(found.stored, found.standardised) > SHIFT_LIMIT:
        what = "labeled and unlabeled scans differ in brightness or range; normalizing each scan corrects this"
        if found.standardised > SHIFT_LIMIT:
            what = "labeled and unlabeled scans differ in contrast; normalizing each scan does not correct this"
        size = f"shift {found.stored:.1f} as stored, {found.standardised:.1f} after z-scores (chance explains up to 1)"
        yield Finding("warning", what, WHERE, size, "check that all scans come from the same scanner type and protocol")
    if max(found.spacing) > SHIFT_LIMIT and found.kind != "too few":
        axis = found.spacing.index(max(found.spacing))
        size = f"median {found.labeled_spacing[axis]:.2f} mm and {found.unlabeled_spacing[axis]:.2f} mm"
        remedy = "resample to one spacing when preparing, and check that all scans come from the same protocol"
        yield Finding("warning", "labeled and unlabeled scans differ in spacing", WHERE, size, remedy)


def _median_spacing(cases: Sequence[CaseFingerprint]) -> tuple[float, ...]:
    return tuple(float(step) for step in np.median([case.canonical_spacing for case in cases], axis=0))
