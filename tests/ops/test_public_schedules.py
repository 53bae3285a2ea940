"""Schedules of the public training loops, step by step, and where ours differ.

``docs/explanation/reproduction.md`` states the sizes of the differences.
"""

from math import exp

import pytest
import torch

from graftseg.ops.optimizers import Poly, consistency_ramp
from graftseg.ops.perturbations import unit_length
from graftseg.recipes.recipe import load_recipe


def public_rates(total: int) -> list[float]:
    """Return the rate of each step in SSL4MIS: the rate is set after the update, from a counter not yet increased."""
    rates, rate = [], 1.0
    for counter in range(total):
        rates.append(rate)
        rate = (1 - counter / total) ** 0.9
    return rates


def test_poly_is_one_step_ahead_of_ssl4mis() -> None:
    total = load_recipe("acdc-3/ua-mt").stages[0].steps
    public, ours = public_rates(total), [Poly().factor(step, total) for step in range(total)]
    assert total == 30_000
    assert public[:2] == [1, 1] and public[1:] == ours[:-1]
    assert 1 - ours[1] / public[1] == pytest.approx(3.0e-5, rel=1e-3)
    assert ours[-1] / public[-1] == pytest.approx(2**-0.9)
    assert public[-1] == pytest.approx(1.744e-4, rel=1e-3)
    # summed over the training, the public rate is larger by the first step's rate minus the last step's
    assert sum(public) - sum(ours) == pytest.approx(1 - ours[-1], abs=1e-9)
    assert (sum(public) - sum(ours)) / sum(ours) == pytest.approx(6.3e-5, rel=0.01)


def public_ramp(total: int, length: int) -> list[float]:
    """Return the weight of each step in MC-Net: the counter is increased before the weight is computed."""
    counters = range(1, total + 1)
    return [exp(-5 * (1 - min(counter // 150, length) / length) ** 2) for counter in counters]


@pytest.mark.parametrize(
    ("name", "largest", "share"),
    [("la-4/mc-net", 0.0479, 8.8e-5), ("la-4/ss-net", 0.0479, 8.8e-5), ("acdc-3/mc-net", 0.0096, 8.4e-5)],
)
def test_ramp_is_one_step_late_every_150_steps(name: str, largest: float, share: float) -> None:
    stage = load_recipe(name).stages[-1]
    length = int(stage.settings["ramp"])
    ours = consistency_ramp(torch.arange(stage.steps, dtype=torch.float64), length)
    late = torch.tensor(public_ramp(stage.steps, length), dtype=torch.float64) - ours
    steps = (late > 1e-9).nonzero().flatten()
    assert late.min() > -1e-9 and steps.tolist() == list(range(149, 150 * length, 150))
    assert late.max().item() == pytest.approx(largest, rel=0.01)
    # one step late in every increase, so the sum of the differences is the height of the ramp
    assert late.sum().item() == pytest.approx(1 - exp(-5))
    assert (late.sum() / ours.sum()).item() == pytest.approx(share, rel=0.01)


def test_mean_teacher_is_consistent_before_step_1000() -> None:
    stage = load_recipe("acdc-3/mean-teacher").stages[0]
    weight, length = stage.settings["weight"], stage.settings["ramp"]
    ours = weight * consistency_ramp(torch.arange(stage.steps, dtype=torch.float64), length)
    # SSL4MIS leaves the term out in these steps
    early = ours[:1000]
    assert (early[0].item(), early[-1].item()) == pytest.approx((6.74e-4, 9.05e-4), rel=0.01)
    assert (early.sum() / ours.sum()).item() == pytest.approx(6.6e-4, rel=0.02)


@pytest.mark.parametrize(("length", "difference"), [(1.0, 1e-8), (3e-4, 3.3e-5), (1e-6, 0.0099), (1e-8, 0.5)])
def test_noise_has_length_1_and_the_public_noise_is_shorter(length: float, difference: float) -> None:
    """SS-Net's public code divides by ‖g‖ + 1e-8; we divide by max(‖g‖, 1e-8)."""
    direction = torch.tensor([[[0.6, 0.8]]], dtype=torch.float64)
    gradient = length * direction
    ours, public = unit_length(gradient), gradient / (gradient.norm() + 1e-8)
    torch.testing.assert_close(ours, direction, rtol=1e-12, atol=0)
    assert (1 - public.norm() / ours.norm()).item() == pytest.approx(difference, rel=0.02)
    assert (public / public.norm() - ours).abs().max() < 1e-12
