"""Mixup: values and gradients by hand, and decoupled predictions."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_batch, tiny_method
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods.mixup import Mixup, MixupConfig, decouple, superimpose
from graftseg.networks import Networks, NetworkSettings

NOW = Progress(torch.tensor(0), 10)
Array = npt.NDArray[np.float64]


class Constant(nn.Module):
    """A network with logits (0, ln 27) for every image."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.0, math.log(27)]))

    def forward(self, images: Tensor) -> Tensor:
        return self.bias.view(1, 2, 1, 1).expand(len(images), 2, *images.shape[2:])


class ConstantNetworks(Networks):
    """Builds ``Constant``."""

    def build(self) -> Any:
        return Constant()


NETWORKS = ConstantNetworks(NetworkSettings(name="unet-2d"), 1, 2)

# λ = 1/3. The decoupled labeled logit is ln 27 - 2/3 ln 27 = ln 3, the unlabeled one ln 27 - 1/3 ln 27 = ln 9:
# foreground probabilities are 3/4 and 9/10. All labels and pseudo-labels are foreground. The Dice of the foreground is
# 2 p / (p + 1), 6/7 and 18/19; that of the background is 0.
L_LABELED = (1 - 3 / 7 + math.log(4 / 3)) / 2
L_UNLABELED = (1 - 9 / 19 + math.log(10 / 9)) / 2


def test_mixup_by_hand() -> None:
    """The foreground probability of unmixed images is 27/28, and their Dice is 54/55."""
    images = torch.zeros(2, 1, 6, 6)
    batch = Batch(Labeled(images, torch.ones(2, 6, 6, dtype=torch.long)), images)
    direct = (1 - 27 / 55 + math.log(28 / 27)) / 2
    for config, weight in ((MixupConfig(), 1.0), (MixupConfig(direct=2.0), 2.0)):
        (objective,) = Mixup(config, NETWORKS).objectives(batch, NOW)
        assert objective.terms["L_labeled"].item() == pytest.approx(L_LABELED, abs=1e-5)
        assert objective.terms["L_unlabeled"].item() == pytest.approx(L_UNLABELED, abs=1e-5)
        assert objective.terms["L_direct"].item() == pytest.approx(direct, abs=1e-5)
        assert objective.total.item() == pytest.approx(L_LABELED + 0.5 * L_UNLABELED + weight * direct, abs=1e-5)
    (objective,) = Mixup(MixupConfig(direct=0.0), NETWORKS).objectives(batch, NOW)
    assert objective.total.item() == pytest.approx(L_LABELED + 0.5 * L_UNLABELED, abs=1e-5)


