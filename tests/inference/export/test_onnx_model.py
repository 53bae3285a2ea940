"""Export to ONNX: onnxruntime gives the probabilities of PyTorch."""

import hashlib
import json
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tiny
import torch
from export_fakes import write_run

from graftseg.core.errors import Code, UserError
from graftseg.data.store import Store
from graftseg.inference.export import Request, export_run, onnx_model
from graftseg.inference.model import load_network
from user_errors import user_error

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# importing these packages takes seconds, also in processes that run none of these tests
pytestmark = pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason=f"needs {', '.join(PACKAGES)}")


@pytest.mark.slow
def test_a_volume_network_for_any_number_of_patches(tmp_path: Path, volumes: Store) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(3), volumes.classes)
    (line,) = export_run("onnx", Request(run, tmp_path / "out"))
    facts = json.loads((tmp_path / "out" / "model.json").read_text())
    assert facts["classes"] == list(volumes.classes) and facts["input"]["shape"] == ["batch", 1, 16, 16, 16]
    assert facts["sha256"] == hashlib.sha256((tmp_path / "out" / "model.onnx").read_bytes()).hexdigest()
    assert facts["checked_on"] == "noise" and facts["largest_difference"] < 1e-4
    largest = f"{facts['largest_difference']:.2g}"
    assert line.endswith(f"/out: probabilities differ from PyTorch's by at most {largest} on noise")
    images = torch.randn(3, 1, 16, 16, 16)
    session = import_module("onnxruntime").InferenceSession(
        str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"images": images.numpy()})
    (checked,) = onnx_model.load(tmp_path / "out" / "model.onnx").run(None, {"images": images.numpy()})
    assert np.array_equal(checked, found)
    with torch.inference_mode():
        expected = load_network(run).method.segment(images).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_a_slice_network_checked_on_a_scan(tmp_path: Path, scans: Path, store: Store) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(2), store.classes)
    (scan, *_) = sorted((scans / "imagesTs").iterdir())
    export_run("onnx", Request(run, tmp_path / "out", check=scan))
    text = (tmp_path / "out" / "model.json").read_text()
    facts = json.loads(text)
    assert facts["checked_on"] == "a patch of a scan" and 0 < facts["largest_difference"] < 1e-4
    assert "test_0" not in text
    model = import_module("onnx").load(tmp_path / "out" / "model.onnx")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == list(store.classes) and len(metadata["sha256"]) == 64


@pytest.mark.slow
def test_damaged_files_are_refused(tmp_path: Path, store: Store) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(2), store.classes)
    export_run("onnx", Request(run, tmp_path / "out"))
    content, path, random = (tmp_path / "out" / "model.onnx").read_bytes(), tmp_path / "model.onnx", Random(0)
    damaged = [content[:place] for place in (0, 1, len(content) - 1)]
    for place in [*range(200), *(random.randrange(len(content)) for _ in range(300))]:
        changed = bytearray(content)
        changed[place] ^= 1 << random.randrange(8)
        damaged.append(bytes(changed))
    accepted = []
    for number, one in enumerate(damaged):
        path.write_bytes(one)
        with suppress(UserError):
            accepted.append((number, onnx_model.load(path)))
    assert accepted == []
    onnx = import_module("onnx")
    model = onnx.load_model_from_string(content)
    del model.metadata_props[-1]
    onnx.save_model(model, path)
    with user_error(Code.WEIGHTS_DAMAGED, path, "export onnx"):
        onnx_model.load(path)
    with user_error(Code.FILE_MISSING, tmp_path / "none.onnx"):
        onnx_model.load(tmp_path / "none.onnx")


def test_a_network_that_differs_from_pytorch_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(2), ("background", "ring"))
    monkeypatch.setattr(onnx_model, "_convert", lambda network, trained, model: model.write_bytes(b""))
    monkeypatch.setattr("onnx.checker.check_model", lambda path: None)
    monkeypatch.setattr(onnx_model, "_difference", lambda *parts: float("nan"))
    with user_error(Code.EXPORT_UNSUPPORTED, tmp_path / "out", "nan"):
        export_run("onnx", Request(run, tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_center_of_a_scan_of_any_size(tmp_path: Path) -> None:
    assert onnx_model._center((5, 20), [5, 16]) == (slice(0, 5), slice(2, 18))


def test_a_scan_with_other_channels_is_an_error(tmp_path: Path, scans: Path) -> None:
    run = write_run(tmp_path / "run", tiny.tiny_recipe(2), ("background", "ring"), channels=2)
    scan = sorted((scans / "imagesTs").iterdir())[0]
    with user_error(Code.CHANNELS_MISMATCH, scan):
        export_run("onnx", Request(run, tmp_path / "out", check=scan))
