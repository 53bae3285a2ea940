"""Export of weights to one file and loading of it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from export_fakes import write_run
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from graftseg.core.errors import Code
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.weights import FORMAT, UNCHECKED_VERSION, VERSION, load
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


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    run = write_run(folder / "run", tiny.tiny_recipe(2), CLASSES)
    export_run("weights", Request(run, folder / "model.safetensors"))
    return folder / "model.safetensors"


def test_every_flipped_bit_is_found(exported: Path, tmp_path: Path) -> None:
    content = exported.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    key = content.index(b'"version":"2"') + len('"version":"')
    rng = np.random.default_rng(0)
    places = [*rng.integers(0, header, 150), *rng.integers(header, len(content), 100), *range(key - 11, key + 2)]
    path = tmp_path / "model.safetensors"
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with user_error(Code.WEIGHTS_DAMAGED, path):
            load(path)


def test_the_checksum_covers_metadata_and_tensors(exported: Path) -> None:
    with safe_open(exported, "pt") as content:
        metadata = content.metadata()
        tensors = {name: content.get_tensor(name) for name in sorted(content.keys())}
    digest = hashlib.sha256(json.dumps({key: metadata[key] for key in sorted(metadata) if key != "sha256"}).encode())
    for name, tensor in tensors.items():
        digest.update(f'["{name}", "{tensor.dtype}", {list(tensor.shape)}]'.encode() + tensor.numpy().tobytes())
    assert metadata["sha256"] == digest.hexdigest()


def test_a_file_without_a_checksum_gives_one_warning(
    exported: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with safe_open(exported, "pt") as content:
        metadata = content.metadata()
    del metadata["sha256"]
    save_file(load_file(exported), tmp_path / "old.safetensors", metadata | {"version": UNCHECKED_VERSION})
    old, new = load(tmp_path / "old.safetensors"), load(exported)
    assert [record.args for record in caplog.records] == [(tmp_path / "old.safetensors",)]
    assert old.recipe == new.recipe
    for name, tensor in new.method.student.state_dict().items():
        assert torch.equal(tensor, old.method.student.state_dict()[name])
    save_file(load_file(exported), tmp_path / "stripped.safetensors", metadata)
    with user_error(Code.WEIGHTS_DAMAGED, tmp_path / "stripped.safetensors"):
        load(tmp_path / "stripped.safetensors")


def test_other_files_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    old = {"format": FORMAT, "version": UNCHECKED_VERSION}
    for metadata in (None, old | {"version": "3"}, old | {"version": VERSION}, old):
        save_file({"weight": torch.zeros(1)}, path, metadata)
        with user_error(Code.WEIGHTS_DAMAGED, path):
            load(path)
    save_file({"weight": torch.zeros(1)}, path, old | {"recipe": "{name: a}", "classes": '["a"]', "channels": "1"})
    with user_error(Code.RECIPE_INVALID, path, "Field required"):
        load(path)


def test_missing_and_invalid_files_are_an_error(tmp_path: Path) -> None:
    with user_error(Code.FILE_MISSING, "model.safetensors"):
        load(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with user_error(Code.WEIGHTS_DAMAGED, "model.safetensors"):
        load(tmp_path / "model.safetensors")
