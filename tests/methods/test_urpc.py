"""URPC: losses computed by hand, and properties of the consistency."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_batch, tiny_networks
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods.urpc import Urpc, UrpcConfig, rectified_consistency

FIRST, SECOND = (0.5, 0.5), (0.25, 0.75)
# their mean is (3/8, 5/8)
D_1 = 3 / 8 * math.log(3 / 4) + 5 / 8 * math.log(5 / 4)
D_2 = 3 / 8 * math.log(3 / 2) + 5 / 8 * math.log(5 / 6)


class TwoHeads(nn.Module):
    """A network with constant logits of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.biases = nn.ParameterList(torch.tensor(p).log() for p in (FIRST, SECOND))

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | list[Tensor]:
        maps = [bias.view(1, 2, 1, 1).expand(len(images), 2, *images.shape[2:]) for bias in self.biases]
        return maps if all_outputs else maps[0]


def logits_of(*pixels: tuple[float, float]) -> Tensor:
    """Return logits ``(1, 2, 1, N)`` of pixels with these probabilities."""
    return torch.tensor(pixels).log().T.reshape(1, 2, 1, -1)


def test_urpc_by_hand() -> None:
    method = Urpc(UrpcConfig(ramp=10), tiny_networks(2, 2))
    method.student = TwoHeads()
    images = torch.zeros(2, 1, 4, 4)
    batch = Batch(Labeled(images, torch.zeros(2, 4, 4, dtype=torch.long)), images)
    (objective,) = method.objectives(batch, Progress(torch.tensor(1500), 3000))
    # background labels: CE -ln ½ and -ln ¼; Dice (2 n/2) / (n/4 + n) = 4/5 and (2 n/4) / (n/16 + n) = 8/17, then 0
    cross_entropy, dice = (math.log(2) + math.log(4)) / 2, ((1 - 4 / 5) + 1 + (1 - 8 / 17) + 1) / 4
    # each head differs from the mean by 1/8 in both classes, with equal uncertainty at all pixels
    consistency = 1 / 64 + (D_1 + D_2) / 2
    assert objective.terms["cross_entropy"].item() == pytest.approx(cross_entropy, abs=1e-6)
    assert objective.terms["dice"].item() == pytest.approx(dice, abs=1e-5)
    assert objective.terms["consistency"].item() == pytest.approx(consistency, abs=1e-6)
    assert objective.total.item() == pytest.approx((cross_entropy + dice) / 2 + 0.1 * consistency, abs=1e-5)


def test_uncertain_pixels_have_less_weight() -> None:
    """The heads agree at one of two pixels: the weight of the other pixel is ``E / (1 + E)``, less than ½."""
    consistency = rectified_consistency([logits_of(FIRST, FIRST), logits_of(SECOND, FIRST)])
    expected = 0.0
    for D in (D_1, D_2):
        E = math.exp(-D)
        expected += (E / 64 / (1 + E) + D / 2) / 2
    assert consistency.item() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.integers(1, 4), st.integers(2, 4), st.integers(2, 3))
def test_consistency_of_equal_heads_is_zero(seed: int, heads: int, classes: int, dimensions: int) -> None:
    """Adding a constant to the logits of all classes does not change the probabilities."""
    generator = torch.Generator().manual_seed(seed)
    space = (3,) * dimensions
    z = 3 * torch.randn(2, classes, *space, generator=generator)
    shifted = [z + torch.randn(2, 1, *space, generator=generator) for _ in range(heads)]
    assert rectified_consistency(shifted).item() == pytest.approx(0, abs=1e-6)
    other = torch.randn(2, classes, *space, generator=generator)
    assert rectified_consistency([*shifted, other]).item() > 1e-4


def test_gradients_pass_through_the_mean() -> None:
    z_1, z_2 = logits_of(FIRST).requires_grad_(), logits_of(SECOND)
    (gradient,) = torch.autograd.grad(rectified_consistency([z_1, z_2]), z_1)
    h = torch.zeros_like(z_1)
    h[0, 0] = 0.05
    slope = (rectified_consistency([z_1 + h, z_2]) - rectified_consistency([z_1 - h, z_2])) / 0.1
    assert gradient[0, 0].item() == pytest.approx(slope.item(), rel=0.02)
    assert abs(slope.item()) > 0.02


def test_contradicting_certain_heads_give_finite_loss() -> None:
    sure, contrary = (torch.tensor([a, -a]).view(1, 2, 1, 1).requires_grad_() for a in (400.0, -400.0))
    loss = rectified_consistency([sure, contrary, sure])
    assert loss.isfinite() and loss > 1
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (sure, contrary)))


def test_labels_supervise_all_heads() -> None:
    """Without consistency and batch statistics, unlabeled images do not affect the gradient."""
    torch.manual_seed(0)
    method, batch = Urpc(UrpcConfig(weight=0), tiny_networks(2)).eval(), tiny_batch(2)
    gradients = []
    for images in (batch, Batch(batch.labeled, tiny_batch(2, seed=4).unlabeled)):
        (objective,) = method.objectives(images, Progress(torch.tensor(9), 10))
        parameters = list(method.student.parameters())
        gradients.append(torch.autograd.grad(objective.total, parameters))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))
    assert all(gradient.abs().sum() > 0 for gradient in gradients[0][-4:])  # weights and biases of both heads
