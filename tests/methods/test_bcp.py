"""Values of bidirectional copy-paste by hand, and its structure."""

import math
from typing import Any

import pytest
import torch
from tiny import tiny_batch, tiny_method
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods.bcp import Bcp, BcpConfig
from graftseg.methods.bcp_pretrain import BcpPretrain, BcpPretrainConfig
from graftseg.methods.supervised import Supervised, SupervisedConfig
from graftseg.networks import Networks, NetworkSettings
from graftseg.ops.losses import segmentation_loss
from graftseg.ops.masks import mix
from loops import for_each

NOW = Progress(torch.tensor(0), 10)


class Undecided(nn.Module):
    """A network with zero logits for two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))

    def forward(self, images: Tensor) -> Tensor:
        return self.bias.view(1, 2, 1, 1).expand(len(images), 2, *images.shape[2:])


class UndecidedNetworks(Networks):
    """Builds ``Undecided``."""

    def build(self) -> Any:
        return Undecided()


NETWORKS = UndecidedNetworks(NetworkSettings(name="unet-2d"), 1, 2)


def background_batch() -> Batch:
    images = torch.zeros(2, 1, 6, 6)
    return Batch(Labeled(images, torch.zeros(2, 6, 6, dtype=torch.long)), images)


# Probabilities of ½ where all labels are background: the Dice of the background is (2 * n/2) / (3n/2) = 2/3, that of
# the foreground 0, so the Dice loss is 2/3. The cross-entropy is ln 2. L_seg is their mean in every region.
L_SEG = (2 / 3 + math.log(2)) / 2


def test_bcp_by_hand() -> None:
    method = Bcp(BcpConfig(beta=0.5), NETWORKS)
    (objective,) = method.objectives(background_batch(), NOW)
    assert objective.terms["L_in"].item() == pytest.approx((1 + 0.5) * L_SEG, abs=1e-5)
    assert objective.terms["L_out"].item() == pytest.approx((0.5 + 1) * L_SEG, abs=1e-5)
    assert objective.total.item() == pytest.approx(3 * L_SEG, abs=1e-5)


@pytest.mark.parametrize(
    ("direction", "terms"),
    [
        ("in", {"L_in": 1.5}),
        ("out", {"L_out": 1.5}),
        ("within", {"L_labeled": 2.0, "L_unlabeled": 1.0}),
        ("none", {"L_labeled": 1.0, "L_unlabeled": 0.5}),
    ],
)
def test_other_directions_by_hand(direction: Any, terms: dict[str, float]) -> None:
    (objective,) = Bcp(BcpConfig(direction=direction), NETWORKS).objectives(background_batch(), NOW)
    assert {name: term.item() for name, term in objective.terms.items()} == {
        name: pytest.approx(weight * L_SEG, abs=1e-5) for name, weight in terms.items()
    }


@pytest.mark.parametrize("direction", ["in", "out"])
def test_single_direction_equals_its_term_in_both(direction: Any) -> None:
    totals = []
    for chosen in ("both", direction):
        method = tiny_method("bcp", 2, direction=chosen).eval()
        torch.manual_seed(1)
        (objective,) = method.objectives(tiny_batch(2), NOW)
        totals.append(objective.terms[f"L_{direction}"])
    assert torch.equal(*totals)


@pytest.mark.parametrize("direction", ["within", "none"])
def test_unmixed_labeled_images_need_pasting_between_labeled_and_unlabeled_images(direction: Any) -> None:
    with pytest.raises(ValueError, match="labeled_weight needs direction"):
        BcpConfig(direction=direction, labeled_weight=1.0)


class Normalized(Undecided):
    """A network with one batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(self.norm(images))


class NormalizedNetworks(Networks):
    """Builds ``Normalized``."""

    def build(self) -> Any:
        return Normalized()


def test_the_inward_mixture_runs_first() -> None:
    """The running mean is 0.9 * 0.1 * (mean of the first mixture) + 0.1 * (mean of the second)."""
    method = Bcp(BcpConfig(beta=0.5), NormalizedNetworks(NetworkSettings(name="unet-2d"), 1, 2))
    labeled, unlabeled = torch.full((2, 1, 6, 6), 8.0), torch.full((2, 1, 6, 6), 4.0)
    next(method.objectives(Batch(Labeled(labeled, torch.zeros(2, 6, 6, dtype=torch.long)), unlabeled), NOW))
    # a quarter of the voxels is pasted: 3/4 labeled inward, 3/4 unlabeled outward
    inward, outward = 0.75 * 8 + 0.25 * 4, 0.75 * 4 + 0.25 * 8
    assert dict(method.student.named_buffers())["norm.running_mean"].item() == pytest.approx(
        0.9 * 0.1 * inward + 0.1 * outward
    )


