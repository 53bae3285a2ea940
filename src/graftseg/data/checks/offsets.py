"""CT scans that were stored without their rescale intercept, so that air lies at 0 rather than at -1000."""

from collections.abc import Iterator, Sequence

import numpy as np

from graftseg.data.checks.findings import Finding
from graftseg.data.fingerprint import CaseFingerprint

AIR = -200.0
"""Values of CT scans reach well below; most scans must do so for the others to be odd."""
ZERO = 100.0
"""The lower end of a scan whose air was moved to 0 lies no further from it."""
TISSUE = 700.0
"""The upper end of such a scan lies above, as water is at about 1000: that of a crop without air does not."""


def offset_findings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Scans that begin near 0 and reach high where most begin near air, in any channel."""
    channels = min((len(case.mean) for case in cases), default=0)
    for channel in range(channels):
        lowest, highest = (np.array([case.percentiles[channel][end] for case in cases]) for end in (0, -1))
        has_air = lowest < AIR
        if 2 * np.count_nonzero(has_air) <= len(cases):
            continue
        usual = float(np.median(lowest[has_air]))
        for place in np.flatnonzero((np.abs(lowest) <= ZERO) & (highest > TISSUE)).tolist():
            name, within = cases[place].name, f" in channel {channel:04d}" if channels > 1 else ""
            what = "values may lack the rescale intercept of CT: they begin near 0 and not near air"
            size = f"from {lowest[place]:.0f} where others begin at {usual:.0f}{within}"
            remedy = "convert the scan again with its intercept, or take off what is missing, often 1024"
            yield Finding("warning", what, name, size, remedy, (name,))
