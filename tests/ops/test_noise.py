"""Random noise: its distribution and its limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graftseg.ops.perturbations import add_noise


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**16), st.floats(0, 3))
def test_noise_is_clipped_at_two_standard_deviations(seed: int, deviation: float) -> None:
    torch.manual_seed(seed)
    added = add_noise(torch.zeros(1, 1, 20, 20), deviation)
    assert added.abs().max() <= 2 * deviation * (1 + 1e-6)


def test_noise_is_normal_where_it_is_not_clipped() -> None:
    torch.manual_seed(0)
    added = add_noise(torch.full((1, 1, 300, 300), 5.0), 0.1) - 5
    inside = added.abs() < 0.1999
    assert inside.float().mean().item() == pytest.approx(0.9545, abs=0.005)
    assert added.mean().item() == pytest.approx(0, abs=0.002)
    assert (added.abs() < 0.1).float().mean().item() == pytest.approx(0.6827, abs=0.008)
