"""Class separation compared with its definition on selected rows."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks import Networks, NetworkSettings, parameter_count
from graftseg.networks.prototypes import ClassSeparation, KeptScores, PrototypeNetwork, VoxelSelector, voxel_rows

CLASSES = 3


def class_separation(seed: int = 0, **settings: Any) -> ClassSeparation:
    torch.manual_seed(seed)
    separation = ClassSeparation(4, CLASSES, **settings).train()
    with torch.no_grad():
        for parameter in separation.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return separation


def voxels(seed: int, count: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, their labels, and whether they were predicted correctly."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 4, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return rows, labels, torch.rand(count, generator=generator) < 0.5


def score(selector: nn.Module, rows: Tensor) -> Tensor:
    """Return the selector's scores of these rows, by PyTorch's batch norm."""
    assert isinstance(selector, VoxelSelector)
    x = F.batch_norm(selector.first(rows), None, None, selector.gain, selector.offset, training=True)
    scores: Tensor = selector.last(F.leaky_relu(x, 0.2))
    return scores[:, 0]


def test_published_sizes() -> None:
    from graftseg.methods.ss_net import SsNet, SsNetConfig

    with torch.device("meta"):
        left_atrium = SsNet(SsNetConfig(), Networks(NetworkSettings(name="vnet-bn"), 1, 2)).student
        heart = SsNet(SsNetConfig(), Networks(NetworkSettings(name="unet-2d"), 1, 4)).student
    assert parameter_count(left_atrium) == 9_457_318
    assert parameter_count(heart) == 1_826_828
    separation = left_atrium.get_submodule("separation")
    sizes = {name: parameter_count(part) for name, part in separation.named_children()}
    assert sizes == {"project": 1664, "predict": 2176, "selectors": 2 * 1153, "memory_selectors": 2 * 1153}


def test_selector_uses_only_masked_rows() -> None:
    selector, (rows, _, mask) = class_separation().selectors[1], voxels(1)
    projected = torch.randn(len(rows), 32, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(selector(projected, mask)[mask], score(selector, projected[mask]), atol=1e-5)


def test_empty_mask_gives_finite_gradients() -> None:
    separation = class_separation()
    rows = voxels(0)[0].requires_grad_()
    loss = separation.prototype_distance(rows, torch.zeros(len(rows), dtype=torch.long))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in [rows, *separation.parameters()])


def test_projection_in_evaluation_mode() -> None:
    separation, (rows, _, _) = class_separation(), voxels(2)
    separation.project(rows)
    evaluated = separation.project.forward_eval(rows)
    assert torch.allclose(evaluated, separation.project.eval()(rows), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 200), keep=st.sampled_from(["lowest", "highest"]))
def test_prototypes_are_correct_foreground_voxels(seed: int, count: int, keep: KeptScores) -> None:
    separation, (rows, labels, correct) = class_separation(slots=8, keep=keep), voxels(seed, count)
    v = separation.project.forward_eval(rows)
    separation.update_prototypes(rows, labels, correct)
    assert not separation.filled[0].any()
    for c in range(1, CLASSES):
        candidates = v[correct & (labels == c)]
        prototypes = separation.memory[c][separation.filled[c]]
        assert len(prototypes) == min(8, len(candidates))
        assert all((candidates - prototype).abs().sum(1).min() < 1e-4 for prototype in prototypes)


@pytest.mark.parametrize("keep", ["lowest", "highest"])
def test_lowest_or_highest_scores_are_kept(keep: KeptScores) -> None:
    separation, (rows, labels, correct) = class_separation(slots=8, keep=keep), voxels(4)
    separation.update_prototypes(rows, labels, correct)
    v = separation.project.forward_eval(rows)[correct & (labels == 2)]
    order = score(separation.selectors[2], v).argsort(descending=keep == "highest")
    expected = v[order[:8]]
    assert torch.allclose(separation.memory[2].sort(0).values, expected.sort(0).values, atol=1e-5)


def test_missing_class_keeps_its_prototypes() -> None:
    separation, (rows, labels, correct) = class_separation(slots=8), voxels(5)
    separation.update_prototypes(rows, labels, correct)
    before = separation.memory.clone()
    separation.update_prototypes(rows, labels, correct & (labels != 2))
    assert torch.equal(separation.memory[2], before[2]) and separation.filled[2].all()
    fewer = torch.zeros_like(correct)
    fewer[(correct & (labels == 1)).nonzero()[:3, 0]] = True
    separation.update_prototypes(rows, labels, fewer)
    assert separation.filled[1].sum() == 3


def by_pairs(separation: ClassSeparation, rows: Tensor, labels: Tensor) -> Tensor:
    """Return the published definition, with every pair of voxel and prototype."""
    v, loss = separation.predict(separation.project(rows)), torch.zeros(())
    for c in range(CLASSES):
        own, prototypes = v[labels == c], separation.memory[c][separation.filled[c]]
        if len(own) < 2 or len(prototypes) < 2:
            continue
        distances = 1 - F.normalize(own, dim=1) @ F.normalize(prototypes, dim=1).T
        a = score(separation.selectors[c], own.detach()).sigmoid()
        distances = distances * (len(a) * a / a.sum())[:, None]
        if separation.weigh_memory:
            b = score(separation.memory_selectors[c], F.normalize(prototypes, dim=1)).sigmoid()
            distances = distances * (len(b) * b / b.sum())
        loss = loss + distances.mean()
    return loss / CLASSES


@pytest.mark.parametrize("weigh_memory", [False, True])
@pytest.mark.parametrize("slots", [8, 64])
def test_prototype_distance_equals_the_mean_over_all_pairs(weigh_memory: bool, slots: int) -> None:
    separation, (rows, labels, correct) = class_separation(slots=slots, weigh_memory=weigh_memory), voxels(6)
    separation.update_prototypes(rows, labels, correct)
    gradients = []
    for function in (separation.prototype_distance, lambda *voxels: by_pairs(separation, *voxels)):
        separation.zero_grad()
        x = rows.clone().requires_grad_()
        loss = function(x, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        selector = separation.selectors[1].get_parameter("first.weight").grad
        assert selector is not None and x.grad is not None
        gradients.append((loss.detach(), x.grad, selector.clone()))
    for result, expected in zip(*gradients, strict=True):
        assert torch.allclose(result, expected, atol=1e-5)
    memory = separation.memory_selectors[1].get_parameter("first.weight").grad
    assert (memory is not None) == weigh_memory


def test_single_voxel_or_prototype_contributes_nothing() -> None:
    separation, (rows, labels, correct) = class_separation(slots=8), voxels(7)
    assert separation.prototype_distance(rows, labels).item() == 0
    separation.update_prototypes(rows, labels, correct)
    alone = torch.zeros_like(labels)
    alone[0] = 1
    assert separation.prototype_distance(rows, alone).item() == 0


def test_prototype_distance_by_hand() -> None:
    """All voxels become e1; the prototypes of class 1 are e1 and -e1, those of class 2 e1 and e2."""
    separation = ClassSeparation(4, CLASSES, slots=2)
    with torch.no_grad():
        separation.predict.get_parameter("3.weight").zero_()
        separation.predict.get_parameter("3.bias").copy_(F.one_hot(torch.tensor(0), 32))
        separation.memory[1, :, 0] = torch.tensor([2.0, -1.0])
        separation.memory[2, 0, 0], separation.memory[2, 1, 1] = 1.0, 5.0
        separation.filled[1:] = True
    rows, labels, _ = voxels(0)
    # class 1: the mean of 0 and 2; class 2: the mean of 0 and 1; class 0: none
    assert separation.prototype_distance(rows, labels).item() == pytest.approx((1 + 0.5) / 3, abs=1e-6)


def test_voxel_rows_and_outputs_of_the_network() -> None:
    features = torch.arange(12.0).view(1, 3, 2, 2)
    assert torch.equal(voxel_rows(features)[1], features[0, :, 0, 1])
    network: Any = Networks(NetworkSettings(name="unet-2d", width=2, levels=2), 1, 3).build()
    joined = PrototypeNetwork(network, class_separation()).eval()
    images = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    logits, features = joined(images, all_outputs=True)
    assert torch.equal(logits, joined(images)) and torch.equal(logits, network.head(features))
