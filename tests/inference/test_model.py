"""Networks built from recipes, and saving and loading of weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_batch, tiny_method, tiny_recipe
from torch import Tensor, nn

from graftseg.core.errors import UserError
from graftseg.inference.model import build_method, channels_last, load_weights, save_weights
from graftseg.methods import Method

CPU = torch.device("cpu")


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_loaded_weights_are_bit_identical(dimensions: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    method = channels_last(tiny_method("bcp", dimensions, seed=1))
    method.student(tiny_batch(dimensions).unlabeled)  # so that the running statistics are not those of the start
    save_weights(method.student.state_dict(), path)
    other = channels_last(tiny_method("bcp", dimensions, seed=2))
    assert not same_bits(weights(other.student), weights(method.student))
    load_weights(other, path)
    assert same_bits(weights(other.student), weights(method.student))
    images = tiny_batch(dimensions, seed=5).unlabeled
    assert torch.equal(method.eval().segment(images), other.eval().segment(images))


def test_only_the_student_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    method = tiny_method("bcp", 2)
    save_weights(method.student.state_dict(), path)
    assert load_file(path).keys() == method.student.state_dict().keys()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def refused(method: Method, path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_weights(method, path)
    assert caught.value.where == str(path)
    return caught.value.finding


def test_missing_or_wrong_weights_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    assert refused(tiny_method("supervised", 2), path) == "the run has no trained network yet"
    recipe = tiny_recipe()
    method = build_method(recipe, recipe.stages[-1], channels=1, classes=3, device=CPU)
    save_weights(method.student.state_dict(), path)
    other = build_method(recipe, recipe.stages[-1], channels=1, classes=4, device=CPU)
    assert refused(other, path).startswith("the weights cannot be read (")
    assert refused(tiny_method("supervised", 3), path).startswith("the weights cannot be read (")
    path.write_bytes(path.read_bytes()[:-8])
    assert refused(other, path).startswith("the weights cannot be read (")


def test_a_built_method_has_the_sizes_of_the_data_and_its_channels_last() -> None:
    recipe = tiny_recipe()
    method = build_method(recipe, recipe.stages[-1], channels=2, classes=5, device=CPU)
    assert method.segment(torch.zeros(2, 2, 16, 16)).shape == (2, 5, 16, 16)
    kernels = [module.weight for module in method.modules() if isinstance(module, nn.Conv2d)]
    assert kernels
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)
