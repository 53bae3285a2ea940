"""The checks of the teacher in ``teacher.json``, and what they say about a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Decision = Literal["continue", "extend", "skip", "stop"]
MIN_SCANS = 2  # minimum number of scans with a plausible prediction for self-training


@dataclass(frozen=True)
class TeacherCheck:
    """The result of a check before or during self-training."""

    stage: int  # number of the stage of self-training
    scans: int  # number of checked scans
    rejected: Mapping[str, str]  # reasons by scan or, with the decision ``stop``, the change by class
    decision: Decision  # what to do next
    watched: Mapping[str, Sequence[int]] = field(default_factory=dict)  # volumes before the stage, by scan
    step: int = 0  # number of steps of the stage before the check
    added: int = 0  # number of supervised steps that replace skipped self-training

    @property
    def finding(self) -> str:
        """The reason for the decision."""
        if self.decision == "stop":
            name, change = next(iter(self.rejected.items()))
            return f"{name} {change} in unlabeled scans"
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
        return asdict(self)


def counted_reasons(rejected: Mapping[str, str]) -> str:
    """Return how many scans were rejected for each reason, most frequent reason first."""
    reasons = Counter(rejected.values()).most_common()
    return ", ".join(f"{count} with {reason}" for reason, count in reasons)


class TeacherChecks(tuple[TeacherCheck, ...]):
    """All checks of a run, in order."""

    @property
    def abandoned(self) -> TeacherCheck | None:
        """The last check if it skipped or stopped self-training, or None."""
        return self[-1] if self and self[-1].decision in ("skip", "stop") else None

    @property
    def is_supervised_only(self) -> bool:
        """Whether self-training was skipped before any unlabeled scan was used."""
        decisions = [check.decision for check in self]
        return decisions[-1:] == ["skip"] and "continue" not in decisions

    @property
    def trained_stage(self) -> int:
        """Index, in the recipe, of the stage that trained the network of the run.

        This is the last stage (-1), unless a stage was skipped or stopped. The network is then that of the stage
        before. The checks also count extensions of a stage, which are not in the recipe.
        """
        last = self.abandoned
        return -1 if last is None else last.stage - 1 - sum(check.decision == "extend" for check in self)
