"""The cost of a step of each method, compared with the counted operations of tiny networks."""

from typing import Any

import pytest
import torch
from tiny import tiny_batch, tiny_method
from torch.utils.flop_counter import FlopCounterMode

from graftseg.methods import METHODS
from graftseg.methods.costs import OTHER_SELF_TRAINING, SELF_TRAINING, SUPERVISED, UNMIXED, step_cost
from method_fakes import at_step


def operations(name: str, **settings: Any) -> int:
    """Count the operations of the forward and backward passes of a step."""
    method = tiny_method(name, 2, **settings)
    counter = FlopCounterMode(display=False)
    with counter:
        for objective in method.objectives(tiny_batch(2, side=16), at_step(0)):
            torch.autograd.backward(objective.total)
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bcp", {}),
        ("bcp", {"direction": "none"}),
        ("fg-cutmix", {}),
        ("mean-teacher", {}),
        ("ua-mt", {}),
        ("mc-net", {}),
    ],
)
def test_costs_agree_with_counted_operations(name: str, settings: dict[str, Any]) -> None:
    counted = SUPERVISED * operations(name, **settings) / operations("supervised")
    assert step_cost(name, settings, uses_unlabeled=True) == pytest.approx(counted, rel=0.15)


def test_methods_without_a_known_cost() -> None:
    assert step_cost("supervised", {}, uses_unlabeled=False) == SUPERVISED
    assert step_cost("bcp-pretrain", {}, uses_unlabeled=False) == SUPERVISED
    assert step_cost("dtc", {}, uses_unlabeled=True) == OTHER_SELF_TRAINING
    assert step_cost("bcp", {"direction": "none"}, uses_unlabeled=True) == UNMIXED


def test_every_method_with_a_cost_uses_unlabeled_scans() -> None:
    assert [name for name in SELF_TRAINING if not METHODS[name].uses_unlabeled] == []
