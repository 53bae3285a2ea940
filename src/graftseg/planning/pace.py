"""The expected seconds of steps and predictions: from a table of devices, or measured on this machine."""

from dataclasses import dataclass
from math import ceil, prod

from graftseg.methods.costs import SELF_TRAINING, SUPERVISED
from graftseg.planning.cost import SPEEDS, Target, network_load
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame
from graftseg.planning.length import StepTimes
from graftseg.planning.patches import StepShape

OVERLAP = {"cpu": 0.25, "cuda": 0.5}
"""Overlap of the windows of a prediction by device, as a fraction of a window."""


@dataclass(frozen=True)
class Measurement:
    """The measured seconds per step of self-training and of supervised training, for one step shape."""

    shape: StepShape
    self_training: float
    supervised: float


@dataclass(frozen=True)
class Pace:
    """The expected times of a method on a device.

    Without a measurement, times come from a table. A measurement also corrects the times of other step shapes, which
    are slower or faster than in the table by about the same factor.
    """

    facts: Facts
    target: Target
    method: str
    measurement: Measurement | None = None

    def times(self, frame: Frame, shape: StepShape, *, uses_unlabeled: bool = True) -> StepTimes:
        """Return the expected times for scans in this frame and steps of this shape."""
        self_training, supervised = self._seconds_per_step(shape)
        return StepTimes(
            self_training,
            supervised,
            uses_unlabeled,
            prediction=scan_seconds(frame, shape, supervised, OVERLAP[self.target.kind]),
            unlabeled=self.facts.unlabeled_count,
            compared_networks=3 if self.facts.occasional_classes else 2,
        )

    def _seconds_per_step(self, shape: StepShape) -> tuple[float, float]:
        measured = self.measurement
        if measured is None:
            return self._table_seconds(shape)
        if shape == measured.shape:
            return measured.self_training, measured.supervised
        expected, reference = self._table_seconds(shape), self._table_seconds(measured.shape)
        return (
            measured.self_training * expected[0] / reference[0],
            measured.supervised * expected[1] / reference[1],
        )

    def _table_seconds(self, shape: StepShape) -> tuple[float, float]:
        """Return the seconds per step of self-training and of supervised training from the table of devices."""
        facts, speed = self.facts, SPEEDS[self.target.kind]
        load = network_load(shape.network, facts.channels, len(facts.classes))
        operations = shape.batch * prod(shape.patch) * load.operations
        return speed.seconds(SELF_TRAINING[self.method] * operations), speed.seconds(SUPERVISED * operations)


def scan_seconds(frame: Frame, shape: StepShape, supervised: float, overlap: float) -> float:
    """Estimate the seconds to predict a typical scan, from the seconds of a supervised step."""
    strides = [max(1, round(n * (1 - overlap))) for n in shape.patch]
    axes = zip(frame.image_size, shape.patch, strides, strict=True)
    windows = prod(ceil(max(size - n, 0) / stride) + 1 for size, n, stride in axes)
    slices = prod(frame.size[frame.dimensions :])
    return windows * slices * supervised / (SUPERVISED * shape.batch)
