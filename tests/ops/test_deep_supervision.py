"""Deep supervision by hand: weights of the levels, subsampled targets, and the heads of a network."""

import pytest
import torch
from tiny import tiny_batch, tiny_recipe
from torch import Tensor

from graftseg.core.errors import Code
from graftseg.core.types import Progress
from graftseg.methods.graft import Graft, GraftConfig
from graftseg.methods.supervised import Supervised, SupervisedConfig
from graftseg.networks import Networks, NetworkSettings
from graftseg.networks.encoder_decoder import Extensible
from graftseg.ops.losses import deep_loss, deep_terms, segmentation_loss, subsample, supervised_terms
from graftseg.recipes.recipe import parse_recipe
from user_errors import user_error

START = Progress(torch.tensor(0), 10)
NAMES = ["unet-2d", "vnet-bn", "unet-3d"]


def networks(name: str, *, deep: bool = True) -> Networks:
    return Networks(NetworkSettings(name=name, width=2, levels=4, dropout=False, deep_supervision=deep), 1, 3)


def test_the_weight_halves_from_level_to_level() -> None:
    logits = [torch.zeros(1, 2, 4, 4), torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 1, 1)]
    labels = torch.arange(16.0).view(1, 4, 4)
    # the means are 7.5, the mean of 5, 7, 13 and 15, and 10
    mean = deep_loss(lambda q, y: y.mean(), logits, labels)
    assert mean.item() == pytest.approx((4 * 7.5 + 2 * 10 + 10) / 7)
    terms = deep_terms(lambda q, y: {"size": torch.tensor(float(q.numel())), "mean": y.mean()}, logits, labels)
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(
        {"size": (4 * 32 + 2 * 8 + 2) / 7, "mean": mean.item()}
    )


def test_one_level_changes_no_bit() -> None:
    logits, labels = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    mask = torch.rand(2, 4, 4)
    assert torch.equal(deep_loss(segmentation_loss, [logits], labels, mask), segmentation_loss(logits, labels, mask))


def test_subsampled_targets_have_the_size_of_the_logits() -> None:
    mask = torch.arange(8).expand(5, 3, 8)
    assert subsample(mask, 4, axes=1)[0, 0].tolist() == [2, 6]
    assert torch.equal(subsample(mask, 1, axes=2), mask)
    assert subsample(torch.zeros(8, 8), 2, axes=2).shape == (4, 4)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_returns_the_logits_of_every_decoder_level(name: str) -> None:
    network: Extensible = networks(name).build().eval()
    images = torch.randn(2, 1, *(16,) * network.dimensions)
    levels = network(images, all_levels=True)
    assert [tuple(q.shape[1:]) for q in levels] == [(3, *(16 >> level,) * network.dimensions) for level in range(3)]
    assert torch.equal(levels[0], network(images))


@pytest.mark.parametrize("name", NAMES)
def test_the_heads_change_no_other_weight(name: str) -> None:
    states = []
    for deep in (False, True):
        torch.manual_seed(0)
        states.append(networks(name, deep=deep).build().state_dict())
    plain, deep_state = states
    assert all(torch.equal(value, deep_state[key]) for key, value in plain.items())
    assert {key.split(".")[0] for key in deep_state.keys() - plain.keys()} == {"coarse_heads"}


def test_supervised_training_averages_the_levels() -> None:
    method = Supervised(SupervisedConfig(), networks("unet-2d"))
    batch = tiny_batch(2)
    (objective,) = method.objectives(batch, START)
    levels: list[Tensor] = method.student(batch.labeled.images, all_levels=True)
    parts = [
        supervised_terms(q, batch.labeled.labels[:, (1 << n) // 2 :: 1 << n, (1 << n) // 2 :: 1 << n], "classes")
        for n, q in enumerate(levels)
    ]
    for name, value in objective.terms.items():
        expected = sum(w * part[name].item() for w, part in zip((4 / 7, 2 / 7, 1 / 7), parts, strict=True))
        assert value.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("direction", ["none", "both"])
def test_graft_trains_every_head(direction: str, joint: bool) -> None:
    method = Graft(GraftConfig.model_validate({"direction": direction, "joint": joint}), networks("unet-2d"))
    (objective,) = method.objectives(tiny_batch(2), START)
    objective.total.backward()  # type: ignore[no-untyped-call]
    for head in method.student.get_submodule("coarse_heads").children():
        assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in head.parameters())


def test_a_recipe_without_a_loss_for_the_heads_is_rejected() -> None:
    tree = tiny_recipe(stages=[{"method": "bcp", "steps": 1}]).model_dump(mode="json")
    tree["network"]["deep_supervision"] = True
    with user_error(Code.RECIPE_INVALID, "recipe", "deep_supervision"):
        parse_recipe(tree, "recipe")
