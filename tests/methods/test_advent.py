"""Values of both variants by hand, and properties of the entropy."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.methods.advent import (
    Advent,
    AdventAdversarial,
    AdventAdversarialConfig,
    AdventConfig,
    discriminator_loss,
    mean_entropy,
    self_information,
)
from graftseg.ops.losses import entropy
from method_fakes import at_step, black_batch, fakes, set_bias

# squared sums: the Dice of the background is (2 n/2) / (n/4 + n) = 0.8, that of the foreground 0
SUPERVISED = (math.log(2) + 1 - 0.8 / 2) / 2


def test_minent_by_hand() -> None:
    method = Advent(AdventConfig(), fakes())
    (objective,) = method.objectives(black_batch(), at_step(30_000))
    assert objective.terms["entropy"].item() == pytest.approx(1, abs=1e-5)
    assert objective.total.item() == pytest.approx(SUPERVISED + 0.1, abs=1e-5)
    set_bias(method.student, 0.75, 0.25)
    (objective,) = method.objectives(black_batch(), at_step(0))
    # 2 - 3/4 log2 3 bits
    assert objective.terms["entropy"].item() == pytest.approx(0.811278, abs=1e-5)
    assert float(objective.weights["entropy"]) == pytest.approx(0.1 * math.exp(-5))


class ConstantDiscriminator(nn.Module):
    """A discriminator that returns the logit ln 3 for every map (unlabeled with probability ¾) and stores the maps."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.full((1,), math.log(3)))
        self.seen: list[Tensor] = []

    def forward(self, maps: Tensor) -> Tensor:
        self.seen.append(maps)
        return self.bias.view(1, 1, 1, 1).expand(len(maps), 1, 2, 2)


def test_advent_by_hand() -> None:
    method, verdict = AdventAdversarial(AdventAdversarialConfig(), fakes()), ConstantDiscriminator()
    method.discriminator = verdict  # type: ignore[assignment]
    student, discriminator = method.objectives(black_batch(), at_step(0))
    assert student.terms["adversarial"].item() == pytest.approx(-math.log(0.25), abs=1e-5)
    assert student.total.item() == pytest.approx(SUPERVISED - 0.001 * math.log(0.25), abs=1e-5)
    expected = -(math.log(0.25) + math.log(0.75)) / 2
    assert discriminator.total.item() == pytest.approx(expected, abs=1e-5)
    # with probabilities of ½, each of two classes contributes half of the maximum entropy
    assert [len(maps) for maps in verdict.seen] == [2, 4]
    assert torch.allclose(verdict.seen[1], torch.full((4, 2, 16, 16), 0.5)) and not verdict.seen[1].requires_grad


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 6), st.integers(0, 99))
def test_entropy_is_relative_to_its_maximum(classes: int, seed: int) -> None:
    logits = 3 * torch.randn(2, classes, 4, 4, generator=torch.Generator().manual_seed(seed))
    share = float(mean_entropy(logits))
    assert 0 <= share <= 1 and float(mean_entropy(torch.zeros_like(logits))) == pytest.approx(1, abs=1e-5)
    oracle = torch.distributions.Categorical(logits=logits.movedim(1, -1)).entropy()  # type: ignore[no-untyped-call]
    assert share == pytest.approx(float(oracle.mean()) / math.log(classes), abs=1e-5)
    torch.testing.assert_close(entropy(logits.softmax(1)), oracle, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(self_information(logits).sum(1) * math.log(classes), oracle, atol=1e-5, rtol=1e-5)


def test_certain_voxel_has_zero_entropy_and_finite_gradient() -> None:
    logits = torch.tensor([[200.0], [0.0]]).view(1, 2, 1, 1).requires_grad_()
    (mean_entropy(logits) + self_information(logits).sum()).backward()  # type: ignore[no-untyped-call]
    assert mean_entropy(logits).item() == pytest.approx(0, abs=1e-5)
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("unlabeled", [False, True])
def test_discriminator_loss_is_binary_cross_entropy(unlabeled: bool) -> None:
    verdict = torch.linspace(-4, 4, 9).view(1, 1, 3, 3)
    expected = F.binary_cross_entropy_with_logits(verdict, torch.full_like(verdict, float(unlabeled)))
    torch.testing.assert_close(discriminator_loss(verdict, unlabeled=unlabeled), expected)


def test_minent_reduces_entropy() -> None:
    method = Advent(AdventConfig(), fakes())
    set_bias(method.student, 0.6, 0.4)
    (objective,) = method.objectives(black_batch(), at_step(0))
    (gradient,) = torch.autograd.grad(objective.terms["entropy"], [method.student.get_parameter("bias")])
    assert gradient[0] < 0 < gradient[1]
