"""Check of the teacher: compare its predictions of the unlabeled scans with the labeled scans.

Before self-training, scans with an implausible prediction are left out. If too many predictions are implausible, the
first stage is extended once. If too many are still implausible, training continues without the unlabeled scans.

During self-training, a few scans are predicted again at intervals. If a class drifts, the network before the drift is
restored, and training continues without the unlabeled scans.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from graftseg.training.plausibility import ScanSummary, UsualAnatomy

Decision = Literal["continue", "extend", "skip", "stop"]

MAX_REJECTED = 0.25
"""Maximum share of scans with an implausible prediction for self-training."""
MIN_SCANS = 2
"""Minimum number of scans with a plausible prediction for self-training."""
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


@dataclass(frozen=True)
class TeacherCheck:
    """The result of a check before or during self-training.

    stage: number of the stage of self-training
    scans: number of checked scans
    rejected: why a scan is left out, by its name; with the decision ``stop``, how a class changed, by its name
    decision: what to do next
    watched: predicted volumes of the watched scans before the stage, by the name of the scan
    step: number of steps of the stage before the check
    """

    stage: int
    scans: int
    rejected: Mapping[str, str]
    decision: Decision
    watched: Mapping[str, Sequence[int]] = field(default_factory=dict)
    step: int = 0

    @property
    def finding(self) -> str:
        """The reason for the decision."""
        if self.decision == "stop":
            name, change = next(iter(self.rejected.items()))
            return f"class {name} {change} in unlabeled scans"
        if not self.rejected and self.decision == "continue":
            return f"the predictions of all {self.scans} unlabeled scans are plausible"
        if not self.rejected:
            return f"self-training needs at least {MIN_SCANS} unlabeled scans, but there is only {self.scans}"
        reasons = counted_reasons(self.rejected)
        return f"the predictions of {len(self.rejected)} of {self.scans} unlabeled scans are implausible ({reasons})"

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.decision == "stop":
            return f"self-training stopped after {self.step} steps, because {self.finding}"
        if not self.rejected and self.decision == "continue":
            return self.finding
        consequence = {
            "continue": f"self-training uses the other {self.scans - len(self.rejected)}",
            "extend": "the first stage is extended before self-training",
            "skip": "training continues without the unlabeled scans",
        }[self.decision]
        return f"{self.finding}; {consequence}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        watched = {name: list(volumes) for name, volumes in self.watched.items()}
        return {**vars(self), "rejected": dict(self.rejected), "watched": watched}


def counted_reasons(rejected: Mapping[str, str]) -> str:
    """Return how many scans were rejected for each reason, most frequent reason first."""
    reasons = Counter(rejected.values()).most_common()
    return ", ".join(f"{count} with {reason}" for reason, count in reasons)


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
