"""What a network shows of a scan: how sure it is, how much it finds, in how many parts, and what it looks like."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graftseg.core.errors import Code, UserError
from graftseg.core.types import NEIGHBORS
from graftseg.inference.model import TrainedNetwork
from graftseg.inference.ranking.cases import Prepared
from graftseg.inference.resampling import stretched, stretched_slabs
from graftseg.inference.sliding_window import Segment, is_slicewise, probability_slabs
from graftseg.ops.components import chosen_classes, largest_components
from graftseg.recipes.settings import InferenceSettings

Labels = NDArray[np.uint8]
OVERLAP = 0.25
"""Less than for a label map: what is summed over a whole scan needs no smooth seams."""
IN_QUESTION = 0.05
"""Voxels with at least this probability of foreground count for the uncertainty of a scan."""


@dataclass(frozen=True)
class Observation:
    """What is known of a case.

    ``uncertainty`` is the mean entropy, between 0 and 1, of the probabilities (averaged over copies mirrored along the
    first two axes, if the training mirrored scans) over the voxels that may be foreground, and ``at_boundary`` the part
    of it that lies within two voxels of a boundary.
    ``sizes`` (in mm to the power of the axes) and ``parts`` (connected components) have an entry for each foreground
    class: of the label map that the run predicts, in which the largest component alone stays where its recipe says so,
    or of the one that a person made. ``voxel`` is the smallest size there is.
    ``features`` are those of the encoder's coarsest level, averaged over the scan.
    """

    case: str
    uncertainty: float
    at_boundary: float
    sizes: tuple[float, ...]
    parts: tuple[int, ...]
    voxel: float
    features: NDArray[np.float64]


def observe(network: TrainedNetwork, case: str, given: Prepared) -> Observation:
    """Observe a case; one with a label map is looked at once, without mirroring, and its label map is what is found."""
    if len(given.image) != network.channels:
        finding = f"the number of channels is {len(given.image)} where the run was trained on {network.channels}"
        raise UserError(Code.TOO_FEW_CASES, case, finding, "give the same channels as in training")
    classes = len(network.classes)
    if given.label is not None and (top := int(given.label.max(initial=0))) >= classes:
        finding = f"the label value {top} is not among the classes 0 to {classes - 1} of the run"
        raise UserError(Code.TOO_FEW_CASES, case, finding, "correct the label map")
    # a network that saw no mirrored scans in training is not to be asked about them
    mirrors = given.label is None and network.recipe.batches.augment.rotate_flip > 0
    axes = (2, 3) if mirrors else ()
    with _features(network.method.student) as features:
        decided, entropy = _seen(network, given.image, features.first_of_each(network.method.segment, axes))
    labels = _cleaned(decided, network)
    uncertainty, at_boundary = _doubts(labels, entropy)
    found = labels if given.label is None else given.label
    counts = np.bincount(found.ravel(), minlength=classes)[1:classes]
    return Observation(
        case=case,
        uncertainty=uncertainty,
        at_boundary=at_boundary,
        sizes=tuple(float(count * given.voxel) for count in counts),
        parts=tuple(count_parts(found, value) for value in range(1, classes)),
        voxel=given.voxel,
        features=features.mean(),
    )


def _seen(network: TrainedNetwork, image: Tensor, segment: Segment) -> tuple[Labels, NDArray[np.float32]]:
    """The label map and, where foreground is in question, the entropy of a prepared image; elsewhere that is -1."""
    settings = network.recipe.inference.model_copy(update={"stride": None, "overlap": OVERLAP})
    stretch = network.recipe.batches.fit == "stretch"
    pieces = []
    for _, probabilities in _slabs(network, image, segment, settings):
        decided = _decided(probabilities)
        # sizes are counted in voxels of the scan, not of the patch
        decided = tuple(stretched(values, image.shape[1:3]) for values in decided) if stretch else decided
        pieces.append([values.cpu().numpy() for values in decided])
    labels, entropy = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    if stretch or is_slicewise(image, network.patch):
        labels, entropy = np.moveaxis(labels, 0, -1), np.moveaxis(entropy, 0, -1)
    space = tuple(image.shape[1:])
    return np.ascontiguousarray(labels).reshape(space), np.ascontiguousarray(entropy).reshape(space)


def _slabs(
    network: TrainedNetwork, image: Tensor, segment: Segment, settings: InferenceSettings
) -> Iterator[tuple[int, Tensor]]:
    """Probabilities of the whole image, in order along one axis; the only place that knows how windows are made."""
    if network.recipe.batches.fit == "stretch":
        volume = image if is_slicewise(image, network.patch) else image[..., None]
        return stretched_slabs(segment, volume, network.patch, settings, device=network.device)
    return probability_slabs(segment, image, network.patch, settings, device=network.device)


def _decided(probabilities: Tensor) -> tuple[Tensor, ...]:
    entropy = -(probabilities * probabilities.clamp(min=1e-12).log()).sum(0) / log(len(probabilities))
    in_question = probabilities[0] <= 1 - IN_QUESTION
    entropy = torch.where(in_question, entropy, -1.0)
    return probabilities.argmax(0).to(torch.uint8), entropy


def _cleaned(labels: Labels, network: TrainedNetwork) -> Labels:
    """The label map without the specks that a prediction of the run would not show either."""
    rule = network.recipe.inference.largest_component
    if not rule:
        return labels
    kept = largest_components(torch.from_numpy(labels)[None], len(network.classes), only=chosen_classes(rule))
    return np.asarray(kept[0].numpy(), dtype=np.uint8)


def _doubts(labels: Labels, entropy: NDArray[np.float32]) -> tuple[float, float]:
    """The mean entropy of the voxels in question, and the share of it near a boundary; 0 where there are none."""
    in_question = entropy >= 0
    total = float(entropy[in_question].sum(dtype=np.float64))
    if total <= 0:
        return 0.0, 0.0
    near = float(entropy[in_question & near_boundary(labels)].sum(dtype=np.float64))
    return total / int(in_question.sum()), near / total


def near_boundary(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """The two voxels on either side of every face between different labels."""
    band = np.zeros(labels.shape, dtype=bool)
    for axis in range(labels.ndim):
        along, marked = np.moveaxis(labels, axis, 0), np.moveaxis(band, axis, 0)
        (faces,) = (along[1:] != along[:-1],)
        for offset in (-1, 0, 1, 2):
            first, last = max(offset, 0), len(along) + min(offset - 1, 0)
            if last > first:
                start = first - offset
                marked[first:last] |= faces[start : start + last - first]
    return band


def count_parts(labels: NDArray[Any], value: int) -> int:
    """Connected components of a class, corners joined."""
    import cc3d

    mask = np.ascontiguousarray(labels == value)
    if not mask.any():
        return 0
    _, count = cc3d.connected_components(mask, connectivity=NEIGHBORS[mask.ndim, mask.ndim], return_N=True)
    return int(count)


class _Features:
    """Sums the coarsest features of the encoder over the windows that pass while it listens."""

    def __init__(self) -> None:
        self._total, self._count, self._listens = torch.zeros(()), 0, False

    def __call__(self, module: nn.Module, inputs: Any, output: list[Tensor]) -> None:
        """What PyTorch calls after the encoder."""
        if self._listens:
            deepest = output[-1].detach().float().flatten(2).mean(2)
            self._total, self._count = self._total.to(deepest.device) + deepest.sum(0), self._count + len(deepest)

    def first_of_each(self, segment: Segment, axes: tuple[int, ...]) -> Segment:
        """Mean probabilities over images and their mirrored copies; features are taken of the images alone."""

        def mean(images: Tensor) -> Tensor:
            self._listens = True
            total = segment(images)
            self._listens = False
            for axis in axes:
                total = total + segment(images.flip(axis)).flip(axis)
            return total / (1 + len(axes))

        return mean

    def mean(self) -> NDArray[np.float64]:
        """The mean over all windows."""
        return np.asarray((self._total / max(self._count, 1)).cpu().numpy(), dtype=np.float64)


@contextmanager
def _features(student: nn.Module) -> Iterator[_Features]:
    """Listen to the encoder of a student for as long as the block lasts."""
    encoder = next(part for name, part in student.named_modules() if name.rpartition(".")[2] == "encoder")
    features = _Features()
    hook = encoder.register_forward_hook(features)
    try:
        yield features
    finally:
        hook.remove()
