"""Export to ONNX, with a comparison of onnxruntime and PyTorch."""

import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from graftseg.core.devices import versions
from graftseg.core.errors import Code, UserError
from graftseg.core.files import sha256_of, write_json
from graftseg.core.progress import silence
from graftseg.data.scans_to_predict import check_channels
from graftseg.inference.export.request import Request, atomic_folder, import_package
from graftseg.inference.inputs import sources_in
from graftseg.inference.model import Probabilities, TrainedNetwork, load_network

OPSET = 18
TOLERANCE = 1e-3
"""Largest accepted difference between the probabilities of onnxruntime and PyTorch."""


def write(request: Request) -> list[str]:
    """Write ``model.onnx``, and ``model.json`` with its inputs, outputs, checksum and difference from PyTorch."""
    onnx, runtime = import_package("onnx", "export"), import_package("onnxruntime", "export")
    import_package("onnxscript", "export")
    shipped = load_network(request.run)
    if request.check is None:
        images, checked_on = (
            torch.randn(2, shipped.channels, *shipped.patch, generator=torch.Generator().manual_seed(0)),
            "noise",
        )
    else:
        images, checked_on = _patch_of(request.check, shipped), "a patch of a scan"
    network = Probabilities(shipped.method.student).eval()
    with atomic_folder(request.out) as folder:
        model = folder / "model.onnx"
        _convert(network, shipped, model)
        onnx.checker.check_model(str(model))
        difference = _difference(runtime, model, network, images)
        if not difference <= TOLERANCE:
            finding = f"onnxruntime and PyTorch differ by {difference:.2g} on {checked_on}"
            remedy = "update onnx, onnxscript and torch, then export again"
            raise UserError(Code.EXPORT_UNSUPPORTED, request.out, finding, remedy)
        about = _described(shipped, difference, checked_on) | {"sha256": sha256_of(model)}
        write_json(folder / "model.json", about)
    return [f"{request.out}: probabilities differ from PyTorch's by at most {difference:.2g} on {checked_on}"]


def _convert(network: nn.Module, shipped: TrainedNetwork, model: Path) -> None:
    """Export the network for any number of patches of the recipe's size."""
    # Undo the channels-last format of the weights, which is useful only for speed on a GPU.
    for parameter in network.parameters():
        parameter.data = parameter.data.contiguous()
    example = torch.zeros(2, shipped.channels, *shipped.patch)
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


def _difference(runtime: object, model: Path, network: nn.Module, images: Tensor) -> float:
    """Return the largest difference between probabilities, for a batch of all images and a batch of one image."""
    session = runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    largest = 0.0
    for batch in (images, images[:1]):
        (found,) = session.run(None, {"images": batch.numpy()})
        with torch.inference_mode():
            expected = network(batch).numpy()
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest


def _patch_of(scan: Path, shipped: TrainedNetwork) -> Tensor:
    """Return a batch of two images: the center of the prepared scan, zero-padded to the patch, and its mirror image."""
    cases, failures = sources_in(scan, shipped.recipe.data, shipped.channels)
    if failures:
        raise next(iter(failures.values()))
    image = cases[0].read().image.float()
    check_channels(scan, len(image), shipped.channels)
    if image.ndim - 1 > len(shipped.patch):
        image = image[..., image.shape[-1] // 2]
    patch = torch.zeros(shipped.channels, *shipped.patch)
    common = [min(have, want) for have, want in zip(image.shape[1:], shipped.patch, strict=True)]
    patch[(slice(None), *_middle(patch.shape[1:], common))] = image[(slice(None), *_middle(image.shape[1:], common))]
    return torch.stack([patch, patch.flip(1)])


def _middle(shape: tuple[int, ...], size: list[int]) -> tuple[slice, ...]:
    starts = [(have - want) // 2 for have, want in zip(shape, size, strict=True)]
    return tuple(slice(start, start + want) for start, want in zip(starts, size, strict=True))


def _described(shipped: TrainedNetwork, difference: float, checked_on: str) -> dict[str, object]:
    """Describe the network for its users, without any data of the scans."""
    recipe = shipped.recipe
    return {
        "format": "graftseg onnx",
        "version": 1,
        "recipe": recipe.name,
        "classes": list(shipped.classes),
        "input": {"name": "images", "shape": ["batch", shipped.channels, *shipped.patch], "type": "float32"},
        "output": {"name": "probabilities", "shape": ["batch", len(shipped.classes), *shipped.patch]},
        "preparation": recipe.data.model_dump(mode="json"),
        "inference": recipe.inference.model_dump(mode="json"),
        "fit": recipe.batches.fit,
        "opset": OPSET,
        "largest_difference": difference,
        "checked_on": checked_on,
        "versions": versions(),
    }
