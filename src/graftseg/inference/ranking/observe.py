"""Measurements of one scan for the ranking: uncertainty, sizes and components of classes, and encoder features."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graftseg.data.labels import check_label_values
from graftseg.data.scans_to_predict import check_channels
from graftseg.inference.combined_networks import flipped, mean_of
from graftseg.inference.label_maps import clean_labels, decide_labels, may_be_foreground
from graftseg.inference.model import TrainedNetwork
from graftseg.inference.resampling import stretched, stretched_slabs
from graftseg.inference.sliding_window import Segment, is_slicewise, probability_slabs
from graftseg.ops.components.host import number_components

Labels = NDArray[np.uint8]
OVERLAP = 0.25
"""Overlap of windows. It is smaller than for label maps, because sums over a scan need no smooth borders."""
NOT_FOREGROUND = -1.0  # value in the entropy map of voxels that are almost certainly background


@dataclass(frozen=True)
class Prepared:
    """A prepared image ``(C, *space)``, the area (mm²) or volume (mm³) of a voxel, and the label map if labeled."""

    image: Tensor
    voxel_size: float
    label: NDArray[Any] | None


@dataclass(frozen=True)
class Observation:
    """Measurements of a case. Sizes and parts are those of the label map or, without labels, of the prediction."""

    case: str
    uncertainty: float  # mean entropy, from 0 to 1, over voxels that may be foreground
    at_boundary: float  # share of this entropy within two voxels of a boundary
    sizes: tuple[float, ...]  # area in mm² or volume in mm³ of each foreground class
    components: tuple[int, ...]  # number of connected components of each foreground class
    voxel_size: float  # area or volume of a voxel
    features: NDArray[np.float64]  # mean output of the encoder's deepest level


Observations = Sequence[Observation]


def observe(network: TrainedNetwork, case: str, prepared: Prepared) -> Observation:
    """Measure a case."""
    classes = len(network.classes)
    check_channels(case, len(prepared.image), network.channels)
    if prepared.label is not None:
        check_label_values(case, prepared.label, range(classes))
    features: list[Tensor] = []
    predicted, uncertainties = _predict(network, prepared.image, _segment(network, prepared, features))
    voxel_ml = prepared.voxel_size / 1000 if predicted.ndim == 3 else None
    labels = clean_labels(torch.from_numpy(predicted), network.recipe.inference, classes, voxel_ml).numpy()
    uncertainty, at_boundary = _mean_uncertainty(labels, uncertainties)
    measured = labels if prepared.label is None else prepared.label
    mean_features = sum((batch.sum(0) for batch in features), torch.zeros(())) / sum(map(len, features))
    counts = np.bincount(measured.ravel(), minlength=classes)[1:classes]
    return Observation(
        case=case,
        uncertainty=uncertainty,
        at_boundary=at_boundary,
        sizes=tuple(float(count * prepared.voxel_size) for count in counts),
        components=tuple(count_components(measured, value) for value in range(1, classes)),
        voxel_size=prepared.voxel_size,
        features=mean_features.cpu().numpy().astype(np.float64),
    )


def _segment(network: TrainedNetwork, prepared: Prepared, features: list[Tensor]) -> Segment:
    """Return a network that records features and, for unlabeled cases, averages over flips along each mirrored axis.

    ``predict --uncertainty`` also averages over flips along several axes at once, so its values differ slightly.
    """
    segment = network.method.segment
    axes = network.recipe.batches.mirrored_axes if prepared.label is None else ()
    views = [flipped(segment, (2 + axis,)) for axis in axes]
    return mean_of([_recorded(network.method.student, segment, features), *views])


def _predict(network: TrainedNetwork, image: Tensor, segment: Segment) -> tuple[Labels, NDArray[np.float32]]:
    """Return labels and entropy ``(*space)`` of a prepared image. The entropy of background is ``NOT_FOREGROUND``."""
    settings = network.recipe.inference.model_copy(update={"stride": None, "overlap": OVERLAP})
    is_stretched = network.recipe.batches.fit == "stretch"
    is_slices = is_slicewise(image, network.patch)
    if is_stretched:
        volume = image if is_slices else image[..., None]
        slabs = stretched_slabs(segment, volume, network.patch, settings, device=network.device)
    else:
        slabs = probability_slabs(segment, image, network.patch, settings, device=network.device)
    pieces = []
    for _, probabilities in slabs:
        uncertainty = torch.where(may_be_foreground(probabilities), _entropy(probabilities), NOT_FOREGROUND)
        maps = [decide_labels(probabilities, settings, len(network.classes)), uncertainty]
        if is_stretched:  # sizes are counted in voxels of the scan, not of the patch
            maps = [stretched(values, image.shape[1:3]) for values in maps]
        pieces.append([values.cpu().numpy() for values in maps])
    labels, uncertainties = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    if is_stretched or is_slices:
        labels, uncertainties = np.moveaxis(labels, 0, -1), np.moveaxis(uncertainties, 0, -1)
    space = tuple(image.shape[1:])
    return np.ascontiguousarray(labels).reshape(space), np.ascontiguousarray(uncertainties).reshape(space)


def _entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of ``(K, *space)`` as a fraction of its maximum.

    ``label_maps.entropy`` rounds the last bit differently, which would change the scores of rankings slightly.
    """
    return -(probabilities * probabilities.clamp(min=1e-12).log()).sum(0) / log(len(probabilities))


def _mean_uncertainty(labels: Labels, uncertainties: NDArray[np.float32]) -> tuple[float, float]:
    """Return the mean entropy of voxels that may be foreground, and its share near a boundary."""
    is_possible = uncertainties >= 0
    total = float(uncertainties[is_possible].sum(dtype=np.float64))
    if total <= 0:
        return 0.0, 0.0
    near = float(uncertainties[is_possible & near_boundary(labels)].sum(dtype=np.float64))
    return total / int(is_possible.sum()), near / total


def near_boundary(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the two voxels on each side of every face between different labels."""
    band = np.zeros(labels.shape, dtype=bool)
    for axis in range(labels.ndim):
        along, marked = np.moveaxis(labels, axis, 0), np.moveaxis(band, axis, 0)
        faces = along[1:] != along[:-1]
        for offset in (-1, 0, 1, 2):
            first, last = max(offset, 0), len(along) + min(offset - 1, 0)
            if last > first:
                start = first - offset
                marked[first:last] |= faces[start : start + last - first]
    return band


def count_components(labels: NDArray[Any], value: int) -> int:
    """Return the number of connected components of a class. Voxels that share a corner are connected."""
    return number_components((labels == value).astype(np.uint8), labels.ndim)[1]


def _recorded(student: nn.Module, segment: Segment, features: list[Tensor]) -> Segment:
    """Return a network that appends the deepest features ``(B, D)`` of its encoder, averaged over each window."""
    encoder = next(part for name, part in student.named_modules() if name.rpartition(".")[2] == "encoder")

    def append(module: nn.Module, inputs: Any, output: list[Tensor]) -> None:
        features.append(output[-1].detach().float().flatten(2).mean(2))

    def record(images: Tensor) -> Tensor:
        hook = encoder.register_forward_hook(append)
        try:
            return segment(images)
        finally:
            hook.remove()

    return record
