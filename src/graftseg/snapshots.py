"""Pictures of a step for people to look at: mixed images, supervisory signals, pseudo-labels of the same scans."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.methods import Method
from graftseg.types import Objective

Pictures = dict[str, npt.NDArray[Any]]


def snapshot_steps(steps: int, count: int) -> set[int]:
    """The first step of a stage and ``count`` more, evenly spaced, the last among them."""
    if count == 0:
        return set()
    return {1} | {max(1, round(steps * part / count)) for part in range(1, count + 1)}


@torch.no_grad()
def snapshot(method: Method, objectives: Sequence[Objective], watched: Tensor | None) -> Pictures:
    """Two-dimensional pictures by name: ``X`` images, ``Y`` label maps, ``M`` masks; middle slices of volumes."""
    pictures: Pictures = {}
    for objective in objectives:
        for name, tensor in objective.shows.items():
            pictures[name] = _picture(name, tensor if name.startswith("M") else tensor[0])
    labels = None if watched is None else method.watch(watched)
    if watched is not None and labels is not None:
        for index in range(len(watched)):
            pictures[f"X_watch_{index}"] = _picture("X", watched[index])
            pictures[f"Y_watch_{index}"] = _picture("Y", labels[index])
    return pictures


def _picture(name: str, tensor: Tensor) -> npt.NDArray[Any]:
    """The first channel of an image, the middle slice of a volume."""
    array = tensor[0] if name.startswith("X") else tensor
    if array.dim() == 3:
        array = array[..., array.shape[-1] // 2]
    kind = np.float32 if name.startswith("X") else np.uint8
    return array.detach().float().cpu().numpy().astype(kind)
