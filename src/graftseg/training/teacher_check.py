"""Check of the teacher: compare its predictions of the unlabeled scans with the labeled scans.

Before self-training, scans with an implausible prediction are left out. If too many predictions are implausible, the
first stage is extended once. If too many are still implausible, training continues without the unlabeled scans.

During self-training, a few scans are predicted again at intervals. If a class drifts, the network before the drift is
restored, and training continues without the unlabeled scans.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from graftseg.core.teacher_checks import MIN_SCANS, Decision, TeacherCheck
from graftseg.training.plausibility import ScanSummary, UsualAnatomy

MAX_REJECTED = 0.25
"""Maximum share of scans with an implausible prediction for self-training."""
MAX_WATCHED = 6
"""Maximum number of scans that are predicted again during self-training."""
MAX_DRIFT = 3.0
"""A class drifts if its volume falls below both its first and its usual volume by more than this factor, or rises above
both by more than this factor. Volumes are sums over the watched scans."""
MIN_DRIFT_VOXELS = 10
"""Minimum mean number of voxels per watched scan. Smaller classes are not checked for drift, because a small change is
large relative to their volume."""
INTERVALS = 5
"""Number of intervals of self-training. The watched scans are predicted after each interval except the last."""


def implausible(labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary]) -> dict[str, str]:
    """Return why predictions are implausible, by the name of the scan. Plausible predictions are not included."""
    usual = UsualAnatomy.of(labeled)
    return {name: reason for name, scan in predicted.items() if (reason := usual.implausibility(scan)) is not None}


def check_teacher(
    labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary], *, stage: int, may_extend: bool
) -> TeacherCheck:
    """Compare the predictions of unlabeled scans, by name, with the labeled scans, and decide what to do next."""
    rejected = implausible(labeled, predicted)
    plausible = [name for name in predicted if name not in rejected]
    is_trusted = len(rejected) <= MAX_REJECTED * len(predicted) and len(plausible) >= MIN_SCANS
    decision: Decision = "continue" if is_trusted else "extend" if may_extend else "skip"
    watched = {name: [int(volume) for volume in predicted[name].volumes] for name in plausible[:MAX_WATCHED]}
    return TeacherCheck(stage, len(predicted), rejected, decision, watched)


def drifted_class(
    before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], usual: Sequence[float | None]
) -> tuple[int, str] | None:
    """Return the index of the first foreground class that drifted, and how its volume changed; None without a drift.

    ``before`` and ``now`` are the volumes of the classes in each watched scan. ``usual`` is the usual volume of each
    class in all watched scans together, or None if it is unknown. All volumes are in voxels.
    """
    first, current = (np.array([volumes[name] for name in before]).sum(axis=0) for volumes in (before, now))
    for index, (old, new, expected) in enumerate(zip(first, current, usual, strict=True)):
        if old < MIN_DRIFT_VOXELS * len(before):
            continue
        expected = old if expected is None else expected
        if new * MAX_DRIFT < min(old, expected):
            return index, f"shrank to {new / old:.0%} of its volume"
        if new > MAX_DRIFT * max(old, expected):
            return index, f"grew to {new / old:.0%} of its volume"
    return None