class Scaled(nn.Module):
    """A linear network: the logits of class c are w_c times the image."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([-0.7, 0.4, 0.9]))

    def forward(self, images: Tensor) -> Tensor:
        return images * self.w.view(1, -1, 1, 1)


class ScaledNetworks(Networks):
    """Builds ``Scaled``."""

    def build(self) -> Any:
        return Scaled()


def loss_gradient(factor: float, x: Array, y: Array, w: Array) -> Array:
    """Return the derivative of ``½ (CE + Dice)`` by w for logits ``factor * w_c * x``, from formulas.

    CE has the derivative (p - Y) / N by the logits, where N is the number of voxels. The Dice loss of a sample and
    class is 1 - A / S with A = 2 Σ p Y + ε and S = Σ (p + Y) + ε. Its derivative by p is A / S² - 2 Y / S.
    """
    classes, epsilon = len(w), 1e-5
    z = factor * w[None, :, None, None] * x
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    Y = np.moveaxis(np.eye(classes)[y], -1, 1)
    A, S = (epsilon + part.sum((2, 3), keepdims=True) for part in (2 * p * Y, p + Y))
    by_p = (A / S**2 - 2 * Y / S) / (len(x) * classes)
    by_z = (p - Y) / y.size + p * (by_p - (p * by_p).sum(1, keepdims=True))
    gradient: Array = (by_z / 2 * factor * x).sum((0, 2, 3))
    return gradient


@pytest.mark.parametrize(("ratio", "direct"), [(2.0, 1.0), (0.5, 0.0), (3.0, 0.25)])
def test_gradient_of_a_linear_network_equals_the_formula(ratio: float, direct: float) -> None:
    """For a linear network, the decoupled logits are λ z_l and (1 - λ) z_u, and so are their derivatives.

    Without a gradient through the subtracted logits, the derivatives would belong to the mixed image.
    """
    batch = tiny_batch(2)
    config = MixupConfig(unlabeled_ratio=ratio, direct=direct, largest_component=False)
    method = Mixup(config, ScaledNetworks(NetworkSettings(name="unet-2d"), 1, 3))
    (objective,) = method.objectives(batch, NOW)
    objective.total.backward()  # type: ignore[no-untyped-call]
    w = next(method.student.parameters())
    x_l, x_u, values = (tensor.detach().double().numpy() for tensor in (batch.labeled.images, batch.unlabeled, w))
    y_l, y_u = batch.labeled.labels.numpy(), (values[None, :, None, None] * x_u).argmax(1)
    share = 1 / (1 + ratio)
    expected = loss_gradient(share, x_l, y_l, values) + 0.5 * loss_gradient(1 - share, x_u, y_u, values)
    expected += direct * loss_gradient(1.0, x_l, y_l, values)
    assert w.grad is not None
    assert w.grad.double().numpy() == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert all(parameter.grad is None for parameter in method.teacher.parameters())


def test_gradients_pass_through_all_three_predictions() -> None:
    mixed, labeled, unlabeled = (torch.ones(1, requires_grad=True) for _ in range(3))
    sum(decouple(mixed, labeled, unlabeled, 0.25)).backward()  # type: ignore[union-attr]
    assert [part.grad.item() for part in (mixed, labeled, unlabeled) if part.grad is not None] == [2.0, -0.25, -0.75]


@given(st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_decoupling_is_exact_for_a_linear_network(share: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_l, x_u = (torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    weights = torch.randn(5, 3, generator=generator, dtype=torch.float64)

    def network(images: Tensor) -> Tensor:
        return torch.einsum("kc,bcxy->bkxy", weights, images)

    z_l, z_u = decouple(network(superimpose(x_l, x_u, share)), network(x_l), network(x_u), share)
    assert torch.allclose(z_l, share * network(x_l))
    assert torch.allclose(z_u, (1 - share) * network(x_u))


def test_images_are_superimposed_by_the_ratio() -> None:
    batch = tiny_batch(2)
    (objective,) = tiny_method("mixup", 2, unlabeled_ratio=3.0).objectives(batch, NOW)
    expected = 0.25 * batch.labeled.images + 0.75 * batch.unlabeled
    assert torch.equal(objective.shows["X_mixed"], expected)


@given(st.floats(-30, -0.1), st.floats(0.01, 0.99))
def test_decoupling_can_succeed_while_all_images_are_background(background: float, place: float) -> None:
    """With ``direct: 0``, foreground logits in [b / 2, 0), which predict background, are possible.

    For every pair of true classes, some mixed logits lie on the correct side of both subtracted parts.
    """
    foreground = background / 2 * place
    z = {0: background, 1: foreground}
    share = 1 / 3
    for y_l, y_u in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        limits = [((1 - share) * z[y_u], y_l), (share * z[y_l], y_u)]
        above = max((limit for limit, truth in limits if truth), default=-math.inf)
        below = min((limit for limit, truth in limits if not truth), default=math.inf)
        assert above < below
    assert foreground < 0


def test_drawn_share_is_below_half() -> None:
    method = tiny_method("mixup", 2, unlabeled_ratio=None)
    assert isinstance(method, Mixup)
    shares = torch.tensor([float(method._labeled_weight(torch.device("cpu"))) for _ in range(400)])
    assert shares.min() >= 0 and shares.max() < 0.5
    assert shares.mean().item() == pytest.approx(0.25, abs=5 * 0.5 / (12 * 400) ** 0.5)


def test_unequal_numbers_of_images_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"batches\.unlabeled is 4"):
        Mixup.check(MixupConfig(), labeled=2, unlabeled=4, patch=(32, 32))
    with pytest.raises(ValueError, match=r"batches\.unlabeled is 0"):
        Mixup.check(MixupConfig(), labeled=0, unlabeled=0, patch=(32, 32))