def test_direction_none_learns_unmixed_images() -> None:
    method, batch = tiny_method("bcp", 2, direction="none", largest_component=False), tiny_batch(2)
    assert isinstance(method, Bcp)
    method.eval()
    (objective,) = method.objectives(batch, NOW)
    pseudo = method.teacher(batch.unlabeled).argmax(1)
    assert torch.equal(objective.shows["X_labeled"], batch.labeled.images)
    assert torch.equal(objective.shows["X_unlabeled"], batch.unlabeled)
    assert torch.equal(objective.shows["Y_unlabeled"], pseudo)
    labeled = segmentation_loss(method.student(batch.labeled.images), batch.labeled.labels)
    unlabeled = segmentation_loss(method.student(batch.unlabeled), pseudo)
    assert torch.allclose(objective.total, labeled + 0.5 * unlabeled)


@for_each("mask", ["random", "contact"])
@for_each("name", ["bcp", "bcp-pretrain"])
@for_each("dimensions", [2, 3])
def test_chosen_mask_is_used(name: str, mask: str, dimensions: int) -> None:
    method = tiny_method(name, dimensions, mask={"name": mask})
    batch = tiny_batch(dimensions, side=12)
    torch.manual_seed(1)
    (objective,) = method.objectives(batch, NOW)
    pasted = ~objective.shows["M"]
    # cubes: three of 2 voxels along each axis; slab: 4/9 (2-D) or 8/27 (3-D) of 12 voxels, rounded down
    voxels = {"random": 6**dimensions, "contact": {2: 5 * 12, 3: 3 * 12 * 12}[dimensions]}
    assert int(pasted.sum()) == voxels[mask]


def test_pretraining_without_mixing_by_hand() -> None:
    method = BcpPretrain(BcpPretrainConfig(mixing=False), NETWORKS)
    batch = background_batch()
    (objective,) = method.objectives(batch, NOW)
    assert objective.total.item() == pytest.approx(L_SEG, abs=1e-5)
    assert objective.shows["X_labeled"] is batch.labeled.images


def test_pretraining_by_hand() -> None:
    (whole,) = BcpPretrain(BcpPretrainConfig(), NETWORKS).objectives(background_batch(), NOW)
    assert whole.total.item() == pytest.approx(L_SEG, abs=1e-5)
    (regions,) = BcpPretrain(BcpPretrainConfig(loss="regions"), NETWORKS).objectives(background_batch(), NOW)
    assert regions.total.item() == pytest.approx(2 * L_SEG, abs=1e-5)


@pytest.mark.parametrize(
    ("dice", "expected"),
    # squared sums: background (2 n/2) / (n/4 + n) = 0.8, foreground 0
    [("per-sample", 2 / 3), ("classes", 1 - 0.8 / 2), ("foreground", 1.0)],
)
def test_supervised_by_hand(dice: Any, expected: float) -> None:
    (objective,) = Supervised(SupervisedConfig(dice=dice), NETWORKS).objectives(background_batch(), NOW)
    assert objective.terms["dice"].item() == pytest.approx(expected, abs=1e-5)
    assert objective.total.item() == pytest.approx((expected + math.log(2)) / 2, abs=1e-5)


def test_mixtures_match_the_paper() -> None:
    method, batch = tiny_method("bcp", 2, largest_component=False), tiny_batch(2)
    method.eval()
    assert isinstance(method, Bcp)
    (objective,) = method.objectives(batch, NOW)
    M, (i, j), (u_p, u_q) = objective.shows["M"], batch.labeled.halves(), batch.unlabeled.chunk(2)
    p_p, p_q = method.teacher(u_p).argmax(1), method.teacher(u_q).argmax(1)
    assert torch.equal(objective.shows["X_in"], mix(j.images, u_p, M))
    assert torch.equal(objective.shows["X_out"], mix(u_q, i.images, M))
    assert torch.equal(objective.shows["Y_in"], mix(j.labels, p_p, M))
    assert torch.equal(objective.shows["Y_out"], mix(p_q, i.labels, M))
    assert 0 < (~M).sum() < M.numel()


def test_teacher_is_ema_of_student() -> None:
    method = tiny_method("bcp", 2, ema_decay=0.75)
    assert isinstance(method, Bcp)
    with torch.no_grad():
        for parameter in method.student.parameters():
            parameter.add_(4.0)
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    method.after_step(NOW)
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        assert torch.allclose(new, old + 1.0, atol=1e-6)


def test_preview_labels_changes_no_state() -> None:
    method, images = tiny_method("bcp", 2), tiny_batch(2).unlabeled
    state = {key: value.clone() for key, value in method.state_dict().items()}
    random = torch.get_rng_state()
    labels = method.preview_labels(images)
    assert labels is not None and labels.shape == (4, 8, 8)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in method.state_dict().items())
    assert all(module.training for module in method.modules())
