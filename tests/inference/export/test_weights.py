"""Export of weights to one file and loading of it."""

from pathlib import Path

import pytest
import tiny
import torch
from export_fakes import write_run
from safetensors.torch import save_file

from graftseg.core.errors import Code
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.weights import FORMAT, load
from graftseg.inference.model import load_network
from user_errors import user_error

CLASSES = ("background", "ring", 'core "é"')


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_loaded_network_is_bit_identical(tmp_path: Path, dimensions: int) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(dimensions), CLASSES, channels=2)
    out = tmp_path / "model.safetensors"
    assert export_run("weights", Request(run, out))[0].endswith("tensors of a network with 3 classes")
    before, after = load_network(run), load(out)
    images = torch.randn(1, 2, *before.patch)
    with torch.inference_mode():
        assert torch.equal(before.method.segment(images), after.method.segment(images))
    assert (after.classes, after.channels, after.recipe) == (CLASSES, 2, before.recipe)
    assert not after.method.training


def test_a_method_that_adds_to_the_network(tmp_path: Path) -> None:
    stages = [{"method": "dtc", "steps": 1}]
    run = write_run(tmp_path / "run", tiny.tiny_recipe(3, stages=stages), ("background", "ring"))
    export_run("weights", Request(run, tmp_path / "model.safetensors"))
    assert type(load(tmp_path / "model.safetensors").method).__name__ == "Dtc"


def test_the_file_must_be_a_safetensors_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(), CLASSES)
    with user_error(Code.OPTION_INVALID, "model", ".safetensors"):
        export_run("weights", Request(run, tmp_path / "model"))


def test_other_files_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for metadata in (None, {"format": "graftseg weights", "version": "2"}, FORMAT):
        save_file({"weight": torch.zeros(1)}, path, metadata)
        with user_error(Code.WEIGHTS_DAMAGED, path):
            load(path)
    save_file({"weight": torch.zeros(1)}, path, FORMAT | {"recipe": "{name: a}", "classes": '["a"]', "channels": "1"})
    with user_error(Code.RECIPE_INVALID, path, "Field required"):
        load(path)


def test_missing_and_invalid_files_are_an_error(tmp_path: Path) -> None:
    with user_error(Code.FILE_MISSING, "model.safetensors"):
        load(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with user_error(Code.WEIGHTS_DAMAGED, "model.safetensors"):
        load(tmp_path / "model.safetensors")
