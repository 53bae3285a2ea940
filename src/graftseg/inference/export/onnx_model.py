"""Export to ONNX, with a comparison of onnxruntime and PyTorch, and loading of an exported network.

The metadata of the file contain a SHA-256 checksum of everything else in the file.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, write_json
from graftseg.core.packages import import_optional
from graftseg.core.progress import silence
from graftseg.core.reading import read_bytes, sha256_of
from graftseg.core.software import versions
from graftseg.data.scans_to_predict import check_channels
from graftseg.inference.export import Request
from graftseg.inference.export.weights import tensor_checksum
from graftseg.inference.inputs import sources_in
from graftseg.inference.model import Probabilities, TrainedNetwork, load_network

FORMAT, VERSION = "graftseg onnx", 1
OPSET = 18
TOLERANCE = 1e-3  # largest accepted difference between the probabilities of onnxruntime and PyTorch


def write(request: Request) -> list[str]:
    """Write ``model.onnx``, and ``model.json`` with its inputs, outputs, checksum and difference from PyTorch."""
    onnx, *_ = map(_import, ("onnx", "onnxruntime", "onnxscript"))
    trained = load_network(request.run)
    checked_on = "noise" if request.check is None else "a patch of a scan"
    noise = torch.randn(2, trained.channels, *trained.patch, generator=torch.Generator().manual_seed(0))
    images = noise if request.check is None else _patch_of(request.check, trained)
    network = Probabilities(trained.method.student).eval()
    with atomic_folder(request.out) as folder:
        model = folder / "model.onnx"
        _convert(network, trained, model)
        _add_checksum(onnx, model, trained.classes)
        onnx.checker.check_model(str(model))
        difference = _difference(model, network, images)
        if not difference <= TOLERANCE:
            finding = f"onnxruntime and PyTorch differ by {difference:.2g} on {checked_on}"
            remedy = "update onnx, onnxscript and torch, then export again"
            raise UserError(Code.EXPORT_UNSUPPORTED, request.out, finding, remedy)
        about = _description(trained, difference, checked_on) | {"sha256": sha256_of(model)}
        write_json(folder / "model.json", about)
    return [f"{request.out}: probabilities differ from PyTorch's by at most {difference:.2g} on {checked_on}"]


def _convert(network: nn.Module, trained: TrainedNetwork, model: Path) -> None:
    """Export the network for any number of patches of the recipe's size."""
    # Undo the channels-last format of the weights, which only makes PyTorch faster.
    for parameter in network.parameters():
        parameter.data = parameter.data.contiguous()
    example = torch.zeros(2, trained.channels, *trained.patch)
    # The exporter prints deprecation and progress messages.
    with silence("onnxscript", "onnx_ir", "torch.onnx", below=logging.ERROR), torch.no_grad():
        torch.onnx.export(
            network,
            (example,),
            model,
            input_names=["images"],
            output_names=["probabilities"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1, max=4096)}},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def load(path: str | Path) -> Any:
    """Verify the checksum of an exported file and return an onnxruntime session for the CPU."""
    onnx, runtime = map(_import, ("onnx", "onnxruntime"))
    file = Path(path)
    if not file.is_file():
        raise UserError(Code.FILE_MISSING, file, "does not exist", "check the path")
    content = read_bytes(file)
    try:
        model = onnx.load_model_from_string(content)
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        if metadata.pop("sha256") != _checksum(onnx, model, metadata):
            raise ValueError
        return runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception:  # the packages define many kinds of errors for invalid files
        finding = "damaged, or not written by this version of graftseg"
        remedy = "run graftseg export onnx to recreate it"
        raise UserError(Code.WEIGHTS_DAMAGED, file, finding, remedy) from None


def _add_checksum(onnx: Any, file: Path, classes: tuple[str, ...]) -> None:
    model = onnx.load_model(file)
    metadata = {"format": FORMAT, "version": str(VERSION), "classes": json.dumps(classes)}
    onnx.helper.set_model_props(model, metadata | {"sha256": _checksum(onnx, model, metadata)})
    onnx.save_model(model, file)


def _checksum(onnx: Any, model: Any, metadata: dict[str, str]) -> str:
    """Return the checksum of tensors, metadata and graph. Raise a ValueError if tensors are in other files."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("metadata_props")
    tensors = {}
    for full, empty in zip(model.graph.initializer, rest.graph.initializer, strict=True):
        if full.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError
        tensors[full.name] = torch.from_numpy(onnx.numpy_helper.to_array(full).copy())
        empty.ClearField("raw_data")
    graph = hashlib.sha256(rest.SerializeToString(deterministic=True)).hexdigest()
    return tensor_checksum(metadata | {"graph": graph}, tensors)


def _difference(model: Path, network: nn.Module, images: Tensor) -> float:
    """Return the largest difference between probabilities, for a batch of all images and a batch of one image."""
    session = load(model)
    largest = 0.0
    for batch in (images, images[:1]):
        (actual,) = session.run(None, {"images": batch.numpy()})
        with torch.inference_mode():
            expected = network(batch).numpy()
        largest = max(largest, float(np.abs(actual - expected).max()))
    return largest


def _patch_of(scan: Path, trained: TrainedNetwork) -> Tensor:
    """Return a batch of two images: the center of a scan, zero-padded to the patch, and its mirror image."""
    cases, failures = sources_in(scan, trained.recipe.data, trained.channels)
    if failures:
        raise next(iter(failures.values()))
    image = cases[0].read().image.float()
    check_channels(scan, len(image), trained.channels)
    if image.ndim - 1 > len(trained.patch):
        image = image[..., image.shape[-1] // 2]
    patch = torch.zeros(trained.channels, *trained.patch)
    common = [min(sizes) for sizes in zip(image.shape[1:], trained.patch, strict=True)]
    patch[(slice(None), *_center(patch.shape[1:], common))] = image[(slice(None), *_center(image.shape[1:], common))]
    return torch.stack([patch, patch.flip(1)])


def _center(shape: tuple[int, ...], size: list[int]) -> tuple[slice, ...]:
    starts = [(full - part) // 2 for full, part in zip(shape, size, strict=True)]
    return tuple(slice(start, start + part) for start, part in zip(starts, size, strict=True))


def _description(trained: TrainedNetwork, difference: float, checked_on: str) -> dict[str, object]:
    """Return the content of ``model.json``, without any data of the scans."""
    recipe = trained.recipe
    return {
        "format": FORMAT,
        "version": VERSION,
        "recipe": recipe.name,
        "classes": list(trained.classes),
        "input": {"name": "images", "shape": ["batch", trained.channels, *trained.patch], "type": "float32"},
        "output": {"name": "probabilities", "shape": ["batch", len(trained.classes), *trained.patch]},
        "preparation": recipe.data.model_dump(mode="json"),
        "inference": recipe.inference.model_dump(mode="json"),
        "fit": recipe.batches.fit,
        "opset": OPSET,
        "largest_difference": difference,
        "checked_on": checked_on,
        "versions": versions(),
    }


def _import(package: str) -> Any:
    return import_optional(package, "this export", extra="export")
