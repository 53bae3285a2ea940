"""Values of DAN by hand, and inputs and modes of both networks."""

import math

import pytest
import torch
from tiny import SIDE, tiny_batch, tiny_method
from torch import Tensor, nn

from graftseg.core.types import Objective
from graftseg.methods.dan import Dan, DanConfig
from method_fakes import at_step, black_batch, fakes, set_bias


class ConstantDiscriminator(nn.Module):
    """A discriminator that returns "labeled" with probability ¾ for every map and stores maps and modes."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))
        set_bias(self, 0.25, 0.75)
        self.seen: list[Tensor] = []
        self.modes: list[bool] = []

    def forward(self, maps: Tensor, images: Tensor) -> Tensor:
        self.seen.append(maps)
        self.modes.append(self.training)
        return self.bias.expand(len(maps), 2)


def by_hand() -> tuple[Dan, ConstantDiscriminator]:
    method, verdict = Dan(DanConfig(), fakes()), ConstantDiscriminator()
    method.discriminator = verdict  # type: ignore[assignment]
    return method, verdict


def test_dan_by_hand() -> None:
    method, _ = by_hand()
    student, discriminator = method.objectives(black_batch(), at_step(30_000))
    assert student.terms["adversarial"].item() == pytest.approx(-math.log(0.75), abs=1e-6)
    # squared sums: the Dice of the background is (2 n/2) / (n/4 + n) = 0.8, that of the foreground 0
    supervised = (math.log(2) + 1 - 0.8 / 2) / 2
    assert student.total.item() == pytest.approx(supervised - 0.1 * math.log(0.75), abs=1e-5)
    # half of the images are labeled
    expected = -(math.log(0.75) + math.log(0.25)) / 2
    assert discriminator.total.item() == pytest.approx(expected, abs=1e-6)
    assert (student.updates, discriminator.updates) == ("student", "discriminator")


def test_discriminator_inputs_and_modes() -> None:
    method, verdict = by_hand()
    objectives = method.objectives(black_batch(), at_step(0))
    next(objectives)
    set_bias(method.student, 0.9, 0.1)
    next(objectives)
    assert [len(maps) for maps in verdict.seen] == [2, 4] and verdict.modes == [False, True]
    assert torch.allclose(verdict.seen[0], torch.full((2, 2, 16, 16), 0.5))
    assert torch.allclose(verdict.seen[1][:, 0], torch.full((4, 16, 16), 0.9))


def objectives_of(method: Dan) -> tuple[Objective, dict[str, Tensor], Objective]:
    """Return the objective and the state of the student, then the objective of the discriminator."""
    objectives = method.objectives(tiny_batch(2, side=SIDE), at_step(0))
    student = next(objectives)
    state = {key: value.clone() for key, value in method.student.state_dict().items()}
    return student, state, next(objectives)


def test_discriminator_update_leaves_student_unchanged() -> None:
    method = tiny_method("dan", 2)
    assert isinstance(method, Dan)
    _, state, objective = objectives_of(method)
    objective.total.backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(value, state[key]) for key, value in method.student.state_dict().items())
    assert all(parameter.grad is None for parameter in method.student.parameters())
    assert all(module.training for module in method.modules())


def test_student_update_leaves_no_discriminator_gradient() -> None:
    method = tiny_method("dan", 2)
    assert isinstance(method, Dan)
    student, _, _ = objectives_of(method)
    student.terms["adversarial"].backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in method.discriminator.parameters())
    gradients = [parameter.grad for parameter in method.student.parameters()]
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
