"""Losses compared with values by hand and with slow float64 loops written from the formulas."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from graftseg.ops.losses import (
    DiceName,
    dice_over_batch,
    dice_per_sample,
    masked_cross_entropy,
    mixed_loss,
    one_hot,
    segmentation_loss,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

DICES: tuple[DiceName, ...] = ("per-sample", "over-batch")


@dataclass(frozen=True)
class Example:
    """Logits ``(B, K, *space)``, two label maps ``(B, *space)`` and a mask ``(*space)`` or ``(B, *space)``."""

    logits: Floats
    labels: Integers
    other_labels: Integers
    mask: Booleans

    @property
    def probabilities(self) -> Floats:
        return softmax(self.logits)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    batch, classes, axes = draw(st.integers(1, 3)), draw(st.integers(2, 4)), draw(st.integers(2, 3))
    space = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    labels = arrays(np.int64, (batch, *space), elements=st.integers(0, classes - 1))
    logits = arrays(np.float64, (batch, classes, *space), elements=st.floats(-4, 4, width=32))
    mask = arrays(np.bool_, draw(st.sampled_from([space, (batch, *space)])))
    return Example(draw(logits), draw(labels), draw(labels), draw(mask))


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def voxels(p: Floats, labels: Integers, mask: Any, sample: int) -> Iterator[tuple[Floats, int, float]]:
    """Yield class probabilities, label and mask of each voxel; the mask may be a single value."""
    m = np.broadcast_to(np.asarray(mask, dtype=np.float64), labels.shape)
    for place in np.ndindex(labels.shape[1:]):
        yield p[(sample, slice(None), *place)], int(labels[(sample, *place)]), float(m[(sample, *place)])


def slow_dice_per_sample(p: Floats, labels: Integers, mask: Any, epsilon: float = 1e-5) -> float:
    scores = []
    for sample in range(p.shape[0]):
        for c in range(p.shape[1]):
            overlap = total = 0.0
            for q, label, m in voxels(p, labels, mask, sample):
                Y = float(label == c)
                overlap += m * q[c] * Y
                total += m * (q[c] + Y)
            scores.append((2 * overlap + epsilon) / (total + epsilon))
    return 1 - sum(scores) / len(scores)


def slow_dice_over_batch(
    p: Floats, labels: Integers, mask: Any, epsilon: float = 1e-10, first: int = 0, legacy: bool = False
) -> float:
    losses = []
    for c in range(first, p.shape[1]):
        overlap = predicted = true = 0.0
        for sample in range(p.shape[0]):
            for q, label, m in voxels(p, labels, 1.0 if legacy and c == 0 else mask, sample):
                Y = float(label == c)
                overlap += m * q[c] * Y
                predicted += m * q[c] ** 2
                true += m * Y**2
        losses.append(1 - (2 * overlap + epsilon) / (predicted + true + epsilon))
    return sum(losses) / len(losses)


def slow_cross_entropy(logits: Floats, labels: Integers, mask: Any) -> float:
    p, loss, count = softmax(logits), 0.0, 1e-16
    for sample in range(len(labels)):
        for q, label, m in voxels(p, labels, mask, sample):
            loss -= m * float(np.log(q[label]))
            count += m
    return loss / count


def slow_region(dice: DiceName, logits: Floats, labels: Integers, mask: Any, legacy: bool) -> float:
    """Return ``½ (Dice + CE)`` of one region."""
    p = softmax(logits)
    if dice == "per-sample":
        dice_loss = slow_dice_per_sample(p, labels, mask)
    else:
        dice_loss = slow_dice_over_batch(p, labels, mask, legacy=legacy)
    return (dice_loss + slow_cross_entropy(logits, labels, mask)) / 2


def float32(array: Floats) -> Tensor:
    return torch.from_numpy(array).float()


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-5, abs=2e-6)


def probabilities_of_four_pixels() -> tuple[Tensor, Tensor, Tensor]:
    """Return foreground 0.8, 0.4, 0.6, 0.1 for labels 1, 1, 0, 0, and a mask without the last pixel."""
    foreground = torch.tensor([[0.8, 0.4], [0.6, 0.1]])
    labels = torch.tensor([[[1, 1], [0, 0]]])
    mask = torch.tensor([[True, True], [True, False]])
    return torch.stack([1 - foreground, foreground])[None], labels, mask


def test_one_hot() -> None:
    assert one_hot(torch.tensor([[0, 2]]), 3).tolist() == [[[True, False], [False, False], [False, True]]]


def test_dice_per_sample_by_hand() -> None:
    p, labels, mask = probabilities_of_four_pixels()
    whole = 1 - (2 * 1.3 / (2.1 + 2) + 2 * 1.2 / (1.9 + 2)) / 2
    assert dice_per_sample(p, labels).item() == close(whole)
    masked = 1 - (2 * 0.4 / (1.2 + 1) + 2 * 1.2 / (1.8 + 2)) / 2
    assert dice_per_sample(p, labels, mask).item() == close(masked)


def test_dice_over_batch_by_hand() -> None:
    p, labels, mask = probabilities_of_four_pixels()
    background, foreground = 1 - 2 * 1.3 / (1.37 + 2), 1 - 2 * 1.2 / (1.17 + 2)
    assert dice_over_batch(p, labels).item() == close((background + foreground) / 2)
    assert dice_over_batch(p, labels, background=False).item() == close(foreground)
    masked_background, masked_foreground = 1 - 2 * 0.4 / (0.56 + 1), 1 - 2 * 1.2 / (1.16 + 2)
    assert dice_over_batch(p, labels, mask).item() == close((masked_background + masked_foreground) / 2)
    legacy = dice_over_batch(p, labels, mask, legacy_background_mask=True)
    assert legacy.item() == close((background + masked_foreground) / 2)


def test_only_dice_per_sample_separates_samples() -> None:
    p = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]])
    labels = torch.tensor([[0, 0], [1, 0]])
    by_sample = 1 - (1 + 1 + 0 + 2 * 1 / 3) / 4  # sample 1 has one background voxel, predicted as foreground
    assert dice_per_sample(p, labels).item() == close(by_sample)
    assert dice_over_batch(p, labels).item() == close(1 - (2 * 2 / 5 + 2 * 1 / 3) / 2)


def test_published_epsilons() -> None:
    p, labels = torch.tensor([[[1.0], [1e-5]]]), torch.tensor([[0]])
    assert dice_per_sample(p, labels).item() == close(1 - (1 + 1e-5 / (1e-5 + 1e-5)) / 2)
    assert dice_over_batch(p, labels, background=False).item() == close(1 - 1e-10 / (1e-10 + 1e-10))


def test_cross_entropy_by_hand() -> None:
    p, labels, mask = probabilities_of_four_pixels()
    costs = -np.log([0.8, 0.4, 0.4, 0.9])
    assert masked_cross_entropy(p.log(), labels).item() == close(costs.mean())
    assert masked_cross_entropy(p.log(), labels, mask).item() == close(costs[:3].mean())


def test_cross_entropy_averages_over_the_voxels_of_all_samples() -> None:
    p, labels, mask = probabilities_of_four_pixels()
    logits, labels = p.log().repeat(2, 1, 1, 1), torch.cat([labels, 1 - labels])
    masks = torch.stack([mask, ~mask])
    costs = -np.log([0.8, 0.4, 0.4, 0.1])
    assert masked_cross_entropy(logits, labels, masks).item() == close(costs.mean())


def test_segmentation_loss_is_the_mean_of_dice_and_cross_entropy() -> None:
    p, labels, mask = probabilities_of_four_pixels()
    cross_entropy = masked_cross_entropy(p.log(), labels, mask)
    for name, dice in zip(DICES, (dice_per_sample, dice_over_batch), strict=True):
        expected = (dice(p, labels, mask) + cross_entropy) / 2
        assert segmentation_loss(p.log(), labels, mask, dice=name).item() == close(expected.item())


@given(examples())
@settings(deadline=None, max_examples=40)
def test_dice_per_sample_equals_the_slow_loop(example: Example) -> None:
    p, labels, mask = float32(example.probabilities), torch.from_numpy(example.labels), torch.from_numpy(example.mask)
    whole, masked = (slow_dice_per_sample(example.probabilities, example.labels, m) for m in (1, example.mask))
    assert dice_per_sample(p, labels).item() == close(whole)
    assert dice_per_sample(p, labels, mask).item() == close(masked)


@given(examples(), st.booleans(), st.booleans(), st.sampled_from([1e-5, 1e-10]))
@settings(deadline=None, max_examples=40)
def test_dice_over_batch_equals_the_slow_loop(example: Example, background: bool, legacy: bool, epsilon: float) -> None:
    p, labels = float32(example.probabilities), torch.from_numpy(example.labels)
    for mask in (None, example.mask):
        loss = dice_over_batch(
            p,
            labels,
            None if mask is None else torch.from_numpy(mask),
            epsilon=epsilon,
            background=background,
            legacy_background_mask=legacy,
        )
        m = 1.0 if mask is None else mask
        first = 0 if background else 1
        expected = slow_dice_over_batch(example.probabilities, example.labels, m, epsilon, first, legacy)
        assert loss.item() == close(expected)


@given(examples())
@settings(deadline=None, max_examples=40)
def test_cross_entropy_equals_the_slow_loop(example: Example) -> None:
    logits, labels = float32(example.logits), torch.from_numpy(example.labels)
    whole, masked = (slow_cross_entropy(example.logits, example.labels, m) for m in (1, example.mask))
    assert masked_cross_entropy(logits, labels).item() == close(whole)
    assert masked_cross_entropy(logits, labels, torch.from_numpy(example.mask)).item() == close(masked)


@given(examples(), st.floats(0, 3), st.floats(0, 3), st.sampled_from(DICES), st.booleans())
@settings(deadline=None, max_examples=40)
def test_mixed_loss_equals_the_slow_loop(
    example: Example, w_b: float, w_f: float, dice: DiceName, legacy: bool
) -> None:
    z, b, f, m = example.logits, example.labels, example.other_labels, example.mask
    loss = mixed_loss(
        float32(z),
        torch.from_numpy(b),
        torch.from_numpy(f),
        torch.from_numpy(m),
        (w_b, w_f),
        dice=dice,
        legacy_background_mask=legacy,
    )
    expected = w_b * slow_region(dice, z, b, m, legacy) + w_f * slow_region(dice, z, f, ~m, legacy)
    assert loss.item() == close(expected)


def random_case(seed: int, space: tuple[int, ...] = (4, 5)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return logits, background labels, foreground labels and mask: two samples, three classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, *space, generator=generator)
    b, f = (torch.randint(0, 3, (2, *space), generator=generator) for _ in range(2))
    return logits, b, f, torch.rand(space, generator=generator) < 0.5


@pytest.mark.parametrize("dice", DICES)
@pytest.mark.parametrize("space", [(4, 5), (3, 2, 4)])
def test_perfect_prediction_has_zero_loss(dice: DiceName, space: tuple[int, ...]) -> None:
    _, b, f, M = random_case(0, space)
    mixed = torch.where(M, b, f)
    logits = 60.0 * one_hot(mixed, 4).float()  # class 3 has no voxel
    assert segmentation_loss(logits, mixed, dice=dice).item() == pytest.approx(0, abs=1e-6)
    assert mixed_loss(logits, b, f, M, (1, 0.5), dice=dice).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("dice", DICES)
def test_empty_region_has_zero_loss(dice: DiceName) -> None:
    logits, b, f, M = random_case(1)
    everywhere = torch.ones_like(M)
    assert segmentation_loss(logits, b, ~everywhere, dice=dice).item() == 0
    whole = segmentation_loss(logits, b, dice=dice)
    assert mixed_loss(logits, b, f, everywhere, (1, 1), dice=dice).item() == close(whole.item())


@pytest.mark.parametrize("dice", DICES)
@pytest.mark.parametrize("legacy", [False, True])
def test_with_equal_labels_and_weights_the_regions_add_up(dice: DiceName, legacy: bool) -> None:
    logits, b, _, M = random_case(2)
    regions = [segmentation_loss(logits, b, m, dice=dice, legacy_background_mask=legacy) for m in (M, ~M)]
    mixed = mixed_loss(logits, b, b, M, (1, 1), dice=dice, legacy_background_mask=legacy)
    assert mixed.item() == close(sum(region.item() for region in regions))


@pytest.mark.parametrize("dice", DICES)
def test_weights_act_linearly_and_on_their_own_region(dice: DiceName) -> None:
    logits, b, f, M = random_case(3)
    background, foreground = (mixed_loss(logits, b, f, M, w, dice=dice).item() for w in ((1, 0), (0, 1)))
    assert background == close(segmentation_loss(logits, b, M, dice=dice).item())
    assert foreground == close(segmentation_loss(logits, f, ~M, dice=dice).item())
    inward, outward = (mixed_loss(logits, b, f, M, w, dice=dice).item() for w in ((1, 0.5), (0.5, 1)))
    assert inward == close(background + 0.5 * foreground)
    assert outward == close(0.5 * background + foreground)
    assert mixed_loss(logits, f, b, ~M, (1, 0.5), dice=dice).item() == close(outward)


@pytest.mark.parametrize("dice", DICES)
def test_labels_of_hidden_voxels_have_no_effect(dice: DiceName) -> None:
    logits, b, f, M = random_case(4)
    expected = mixed_loss(logits, b, f, M, (1, 0.5), dice=dice)
    hidden = torch.where(M, b, (b + 1) % 3), torch.where(M, (f + 1) % 3, f)
    assert torch.equal(mixed_loss(logits, *hidden, M, (1, 0.5), dice=dice), expected)


def test_labels_of_hidden_voxels_count_in_the_legacy_background() -> None:
    logits, b, f, M = random_case(4)
    losses = [
        mixed_loss(logits, labels, f, M, (1, 0.5), dice="over-batch", legacy_background_mask=True).item()
        for labels in (b, torch.where(M, b, (b + 1) % 3))
    ]
    assert abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.parametrize(("dice", "legacy"), [("per-sample", False), ("over-batch", False), ("over-batch", True)])
def test_gradients_outside_the_mask(dice: DiceName, legacy: bool) -> None:
    logits, b, _, M = random_case(5)
    logits.requires_grad_()
    loss = segmentation_loss(logits, b, M, dice=dice, legacy_background_mask=legacy)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[..., M].abs().min() > 0
    assert bool(gradient[..., ~M].any()) is legacy


@pytest.mark.parametrize(("dice", "legacy"), [("per-sample", False), ("over-batch", False), ("over-batch", True)])
def test_gradients_are_the_finite_differences_of_the_slow_loop(dice: DiceName, legacy: bool) -> None:
    logits, b, f, M = random_case(6, (2, 3))
    logits.requires_grad_()
    loss = mixed_loss(logits, b, f, M, (1, 0.5), dice=dice, legacy_background_mask=legacy)
    (gradient,) = torch.autograd.grad(loss, logits)

    def slow(z: Floats) -> float:
        regions = (slow_region(dice, z, y.numpy(), m.numpy(), legacy) for y, m in ((b, M), (f, ~M)))
        return next(regions) + 0.5 * next(regions)

    z, h = logits.detach().double().numpy(), 1e-5
    for place in np.ndindex(z.shape):
        step = np.zeros_like(z)
        step[place] = h
        assert gradient[place].item() == close((slow(z + step) - slow(z - step)) / (2 * h))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("dice", DICES)
def test_losses_are_computed_in_float32(dtype: torch.dtype, dice: DiceName) -> None:
    logits, b, f, M = random_case(7)
    rounded = logits.to(dtype)
    loss = mixed_loss(rounded, b, f, M, (1, 0.5), dice=dice)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, mixed_loss(rounded.float(), b, f, M, (1, 0.5), dice=dice))
    probabilities = logits.softmax(1).to(dtype)
    single = dice_per_sample if dice == "per-sample" else dice_over_batch
    assert torch.equal(single(probabilities, b, M), single(probabilities.float(), b, M))
