"""The methods that the planner can choose to learn from unlabeled scans."""

from typing import TYPE_CHECKING, Literal, NamedTuple


class PlannedMethod(NamedTuple):
    """A method that the planner can choose."""

    cost: float  # of a step, in forward passes of the student and the teacher
    idea: str  # what the method learns from unlabeled scans


PLANNED_METHODS = {
    "graft": PlannedMethod(5.5, "pseudo-labels for unlabeled scans, weighted by the confidence of the teacher"),
    "bcp": PlannedMethod(4.0, "bidirectional copy-paste between labeled and unlabeled scans"),
    "fg-cutmix": PlannedMethod(7.0, "patches exchanged between labeled and unlabeled scans"),
    "mean-teacher": PlannedMethod(7.0, "predictions that agree with a mean teacher under noise"),
    "ua-mt": PlannedMethod(15.0, "predictions that agree with a mean teacher where it is certain"),
    "mc-net": PlannedMethod(9.0, "decoders that agree with one another"),
}
DEFAULT_METHOD = "graft"

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(PLANNED_METHODS)]
