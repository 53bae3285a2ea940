"""Detect CT scans stored without their rescale intercept, in which air is 0 instead of -1000."""

from collections.abc import Iterator, Sequence

import numpy as np

from graftseg.data.checks.findings import Finding
from graftseg.data.fingerprint import CaseFingerprint

AIR = -200.0
"""CT scans with air have values below this. The check applies if most scans do."""
ZERO = 100.0
"""A scan without intercept has its lowest value within this distance of 0."""
TISSUE = 700.0
"""A scan without intercept has its highest value above this, because water is at about 1000."""


def offset_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Report scans whose values start near 0 while most scans contain air, for each channel."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        lowest, highest = (np.array([case.percentiles[channel][end] for case in cases]) for end in (0, -1))
        has_air = lowest < AIR
        if 2 * np.count_nonzero(has_air) <= len(cases):
            continue
        usual = float(np.median(lowest[has_air]))
        for place in np.flatnonzero((np.abs(lowest) <= ZERO) & (highest > TISSUE)).tolist():
            name, within = cases[place].name, f" in channel {channel:04d}" if channels > 1 else ""
            what = "the CT rescale intercept may be missing: values start near 0 instead of near -1000"
            size = f"lowest value {lowest[place]:.0f}, but {usual:.0f} in other scans{within}"
            remedy = "convert the scan again with its intercept, or subtract the missing offset, often 1024"
            yield Finding("warning", what, name, size, remedy, (name,))
