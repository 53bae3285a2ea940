"""Check of the teacher before self-training: compare predictions of unlabeled scans with the labeled scans.

Self-training leaves out scans with an implausible prediction. If more than a quarter of the predictions are
implausible, or fewer than two are plausible, the first stage is extended once. If this does not help, training
continues without the unlabeled scans.

During self-training, a few scans are predicted again at intervals. If a class shrinks or grows too much, and not toward
its usual volume, the network of the previous interval is restored, and training continues without the unlabeled scans.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from graftseg.training.plausibility import ScanSummary, Usual

Decision = Literal["continue", "extend", "skip", "stop"]

MAX_REJECTED = 0.25
"""Share of implausible scans above which the teacher is not trusted."""
MIN_SCANS = 2
"""Minimum number of plausible scans for self-training."""
MAX_WATCHED = 6
"""Maximum number of scans that are predicted again during self-training."""
MAX_DRIFT = 3.0
"""A class drifts if its volume in the watched scans is more than this factor below both its first and its usual volume,
or more than this factor above both."""
MIN_DRIFT_VOXELS = 10
"""Mean number of voxels per watched scan below which a class is not checked for drift."""
INTERVALS = 5
"""Number of intervals of self-training. The watched scans are predicted after each interval except the last."""


@dataclass(frozen=True)
class TeacherCheck:
    """The result of a check before stage ``stage``: the reason for every rejected scan, and what to do.

    ``watched`` has the predicted volumes of the scans that are predicted again during the stage. With the decision
    ``stop``, the check was made after ``step`` steps of the stage, and ``rejected`` has the class that changed.
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
        reasons = Counter(self.rejected.values()).most_common()
        found = ", ".join(f"{count} with {reason}" for reason, count in reasons)
        return f"the predictions of {len(self.rejected)} of {self.scans} unlabeled scans are implausible ({found})"

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.decision == "stop":
            return f"self-training stopped after {self.step} steps, because {self.finding}"
        if not self.rejected and self.decision == "continue":
            return self.finding
        then = {
            "continue": f"self-training uses the other {self.scans - len(self.rejected)}",
            "extend": "the first stage is extended before self-training",
            "skip": "training continues without the unlabeled scans",
        }[self.decision]
        return f"{self.finding}; {then}"

    def facts(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        watched = {name: list(volumes) for name, volumes in self.watched.items()}
        return {**vars(self), "rejected": dict(self.rejected), "watched": watched}


def check_teacher(
    labeled: Sequence[ScanSummary], predicted: Mapping[str, ScanSummary], *, stage: int, may_extend: bool
) -> TeacherCheck:
    """Compare the predictions of unlabeled scans, by name, with the labeled scans, and decide what to do next."""
    usual = Usual.of(labeled)
    objections = {name: usual.objection(scan) for name, scan in predicted.items()}
    rejected = {name: reason for name, reason in objections.items() if reason is not None}
    trusted = len(rejected) <= MAX_REJECTED * len(predicted) and len(predicted) - len(rejected) >= MIN_SCANS
    decision: Decision = "continue" if trusted else "extend" if may_extend else "skip"
    plausible = {name: scan.volumes for name, scan in predicted.items() if name not in rejected}
    watched = {name: [int(one) for one in plausible[name]] for name in list(plausible)[:MAX_WATCHED]}
    return TeacherCheck(stage, len(predicted), rejected, decision, watched)


def drifted_class(
    before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], expected: Sequence[float | None]
) -> tuple[int, str] | None:
    """Return the index of the first foreground class whose volume changed too much, and the change.

    ``expected`` is the usual volume of each class in all watched scans together, in voxels. A change toward it is not a
    drift: the class must also be far from its usual volume. A class with few voxels at the start is not checked,
    because a small change would be large relative to its volume.
    """
    first, second = (np.array([volumes[name] for name in before]).sum(axis=0) for volumes in (before, now))
    for value, (old, new, usual) in enumerate(zip(first, second, expected, strict=True)):
        if old < MIN_DRIFT_VOXELS * len(before):
            continue
        normal = old if usual is None else usual
        if new * MAX_DRIFT < min(old, normal):
            return value, f"shrank to {new / old:.0%} of its volume"
        if new > MAX_DRIFT * max(old, normal):
            return value, f"grew to {new / old:.0%} of its volume"
    return None
