"""SS-Net: distances by hand, weights of its terms, and adversarial noise."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from tiny import tiny_batch, tiny_method
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg.core.types import Objective, Progress
from graftseg.methods.ss_net import SsNet, class_dice, pooled_dice
from graftseg.networks.prototypes import PrototypeNetwork
from graftseg.ops.losses import dice_over_batch, foreground_dice_of_sums


def now(step: int) -> Progress:
    return Progress(torch.tensor(step), 10)


def objective_of(method: Any, step: int = 0, dimensions: int = 2) -> Objective:
    (objective,) = method.objectives(tiny_batch(dimensions), now(step))
    assert isinstance(objective, Objective)
    return objective


def test_distances_by_hand() -> None:
    """Probabilities of ½ compared with certain background in n voxels."""
    p, q = torch.full((1, 2, 3, 3), 0.5), torch.zeros(1, 2, 3, 3)
    q[:, 0] = 1
    # pooled: 2 · n/2 / (n + n); background: 2 · n/2 / (n/4 + n) = 0.8, foreground 0
    assert pooled_dice(p, q).item() == pytest.approx(0.5, abs=1e-6)
    assert class_dice(p, q).item() == pytest.approx((0.2 + 1) / 2, abs=1e-6)
    assert class_dice(q, q).item() == pytest.approx(0, abs=1e-6)
    # as published for LA: equal predictions have distance 0 only if they are certain
    assert pooled_dice(q, q).item() == pytest.approx(0, abs=1e-6)
    assert pooled_dice(p, p).item() == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("dice", "loss"), [("foreground", foreground_dice_of_sums), ("classes", dice_over_batch)])
def test_total_is_the_weighted_sum_of_terms(dice: str, loss: Any) -> None:
    method, batch = tiny_method("ss-net", 2, dice=dice, weight=0.5, ramp=2, separation=0.25).eval(), tiny_batch(2)
    (objective,) = method.objectives(batch, now(150))
    terms = {name: term.item() for name, term in objective.terms.items()}
    expected = loss(method.segment(batch.labeled.images), batch.labeled.labels)
    assert terms["dice"] == pytest.approx(expected.item(), abs=1e-5)
    # in the middle of the ramp: exp(-5 · 0.5²)
    w = 0.5 * math.exp(-1.25)
    total = terms["dice"] + w * (terms["L_v"] + 0.25 * (terms["L_l"] + terms["L_u"]))
    assert objective.total.item() == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_noise_has_the_configured_length_per_sample(dimensions: int) -> None:
    method, batch = tiny_method("ss-net", dimensions, noise=3.0), tiny_batch(dimensions)
    (objective,) = method.objectives(batch, now(0))
    noise = objective.shows["X_noisy"] - torch.cat([batch.labeled.images, batch.unlabeled])
    assert torch.allclose(noise.flatten(1).norm(dim=1), torch.full((8,), 3.0), atol=1e-4)


def test_adversarial_noise_changes_more_than_random_noise() -> None:
    method = tiny_method("ss-net", 2, seed=3, dice="classes", noise=2.0, probe=0.1).eval()
    assert isinstance(method, SsNet)
    images = tiny_batch(2).unlabeled
    target = method.segment(images).detach()
    random = torch.randn(images.shape, generator=torch.Generator().manual_seed(0)).flatten(1)
    other = images + 2 * (random / random.norm(dim=1, keepdim=True)).view_as(images)
    (objective,) = method.objectives(tiny_batch(2), now(0))
    noisy = objective.shows["X_noisy"][4:]
    assert class_dice(method.segment(noisy), target) > 2 * class_dice(method.segment(other), target)


def test_batch_norms_count_two_passes_per_step() -> None:
    method, passes = tiny_method("ss-net", 2), Counter[nn.Module]()
    norms = [part for part in method.student.modules() if isinstance(part, _BatchNorm)]
    for norm in norms:
        norm.register_forward_hook(lambda part, *_: passes.update([part] if part.track_running_stats else []))
    objective_of(method)
    # network: student and target; heads: labeled and unlabeled voxels
    assert len(norms) == 8 and [passes[norm] for norm in norms] == 8 * [2]


def test_prototypes_are_correct_labeled_foreground_voxels() -> None:
    method, batch = tiny_method("ss-net", 2), tiny_batch(2)
    student = method.student
    assert isinstance(student, PrototypeNetwork)
    (objective,) = method.objectives(batch, now(0))
    y, decided = batch.labeled.labels, objective.shows["Y_decided"][:4]
    for c in range(3):
        correct = int(((decided == c) & (y == c)).sum()) if c else 0
        assert student.separation.filled[c].sum() == min(32, correct)
    assert student.separation.filled.any()


def test_separation_trains_heads_and_network() -> None:
    method = tiny_method("ss-net", 2)
    objective = objective_of(method)
    (objective.terms["L_l"] + objective.terms["L_u"]).backward()  # type: ignore[no-untyped-call]
    moved = {name for name, parameter in method.student.named_parameters() if parameter.grad is not None}
    assert any(name.startswith("encoder.") for name in moved) and "separation.project.0.weight" in moved
    assert not any(name.startswith(("head.", "separation.memory_selectors.")) for name in moved)
