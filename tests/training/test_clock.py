from dataclasses import dataclass, field

import pytest
import torch

from graftseg.training import clock
from graftseg.training.clock import StepClock


@dataclass
class Time:
    """A clock that the test advances, and a device that records the times at which the host waits for it."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)

    def read(self) -> float:
        return self.now

    def wait(self, *_: object) -> None:
        self.waits.append(self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "perf_counter", time.read)
    monkeypatch.setattr(torch.cuda, "synchronize", time.wait)
    return time


def step(steps: StepClock, time: Time, **seconds: float) -> None:
    for name, lasting in seconds.items():
        with steps.phase(name):
            time.now += lasting
    time.now += 1000  # between phases nothing is counted
    steps.tick()


def test_every_step_is_timed_on_a_cpu(time: Time) -> None:
    steps = StepClock(torch.device("cpu"))
    step(steps, time, forward=2.0, update=1.0)
    step(steps, time, forward=4.0, update=2.0)
    assert steps.split() == {"forward": 3.0, "update": 1.5}
    assert time.waits == []


def test_a_phase_that_comes_twice_in_a_step_adds_up(time: Time) -> None:
    steps = StepClock(torch.device("cpu"))
    for seconds in (1.0, 3.0):
        with steps.phase("forward"):
            time.now += seconds
    steps.tick()
    assert steps.split() == {"forward": 4.0}


def test_a_phase_that_some_steps_lack_is_shared_by_all(time: Time) -> None:
    steps = StepClock(torch.device("cpu"))
    step(steps, time, forward=2.0)
    step(steps, time, forward=2.0, extra=3.0)
    assert steps.split() == {"forward": 2.0, "extra": 1.5}


def test_before_the_first_step_there_is_nothing(time: Time) -> None:
    assert StepClock(torch.device("cpu")).split() == {}


def test_on_a_gpu_only_every_nth_step_is_timed_and_waits(time: Time) -> None:
    steps = StepClock(torch.device("cuda"), every=3)
    waits = []
    for seconds in range(1, 8):
        before = len(time.waits)
        step(steps, time, forward=float(seconds))
        waits.append(len(time.waits) - before)
    assert waits == [0, 0, 2, 0, 0, 2, 0]
    assert steps.split() == {"forward": (3 + 6) / 2}


def test_a_phase_inside_of_another_is_part_of_it(time: Time) -> None:
    """A step that is captured lies inside of a phase, and nothing may wait for the device there."""
    steps = StepClock(torch.device("cuda"), every=1)
    with steps.phase("step"):
        time.now += 1.0
        with steps.phase("forward"):
            time.now += 2.0
    steps.tick()
    assert steps.split() == {"step": 3.0}
    assert time.waits == [0.0, 3.0]
    with pytest.raises(ValueError, match="broken"), steps.phase("step"):
        raise ValueError("broken")
    step(steps, time, batch=1.0)
    assert steps.split()["batch"] == 0.5
