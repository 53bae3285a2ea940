"""Schedules of the learning rate, and ramps."""

from itertools import pairwise
from math import exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from graftseg.ops.optimizers import Constant, Poly, Schedule, Step, ramp_up


def ramp(elapsed: float, length: float) -> float:
    return ramp_up(torch.tensor(elapsed), length).item()


def test_ramp_starts_above_0_and_ends_at_1() -> None:
    assert ramp(0, 40) == pytest.approx(exp(-5), rel=1e-6)
    assert ramp(0, 40) == pytest.approx(0.0067, abs=5e-5)
    assert ramp(20, 40) == pytest.approx(exp(-1.25), rel=1e-6)
    assert ramp(40, 40) == ramp(41, 40) == ramp(1e9, 40) == 1
    assert ramp(-3, 40) == ramp(0, 40)


@given(st.floats(-10, 300), st.floats(-10, 300), st.floats(1, 200))
@settings(deadline=None)
def test_ramp_never_decreases(first: float, second: float, length: float) -> None:
    low, high = sorted((first, second))
    assert exp(-5) * (1 - 1e-6) <= ramp(low, length) <= ramp(high, length) <= 1


@pytest.mark.parametrize("length", [40, 40.0, 2.5])
def test_ramp_of_integer_steps(length: float) -> None:
    steps = torch.arange(50)
    values = ramp_up(steps, length)
    assert values.dtype == torch.float32
    assert torch.equal(values, ramp_up(steps.float(), length))


def test_constant() -> None:
    assert [Constant().factor(step, 30_000) for step in (0, 29_999)] == [1, 1]


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 1e-2), (2499, 1e-2), (2500, 1e-3), (4999, 1e-3), (5000, 1e-4), (7500, 1e-5), (14_999, 1e-7)],
)
def test_step_multiplies_by_a_tenth_every_2500(step: int, rate: float) -> None:
    assert 0.01 * Step().factor(step, 15_000) == pytest.approx(rate, rel=1e-12)


def test_step_with_other_settings() -> None:
    schedule = Step(every=3, gamma=0.5)
    assert [schedule.factor(step, 10) for step in range(8)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_poly() -> None:
    assert Poly().factor(0, 30_000) == 1
    assert 0.01 * Poly().factor(15_000, 30_000) == pytest.approx(0.01 * 2**-0.9, rel=1e-12)
    assert 0.01 * Poly().factor(27_000, 30_000) == pytest.approx(0.0012589254117941667, rel=1e-12)
    assert Poly().factor(30_000, 30_000) == 0
    assert [Poly(power=1).factor(step, 4) for step in range(5)] == [1, 0.75, 0.5, 0.25, 0]
    assert Poly(power=2).factor(1, 4) == 0.5625


@given(st.integers(1, 1000), st.sampled_from([Constant(), Step(every=100), Poly()]))
@settings(deadline=None)
def test_learning_rate_never_increases(total: int, schedule: Constant | Step | Poly) -> None:
    factors = [schedule.factor(step, total) for step in range(total)]
    assert factors[0] == 1
    assert all(0 < after <= before for before, after in pairwise(factors))


def test_schedule_is_chosen_by_name() -> None:
    choose = TypeAdapter[Constant | Step | Poly](Schedule).validate_python
    assert choose({"name": "step", "every": 10}) == Step(every=10)
    assert choose({"name": "poly"}) == Poly(power=0.9)
    assert choose({"name": "constant"}) == Constant()
    with pytest.raises(ValidationError, match="'constant', 'step', 'poly'"):
        choose({"name": "cosine"})
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        choose({"name": "poly", "every": 10})


@pytest.mark.parametrize(
    ("schedule", "settings_"), [(Step, {"every": 0}), (Step, {"gamma": 1.5}), (Poly, {"power": 0})]
)
def test_invalid_settings_are_rejected(schedule: type[Step | Poly], settings_: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings_))):
        schedule.model_validate(settings_)
