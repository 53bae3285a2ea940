"""Every method in bfloat16: losses are float32, finite, and equal up to the rounding of the networks."""

import pytest
import torch
from tiny import SIDE, tiny_batch, tiny_method

from graftseg.core.types import Progress
from graftseg.methods import METHODS

Numbers = dict[str, float]


def step(name: str, dimensions: int, *, bf16: bool) -> tuple[Numbers, Numbers]:
    """Return the terms of a step at the end of all ramps, and the norms of its gradients."""
    method, batch = tiny_method(name, dimensions), tiny_batch(dimensions, side=SIDE)
    terms, gradients = Numbers(), Numbers()
    torch.manual_seed(1)
    pending = method.objectives(batch, Progress(torch.tensor(30000), 30000))
    while True:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            objective = next(pending, None)
        if objective is None:
            return terms, gradients
        assert all(term.dtype == torch.float32 for term in objective.terms.values())
        terms |= {key: term.item() for key, term in objective.terms.items()}
        objective.total.backward()  # type: ignore[no-untyped-call]
        moved = method.get_submodule(objective.updates).parameters()
        squares = [parameter.grad.square().sum() for parameter in moved if parameter.grad is not None]
        gradients[objective.updates] = torch.stack(squares).sum().sqrt().item()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.slow
def test_bfloat16_changes_losses_only_by_rounding(name: str, dimensions: int) -> None:
    (terms, gradients), (rounded, their_gradients) = (step(name, dimensions, bf16=bf16) for bf16 in (False, True))
    assert rounded == pytest.approx(terms, rel=0.03, abs=0.003)
    # a steep loss, such as that of signed distances, depends on few voxels, whose gradients are rounded more
    assert their_gradients == pytest.approx(gradients, rel=0.5)
