"""Snapshots of a step for the report: mixed images, their label maps, and pseudo-labels of a few fixed scans."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.methods import Method

Pictures = dict[str, npt.NDArray[Any]]


def snapshot_steps(steps: int, count: int) -> set[int]:
    """Return the steps of a stage with a snapshot: the first step, and ``count`` evenly spaced steps up to the last."""
    if count == 0:
        return set()
    return {1} | {max(1, round(steps * part / count)) for part in range(1, count + 1)}


@torch.no_grad()
def snapshot(method: Method, shows: Mapping[str, Tensor], watched: Tensor | None) -> Pictures:
    """Return 2-D pictures by name; names start with ``X`` for images, ``Y`` for label maps, ``M`` for masks.

    A volume is shown as one slice perpendicular to the last axis. For the tensors ``shows`` of the step, it is the
    slice with the most foreground. For the fixed scans ``watched``, it is the middle slice.
    """
    first = {name: tensor if name.startswith("M") else tensor[0] for name, tensor in shows.items()}
    depth = _fullest_slice([tensor for name, tensor in first.items() if name.startswith("Y")])
    pictures = {name: _picture(name, tensor, depth) for name, tensor in first.items()}
    labels = None if watched is None else method.preview_labels(watched)
    if watched is not None and labels is not None:
        for index in range(len(watched)):
            middle = watched.shape[-1] // 2
            pictures[f"X_watch_{index}"] = _picture("X", watched[index], middle)
            pictures[f"Y_watch_{index}"] = _picture("Y", labels[index], middle)
    return pictures


def _fullest_slice(labels: Sequence[Tensor]) -> int:
    """Return the index along the last axis with the most foreground over all label maps; 0 without label maps."""
    if not labels:
        return 0
    foreground = torch.stack([label > 0 for label in labels]).sum(0)
    return int(foreground.reshape(-1, foreground.shape[-1]).sum(0).argmax())


def _picture(name: str, tensor: Tensor, depth: int) -> npt.NDArray[Any]:
    """Return a label map, a mask or the first channel of an image; cut a volume to one slice."""
    array = tensor[0] if name.startswith("X") else tensor
    if array.dim() == 3:
        array = array[..., depth]
    kind = np.float32 if name.startswith("X") else np.uint8
    return array.detach().float().cpu().numpy().astype(kind)
