"""Fine-grained CutMix: values by hand, and equality with a pointwise network."""

import math
from typing import Any

import pytest
import torch
from tiny import tiny_batch, tiny_networks
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.methods.fg_cutmix import FgCutmix, FgCutmixConfig
from graftseg.networks import Networks, NetworkSettings
from graftseg.ops.losses import segmentation_loss

NOW = Progress(torch.tensor(0), 10)


class Pointwise(nn.Module):
    """A network with logits (0, x) at a voxel of value x."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(images), self.scale * images], 1)


class PointwiseNetworks(Networks):
    """Builds ``Pointwise``."""

    def build(self) -> Any:
        return Pointwise()


NETWORKS = PointwiseNetworks(NetworkSettings(name="unet-2d"), 1, 2)

# Labeled voxels are ln 3, unlabeled voxels ln 9: foreground probabilities are 3/4 and 9/10. All labels and
# pseudo-labels are foreground. The Dice of the foreground is 2 p / (p + 1), 6/7 and 18/19; that of the background is 0.
L_LABELED = (1 - 3 / 7 + math.log(4 / 3)) / 2
L_UNLABELED = (1 - 9 / 19 + math.log(10 / 9)) / 2


def test_fg_cutmix_by_hand() -> None:
    torch.manual_seed(0)
    x_l, x_u = torch.full((2, 1, 8, 8), math.log(3)), torch.full((2, 1, 8, 8), math.log(9))
    batch = Batch(Labeled(x_l, torch.ones(2, 8, 8, dtype=torch.long)), x_u)
    (objective,) = FgCutmix(FgCutmixConfig(), NETWORKS).objectives(batch, NOW)
    assert objective.terms["L_labeled"].item() == pytest.approx(L_LABELED, abs=1e-5)
    assert objective.terms["L_unlabeled"].item() == pytest.approx(L_UNLABELED, abs=1e-5)
    assert objective.total.item() == pytest.approx(L_LABELED + 0.5 * L_UNLABELED, abs=1e-5)
    assert torch.equal(objective.shows["X_mixed"].sort(0).values, torch.cat([x_l, x_u]))


@pytest.mark.parametrize("cells", [(4, 4), (1, 1), (8, 3)])
def test_exchange_does_not_change_a_pointwise_network(cells: tuple[int, int]) -> None:
    batch = tiny_batch(2, classes=2)
    config = FgCutmixConfig(cells=cells, largest_component=False)
    method = FgCutmix(config, NETWORKS)
    torch.manual_seed(1)
    (objective,) = method.objectives(batch, NOW)
    expected = segmentation_loss(method.student(batch.labeled.images), batch.labeled.labels)
    pseudo = segmentation_loss(method.student(batch.unlabeled), (batch.unlabeled[:, 0] > 0).long())
    assert torch.equal(objective.terms["L_labeled"], expected)
    assert torch.equal(objective.terms["L_unlabeled"], pseudo)


def test_images_and_labels_are_exchanged_equally() -> None:
    batch = tiny_batch(2)
    labeled = Labeled(batch.labeled.images, (batch.labeled.images[:, 0] > 0).long())
    method = FgCutmix(FgCutmixConfig(largest_component=False), NETWORKS)
    torch.manual_seed(1)
    (objective,) = method.objectives(Batch(labeled, batch.unlabeled), NOW)
    X, before = objective.shows["X_mixed"], torch.cat([labeled.images, batch.unlabeled])
    assert not torch.equal(X, before) and torch.equal(X.sort(0).values, before.sort(0).values)
    assert torch.equal(objective.shows["Y_mixed"], (X[:, 0] > 0).long())


@pytest.mark.parametrize(("dimensions", "cells"), [(2, (4, 4)), (3, (4, 4, 1))])
def test_default_grid_divides_the_first_two_axes(dimensions: int, cells: tuple[int, ...]) -> None:
    assert FgCutmix(FgCutmixConfig(), tiny_networks(dimensions)).cells == cells


def test_grid_with_wrong_number_of_axes_is_rejected() -> None:
    with pytest.raises(ValueError, match="cells has 2 numbers"):
        FgCutmix.check(FgCutmixConfig(cells=(4, 4)), labeled=1, unlabeled=3, patch=(16, 16, 16))
    with pytest.raises(ValueError, match="connectivity is 3"):
        FgCutmix.check(FgCutmixConfig(cells=(4, 4), connectivity=3), labeled=1, unlabeled=3, patch=(16, 16))
