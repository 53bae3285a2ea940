"""The network as an ONNX file, compared with PyTorch before it is kept."""

import logging
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from graftseg.core.devices import versions
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_json
from graftseg.core.progress import silence
from graftseg.inference.export.request import Request, atomic_folder, needed
from graftseg.inference.inputs import sources_in
from graftseg.inference.model import Probabilities, TrainedNetwork, load_network

OPSET = 18
TOLERANCE = 1e-3
"""Probabilities that differ by more are no longer those of the same network."""


def write(request: Request) -> list[str]:
    """Write ``model.onnx`` and, in ``model.json``, what it takes, what it gives and how closely it was followed."""
    onnx, runtime = needed("onnx", "export"), needed("onnxruntime", "export")
    needed("onnxscript", "export")
    shipped = load_network(request.run)
    images = _noise(shipped) if request.check is None else _patch_of(request.check, shipped)
    checked_on = "noise" if request.check is None else "a patch of a scan"
    network = Probabilities(shipped.method.student).eval()
    with atomic_folder(request.out) as folder:
        model = folder / "model.onnx"
        _convert(network, shipped, model)
        onnx.checker.check_model(str(model))
        difference = _difference(runtime, model, network, images)
        if not difference <= TOLERANCE:
            finding = f"onnxruntime and PyTorch differ by {difference:.2g} on {checked_on}"
            raise UserError(
                Code.EXPORT_UNSUPPORTED, request.out, finding, "update onnx, onnxscript and torch, then export again"
            )
        write_json(folder / "model.json", _described(shipped, difference, checked_on))
    return [f"{request.out}: probabilities differ from PyTorch's by at most {difference:.2g} on {checked_on}"]


def _convert(network: nn.Module, shipped: TrainedNetwork, model: Path) -> None:
    """Trace the network for patches of the recipe's size and any number of them."""
    # weights with channels last are a matter of speed on a GPU
    for parameter in network.parameters():
        parameter.data = parameter.data.contiguous()
    example = torch.zeros(2, shipped.channels, *shipped.patch)
    with _quiet(), torch.no_grad():
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
    """The largest difference of a probability, over batches of one image and of all."""
    session = runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    largest = 0.0
    for batch in (images, images[:1]):
        (found,) = session.run(None, {"images": batch.numpy()})
        with torch.inference_mode():
            expected = network(batch).numpy()
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest


def _noise(shipped: TrainedNetwork) -> Tensor:
    return torch.randn(2, shipped.channels, *shipped.patch, generator=torch.Generator().manual_seed(0))


def _patch_of(scan: Path, shipped: TrainedNetwork) -> Tensor:
    """The middle of a scan, prepared as for training, beside the same mirrored; zeros around what is too small."""
    cases, failures = sources_in(scan, shipped.recipe.data, shipped.channels)
    if failures:
        raise next(iter(failures.values()))
    image = cases[0].read().image.float()
    if len(image) != shipped.channels:
        finding = f"the number of channels is {len(image)} where the run was trained on {shipped.channels}"
        raise UserError(Code.EXPORT_UNSUPPORTED, scan, finding, "give a scan of the same channels as --check")
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
    """What whoever uses the network has to know; nothing of the scans is in it."""
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


def _quiet() -> AbstractContextManager[None]:
    """The exporter tells of its own deprecations and passes, which are of no use to whoever exports."""
    return silence("onnxscript", "onnx_ir", "torch.onnx", below=logging.ERROR)
