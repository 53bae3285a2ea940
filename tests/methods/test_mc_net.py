"""Values of MC-Net by hand, and properties of sharpening."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny import tiny_batch, tiny_method, tiny_networks
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods.mc_net import McNet, McNetConfig, mutual_consistency
from graftseg.ops.losses import sharpen

PROBABILITIES = ((0.5, 0.5), (0.25, 0.75))
# ¼ sharpened with T = 1/10 is 1 / (1 + 3^10); ½ does not change
L_C = 0.25**2 + (0.5 - 1 / 59050) ** 2


class TwoDecoders(nn.Module):
    """A network with constant logits of two decoders."""

    def __init__(self) -> None:
        super().__init__()
        self.biases = nn.ParameterList(torch.tensor(p).log() for p in PROBABILITIES)

    def forward(self, images: Tensor, all_outputs: bool = False) -> Tensor | list[Tensor]:
        maps = [bias.view(1, 2, 1, 1).expand(len(images), 2, *images.shape[2:]) for bias in self.biases]
        return maps if all_outputs else maps[0]


@pytest.mark.parametrize(
    ("options", "dice"),
    [
        # all labels are foreground: 2 (½ n) / (½ n + n) = 2/3 and 2 (¾ n) / (¾ n + n) = 6/7
        ({}, (1 - 2 / 3) + (1 - 6 / 7)),
        # squared sums: (2 n/2) / (n/4 + n) = 0.8 and 1.5 / (9/16 + 1) = 0.96; 0 for the background
        ({"dice": "over-batch"}, (1 - 0.8 / 2) + (1 - 0.96 / 2)),
        ({"dice": "over-batch", "half_dice": True}, (1 - 0.4 / 2) + (1 - 0.48 / 2)),
    ],
)
def test_mc_net_by_hand(options: dict[str, Any], dice: float) -> None:
    method = McNet(McNetConfig(**options), tiny_networks(2, 2))
    method.student = TwoDecoders()
    images = torch.zeros(2, 1, 4, 4)
    batch = Batch(Labeled(images, torch.ones(2, 4, 4, dtype=torch.long)), images)
    (objective,) = method.objectives(batch, Progress(torch.tensor(6000), 15000))
    assert objective.terms["dice"].item() == pytest.approx(dice, abs=1e-5)
    assert objective.terms["consistency"].item() == pytest.approx(L_C, abs=1e-6)
    assert objective.total.item() == pytest.approx(0.5 * dice + L_C, abs=1e-5)


@given(st.floats(0.01, 1))
def test_sharpening_keeps_0_half_and_1(temperature: float) -> None:
    p = torch.tensor([0, 0.5, 1])
    assert sharpen(p, temperature).tolist() == [0, 0.5, 1]


@given(st.floats(0, 1, width=32), st.floats(0.01, 1))
def test_sharpening_moves_away_from_half_symmetrically(p: float, temperature: float) -> None:
    s = sharpen(torch.tensor(p), temperature).item()
    assert s <= p + 1e-6 if p <= 0.5 else s >= p - 1e-6
    assert sharpen(torch.tensor(1 - p), temperature).item() == pytest.approx(1 - s, abs=1e-4)


def test_sharpening_accepts_probabilities_rounded_above_1() -> None:
    p = torch.tensor([1.0000001, -1e-8]).requires_grad_()
    s = sharpen(p, 0.3)
    (gradient,) = torch.autograd.grad(s.sum(), p)
    assert s.tolist() == [1, 0] and gradient.isfinite().all()


def test_consistency_is_zero_only_for_certain_equal_decoders() -> None:
    z = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert mutual_consistency([z, z], 0.1) > 0.01
    assert mutual_consistency([1000 * z, 1000 * z], 0.1) < 1e-6


def test_three_decoders_have_six_pairs() -> None:
    a, b, c = torch.randn(3, 2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    of_two = [mutual_consistency([one, other], 0.1) for one, other in ((a, b), (a, c), (b, c))]
    torch.testing.assert_close(mutual_consistency([a, b, c], 0.1), torch.stack(of_two).sum())


def test_gradients_pass_through_the_targets() -> None:
    """Both decoders return the same logits; without target gradients, one of the two terms would have none."""
    z = torch.tensor([0.2, -0.2]).view(1, 2, 1, 1)
    z_1, z_2 = z.clone().requires_grad_(), z.clone()
    (gradient,) = torch.autograd.grad(mutual_consistency([z_1, z_2], 0.1), z_1)
    h = torch.zeros_like(z)
    h[0, 0] = 0.01
    slope = (mutual_consistency([z_1 + h, z_2], 0.1) - mutual_consistency([z_1 - h, z_2], 0.1)) / 0.02
    assert gradient[0, 0].item() == pytest.approx(slope.item(), rel=0.02)
    p, s = z.softmax(1), sharpen(z.softmax(1), 0.1)
    through_predictions = (p[0, 0] - s[0, 0]) * 2 * p[0, 0] * p[0, 1]
    assert abs(gradient[0, 0].item() - through_predictions.item()) > 0.01


@pytest.mark.parametrize("dimensions", [2, 3])
def test_prediction_uses_the_first_decoder(dimensions: int) -> None:
    method, images = tiny_method("mc-net", dimensions, decoders=3).eval(), tiny_batch(dimensions).unlabeled
    before = method.segment(images)
    with torch.no_grad():
        for name, parameter in method.student.named_parameters():
            if name.startswith(("decoders.", "heads.")):
                parameter.zero_()
    assert torch.equal(method.segment(images), before)


def test_half_dice_needs_over_batch() -> None:
    with pytest.raises(ValidationError, match="half_dice needs dice: over-batch"):
        McNetConfig(half_dice=True)
