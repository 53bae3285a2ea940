"""Labeled against unlabeled scans: may they be used together, in plain words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graftseg.data.checks.findings import Finding, counted
from graftseg.data.checks.offsets import offset_findings
from graftseg.data.fingerprint import (
    SHIFT_LIMIT,
    CaseFingerprint,
    Fingerprint,
    intensity_shift,
    shift_verdict,
)

Kind = Literal["alike", "scaled", "apart", "too few", "alone"]
FEWEST = 3
"""With fewer cases on either side, seeing no difference means nothing."""

FEWEST_TOGETHER = 4

SPACING_SLACK = 1.1
PLACE = "labeled and unlabeled scans"


@dataclass(frozen=True)
class Likeness:
    """Whether labeled and unlabeled scans look alike: a sentence, and the figures behind it.

    The figures are shifts in units of what would be no surprise: of intensities as stored and after z-scores, and of
    the spacing along each axis in canonical order; above 1 the two groups differ by more than chance. Spacings are
    medians in mm.
    """

    kind: Kind
    sentence: str
    stored: float = 0.0
    standardised: float = 0.0
    spacing: tuple[float, ...] = ()
    labeled_spacing: tuple[float, ...] = ()
    unlabeled_spacing: tuple[float, ...] = ()


def likeness(summaries: Fingerprint) -> Likeness:
    """Compare the labeled with the unlabeled cases."""
    labeled, unlabeled = summaries.of("labeled"), summaries.of("unlabeled")
    numbers = f"{len(labeled)} labeled and {len(unlabeled)} unlabeled"
    if not labeled or not unlabeled:
        return Likeness("alone", f"Nothing to compare: {numbers} scans.")
    if len({(len(case.shape), len(case.mean)) for case in labeled + unlabeled}) > 1:
        return Likeness("apart", "The scans differ in their numbers of axes or channels and cannot be compared.")
    measured = Likeness(
        "alike",
        "",
        intensity_shift(labeled, unlabeled),
        intensity_shift(labeled, unlabeled, standardised=True),
        spacing_shift(labeled, unlabeled),
        _median_spacing(labeled),
        _median_spacing(unlabeled),
    )
    reasons = ["their contrast differs"] if measured.standardised > SHIFT_LIMIT else []
    reasons += ["their spacing differs"] if max(measured.spacing) > SHIFT_LIMIT else []
    kind: Kind = "apart" if reasons else "scaled" if measured.stored > SHIFT_LIMIT else "alike"
    lone = min(len(labeled), len(unlabeled)) < FEWEST
    if len(labeled) + len(unlabeled) < FEWEST_TOGETHER or (kind == "alike" and lone):
        kind = "too few"
    sentence = _sentence(kind, reasons, numbers)
    odd = {finding.where for finding in offset_findings(labeled + unlabeled)}
    if kind == "alike" and odd:
        sentence = f"Spacing and intensities are alike, but for {counted(len(odd), 'scan')} that may lack an intercept."
    return replace(measured, kind=kind, sentence=sentence)


def spacing_shift(labeled: Sequence[CaseFingerprint], unlabeled: Sequence[CaseFingerprint]) -> tuple[float, ...]:
    r"""How far the spacings of two groups lie apart along each canonical axis, in units of what would be no surprise.

    With :math:`s` the logarithm of the spacings of a group along an axis, :math:`S` their median, b the mean of
    :math:`|s_i - S|` over both groups with n + m - 2 degrees of freedom:

    .. math:: \frac{|S_L - S_U|}{\log 1.1 + 5 b \sqrt{1/n + 1/m}}

    So a tenth more or less is nothing, and neither is what cases of one group differ by.
    """
    groups = [np.log([case.canonical_spacing for case in group]) for group in (labeled, unlabeled)]
    centres = [np.median(group, axis=0) for group in groups]
    away = np.concatenate([np.abs(group - centre) for group, centre in zip(groups, centres, strict=True)])
    between = away.sum(axis=0) / max(1, len(away) - 2)
    usual = np.log(SPACING_SLACK) + 5 * between * np.sqrt(1 / len(labeled) + 1 / len(unlabeled))
    return tuple(float(shift) for shift in np.abs(centres[0] - centres[1]) / usual)


def shift_findings(summaries: Fingerprint, found: Likeness) -> Iterator[Finding]:
    """Intensities and spacings by which labeled and unlabeled scans can be told apart."""
    if not found.spacing:
        return
    what = shift_verdict(summaries.of("labeled"), summaries.of("unlabeled"))
    if what is not None:
        size = (
            f"shift {found.stored:.1f} as stored, {found.standardised:.1f} after z-scores (above 1 is more than chance)"
        )
        remedy = "check that both come from the same kind of scanner and protocol"
        yield Finding("warning", what, PLACE, size, remedy)
    if max(found.spacing) > SHIFT_LIMIT and found.kind != "too few":
        axis = found.spacing.index(max(found.spacing))
        size = f"{found.labeled_spacing[axis]:.2f} mm against {found.unlabeled_spacing[axis]:.2f} mm in the median"
        remedy = "resample to one spacing when preparing, and check that both come from the same protocol"
        yield Finding("warning", "labeled and unlabeled scans differ in spacing", PLACE, size, remedy)


def _median_spacing(cases: Sequence[CaseFingerprint]) -> tuple[float, ...]:
    return tuple(float(step) for step in np.median([case.canonical_spacing for case in cases], axis=0))


def _sentence(kind: Kind, reasons: Sequence[str], numbers: str) -> str:
    if kind == "too few":
        return f"Too few scans to tell whether the unlabeled ones look like the labeled ones: {numbers}."
    if kind == "apart":
        return f"The unlabeled scans look like another scanner or protocol: {' and '.join(reasons)}."
    if kind == "scaled":
        return (
            "The unlabeled scans are brighter, darker or of another range, which normalising each scan removes; "
            "nothing else speaks against using them together."
        )
    return "Nothing speaks against using labeled and unlabeled scans together: spacing and intensities are alike."
