"""Batch-norm statistics of the present weights: mean, restored state, and checks of the teacher that use them."""

from pathlib import Path

import pytest
import tiny
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg import api
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.methods import Method
from graftseg.training import unlabeled_predictions
from graftseg.training.fresh_statistics import BATCHES, fresh_statistics, training_images


def state(method: Method) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_statistics_are_means_over_batches_and_are_restored(dimensions: int) -> None:
    method, generator = tiny.tiny_method("supervised", dimensions), torch.Generator().manual_seed(0)
    images = [5 + 2 * torch.randn(2, 1, *[8] * dimensions, generator=generator) for _ in range(3)]
    before, random = state(method), torch.get_rng_state()
    first = next(part for part in method.student.modules() if isinstance(part, _BatchNorm))
    inputs: list[torch.Tensor] = []
    hook = first.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    with fresh_statistics(method, images):
        hook.remove()
        axes = [0, *range(2, 2 + dimensions)]
        assert first.running_mean is not None and first.running_var is not None
        mean = torch.stack([one.mean(axes) for one in inputs]).mean(0)
        variance = torch.stack([one.var(axes) for one in inputs]).mean(0)
        torch.testing.assert_close(first.running_mean, mean, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(first.running_var, variance, atol=1e-5, rtol=1e-4)
        assert method.training and first.training
    assert len(inputs) == 3 and equal(state(method), before) and first.momentum == 0.1
    assert torch.equal(torch.get_rng_state(), random)


def test_statistics_are_restored_after_an_error() -> None:
    method = tiny.tiny_method("supervised", 2)
    before = state(method)
    with pytest.raises(ValueError, match="inside"), fresh_statistics(method, [torch.ones(2, 1, 8, 8)]):
        raise ValueError("inside")
    assert equal(state(method), before)


def test_images_of_a_stage(store: Store) -> None:
    batches = Batches(store, tiny.tiny_recipe().batches, seed=0, device="cpu")
    labeled, both = (list(training_images(batches, 1, unlabeled=unlabeled)) for unlabeled in (False, True))
    assert [len(one) for one in labeled] == [2] * BATCHES and [len(one) for one in both] == [4] * BATCHES
    assert torch.equal(both[3][:2], labeled[3]) and torch.equal(both[3][2:], batches.at(1, 3).unlabeled)


def test_images_with_elastic_deformation_under_autocast(store: Store) -> None:
    tree = tiny.recipe_tree()["batches"] | {"warp": {"elastic": 1.0}, "augment": {"rotate_flip": 0, "rotate": 0}}
    batches = Batches(store, tiny.tiny_recipe(batches=tree).batches, seed=0, device="cpu")
    plain = list(training_images(batches, 0, unlabeled=False))
    with torch.autocast("cpu", torch.bfloat16):
        images = list(training_images(batches, 0, unlabeled=False))
    assert all(torch.equal(one, other) for one, other in zip(images, plain, strict=True))


def test_a_check_of_the_teacher_does_not_change_the_training(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All predictions are plausible, so both runs must have the same weights."""
    monkeypatch.setattr("graftseg.training.teacher_check.MAX_REJECTED", 1.0)
    monkeypatch.setattr("graftseg.training.teacher_check.implausible", lambda labeled, predicted: {})
    monkeypatch.setattr(unlabeled_predictions, "drifted_class", lambda *volumes: None)
    tree = tiny.recipe_tree()
    for name, is_checked in (("plain", False), ("checked", True)):
        stages = [tree["stages"][0], tree["stages"][1] | {"check_teacher": is_checked}]
        api.train(tiny.tiny_recipe(stages=stages), store.path, tmp_path / name, device="cpu")
    plain, checked = (RunFolder(tmp_path / name).weights_file.read_bytes() for name in ("plain", "checked"))
    assert plain == checked
